#pragma once

#include "cuda/device.hpp"
#include "cuda/jit.hpp"
#include "dispatch/attention_kernel.hpp"

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace heed::cuda {

/// A kernel that a profile compiles ahead, and what for.
struct ListedKernel {
  KernelSource source;
  std::string arch;         ///< "sm_90a"
  int shared_bytes = 0;     ///< that a launch asks for, on top of what the kernel has of its own
  std::string kernel = {};  ///< name of the kernel in the registry
};

/// Sets of kernels to compile ahead: what people train with, what they serve with, everything.
inline constexpr std::array<std::string_view, 3> kProfiles{"flash", "inference", "all"};

/// The kernels that a GPU of this compute capability (90 is 9.0) runs for the problems of a profile.
std::vector<ListedKernel> all_kernel_sources(std::string_view profile, int sm);

/// What a kernel of the CUDA engine, of either pass, is compiled from for a problem that it can compute on such a GPU:
/// in the order that its parts run in.
std::vector<ListedKernel> sources_of(const dispatch::AttentionKernel& kernel, const Problem& problem,
                                     const Device& device);

/// One compilation of every kernel in the tables for such a GPU: of the first problem of the largest profile that it
/// can compute.
std::vector<ListedKernel> one_source_of_each(int sm);

}  // namespace heed::cuda
