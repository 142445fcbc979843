#pragma once

#include "cuda/backward_kernel.hpp"
#include "cuda/hopper_backward_lines.hpp"

namespace heed::cuda {

std::shared_ptr<const CudaBackwardKernel> make_hopper_backward(const HopperBackwardLine& line,
                                                               std::shared_ptr<EngineState> state);

}  // namespace heed::cuda
