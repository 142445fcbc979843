#pragma once

#include "cuda/forward_kernel.hpp"
#include "kernels/hopper_config.h"

#include <span>

namespace heed::cuda {

/// One line of the table of Hopper kernels: what it computes, how, and where it is the one to take.
struct HopperLine {
  dispatch::ForwardKernelSpec spec;
  kernels::HopperConfig config;   ///< for f16, without features
  int room;                       ///< the features' weight() that its registers have room for
  std::int64_t from_s_k, to_s_k;  ///< it is the one to take where there are so many keys
};

std::span<const HopperLine> hopper_lines();

/// The configuration of a line for a problem that it can compute.
kernels::HopperConfig hopper_config(const HopperLine& line, const Problem& problem);

std::shared_ptr<const dispatch::ForwardKernel> make_hopper_forward(const HopperLine& line,
                                                                   std::shared_ptr<EngineState> state);

}  // namespace heed::cuda
