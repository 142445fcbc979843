#pragma once

#include "cpu/backward_jobs.hpp"

#include <functional>

/// Gradients of what many rows share: each element is summed by one piece, in the order of batch, heads and rows, so
/// that it is the same for every number of threads.
namespace heed::cpu {

/// What computes the gradients of scores, and the memory of a worker.
struct ScoreGradients {
  const BackwardUnit* unit = nullptr;
  std::int64_t strip = 0;
  std::function<void*(int worker)> scratch;  ///< of the unit
  std::function<double*(int worker)> sums;   ///< [kBackwardChunk][strip]
};

/// dBias and dSlopes, as far as they are asked for: every element of them. Needs D.
void write_bias_and_slope_gradients(const dispatch::BackwardCall& call, const BackwardJobs& jobs,
                                    const ScoreGradients& scores);

/// dSink. Needs D.
void write_sink_gradient(const dispatch::BackwardCall& call, const BackwardJobs& jobs);

}  // namespace heed::cpu
