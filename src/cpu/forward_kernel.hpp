#pragma once

#include "cpu/forward_job.hpp"
#include "dispatch/forward_kernel.hpp"

#include <memory>
#include <span>
#include <vector>

namespace heed::cpu {

/// The table of forward kernels of every level, runnable here or not.
std::span<const dispatch::ForwardKernelSpec> forward_kernel_specs();

/// Null when this build lacks the level (another architecture).
std::shared_ptr<const dispatch::ForwardKernel> make_forward_kernel(const dispatch::ForwardKernelSpec& spec);

}  // namespace heed::cpu
