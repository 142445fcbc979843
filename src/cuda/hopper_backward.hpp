#pragma once

#include "cuda/backward_kernel.hpp"
#include "kernels/hopper_backward_config.h"

#include <span>
#include <variant>

namespace heed::cuda {

/// One line of the table of Hopper backward kernels: what it computes, how, and how much of it fits the registers.
struct HopperBackwardLine {
  dispatch::BackwardKernelSpec spec;
  std::variant<kernels::HopperBackwardConfig, kernels::HopperWideBackwardConfig> config;  ///< for f16, without features
  int room;  ///< the features' weight() that its registers have room for
};

std::span<const HopperBackwardLine> hopper_backward_lines();

std::shared_ptr<const dispatch::BackwardKernel> make_hopper_backward(const HopperBackwardLine& line,
                                                                     std::shared_ptr<EngineState> state);

}  // namespace heed::cuda
