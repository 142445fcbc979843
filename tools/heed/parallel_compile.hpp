#pragma once

#include "cuda/kernel_list.hpp"

#include <string>
#include <vector>

namespace heed::command {

/// What came of compiling one kernel.
struct CompileOutcome {
  cuda::Resources resources;
  std::string failure;  ///< empty: it compiled

  /// Nothing spilled, no local memory, no serialised wgmma.
  bool clean() const {
    return failure.empty() && resources.spill_bytes == 0 && resources.local_bytes == 0 && !resources.serialized_wgmma;
  }
};

/// Compiles kernels through the Jit's cache, `threads` at a time (0: as many as heed has), with a progress bar called
/// `what`. One outcome for each, in order.
std::vector<CompileOutcome> compile_all(cuda::Jit& jit, const std::vector<cuda::ListedKernel>& kernels, int threads,
                                        const std::string& what);

}  // namespace heed::command
