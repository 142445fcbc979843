#pragma once

#include "cuda/forward_kernel.hpp"
#include "kernels/portable_config.h"

#include <span>

namespace heed::cuda {

std::span<const dispatch::ForwardKernelSpec> portable_specs();

/// The configuration for a problem on such a GPU.
kernels::PortableConfig portable_config(const Problem& problem, const kernels::PortableDevice& device);

std::shared_ptr<const dispatch::ForwardKernel> make_portable_forward(const dispatch::ForwardKernelSpec& spec,
                                                                     std::shared_ptr<EngineState> state);

}  // namespace heed::cuda
