#pragma once

#include "cpu/forward_job.hpp"
#include "dispatch/forward_kernel.hpp"

#include <memory>
#include <span>
#include <vector>

namespace heed::cpu {

/// The table of forward kernels of every level this build has, runnable on this machine or not.
std::span<const dispatch::ForwardKernelSpec> forward_kernel_specs();

std::shared_ptr<const dispatch::ForwardKernel> make_forward_kernel(const dispatch::ForwardKernelSpec& spec);

}  // namespace heed::cpu
