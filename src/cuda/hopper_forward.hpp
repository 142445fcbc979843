#pragma once

#include "cuda/forward_kernel.hpp"
#include "cuda/hopper_lines.hpp"

namespace heed::cuda {

std::shared_ptr<const CudaForwardKernel> make_hopper_forward(const HopperLine& line,
                                                             std::shared_ptr<EngineState> state);

}  // namespace heed::cuda
