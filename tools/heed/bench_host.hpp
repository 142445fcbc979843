#pragma once

#include <heed/plan.hpp>

#include <string>

namespace heed::command {

/// What a call costs the host on the CUDA engine: forward() and Plan::run_on_stream of a tiny problem, put on a stream
/// without waiting. Some lines for people. Throws UnsupportedError where there is no such engine.
std::string measure_host_cost(Context& context);

}  // namespace heed::command
