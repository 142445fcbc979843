#pragma once

#include "dispatch/backward_kernel.hpp"

#include <memory>
#include <span>

namespace heed::cpu {

/// The table of backward kernels, one line per ISA level and arithmetic unit.
std::span<const dispatch::BackwardKernelSpec> backward_kernel_specs();

std::shared_ptr<const dispatch::BackwardKernel> make_backward_kernel(const dispatch::BackwardKernelSpec& spec);

}  // namespace heed::cpu
