#pragma once

#include "cuda/forward_kernel.hpp"
#include "kernels/hopper_config.h"

#include <span>

namespace heed::cuda {

/// One line of the table of Hopper kernels: what it computes, how, and where it is the one to take.
struct HopperLine {
  dispatch::ForwardKernelSpec spec;
  kernels::HopperConfig config;  ///< for f16, without features
  /// It wins where the longest row of keys is in this range and the mask is of this kind; see tuned().
  std::int64_t from_s_k = 0, to_s_k = dispatch::Sizes::kNoLimit;
};

std::span<const HopperLine> hopper_lines();

/// The configuration of a line for a problem that it can compute.
kernels::HopperConfig hopper_config(const HopperLine& line, const Problem& problem);

std::shared_ptr<const dispatch::ForwardKernel> make_hopper_forward(const HopperLine& line,
                                                                   std::shared_ptr<EngineState> state);

}  // namespace heed::cuda
