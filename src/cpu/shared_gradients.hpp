#pragma once

#include "cpu/backward_jobs.hpp"
#include "cpu/backward_rows.hpp"

#include <functional>
#include <utility>

/// Gradients of what many rows share: each element is summed by one piece, in the order of batch, heads and rows, so
/// that it is the same for every number of threads.
namespace heed::cpu {

/// Room for a block and a row of one worker.
using BlockAndRow = std::function<std::pair<BackwardBlock, BackwardRow>(int worker)>;

/// dBias and dSlopes, as far as they are asked for: every element of them. Needs D.
void write_bias_and_slope_gradients(const dispatch::BackwardCall& call, const BackwardJobs& jobs,
                                    const BlockAndRow& scratch);

/// dSink. Needs D.
void write_sink_gradient(const dispatch::BackwardCall& call, const BackwardJobs& jobs);

}  // namespace heed::cpu
