#pragma once

#include "heed/timing.hpp"

#include <heed/plan.hpp>

#include <string>
#include <utility>
#include <vector>

namespace heed::command {

/// What a call costs the host on the CUDA engine: forward() and Plan::run_on_stream of a tiny problem, put on a stream
/// without waiting.
struct HostCost {
  std::string kernel;
  std::vector<std::pair<std::string, Times>> calls;  ///< by what is called
};

/// Throws UnsupportedError where there is no GPU.
HostCost measure_host_cost(Context& context);

std::string to_text(const HostCost& cost);
/// `command`: what to type to do it again.
std::string to_json(const HostCost& cost, const std::string& command);

}  // namespace heed::command
