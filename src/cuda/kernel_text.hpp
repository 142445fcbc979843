#pragma once

#include "cuda/jit.hpp"
#include "kernels/hopper_backward_config.h"
#include "kernels/hopper_config.h"
#include "kernels/portable_backward_config.h"
#include "kernels/portable_config.h"

namespace heed::cuda {

/// The translation unit of one kernel: its configuration written out, and the entry that runs it. Its name tells the
/// same in short: "hopper_fwd_f16_d128_192x64_right".
KernelSource kernel_source(const kernels::HopperConfig& config);
KernelSource kernel_source(const kernels::PortableConfig& config);
KernelSource kernel_source(const kernels::PortableBackwardConfig& config);
/// The kernels of a backward pass of the Hopper family.
enum class HopperBackwardPart { before, main, after, parts };
KernelSource kernel_source(const kernels::HopperBackwardConfig& config, HopperBackwardPart part);
KernelSource kernel_source(const kernels::HopperWideBackwardConfig& config, HopperBackwardPart part);
KernelSource kernel_source(const kernels::HopperQueriesConfig& config);
/// The kernel that writes dropout's random words.
KernelSource randval_source();

}  // namespace heed::cuda
