#pragma once

#include "cuda/backward_kernel.hpp"
#include "cuda/portable_device.hpp"
#include "kernels/portable_backward_config.h"

#include <array>
#include <span>

namespace heed::cuda {

std::span<const dispatch::BackwardKernelSpec> portable_backward_specs();

/// Which gradients the kernels are for.
enum class PortableGradients {
  all,
  shared,  ///< dBias and dSink alone, which have one value for many entries: where another family computes the others
};

/// The kernels of a problem in the order they run in, on such a GPU, with so many multiprocessors.
class PortableBackwardConfigs {
 public:
  PortableBackwardConfigs(const Problem& problem, const kernels::PortableDevice& device, int multiprocessors,
                          PortableGradients which = PortableGradients::all);

  const kernels::PortableBackwardConfig* begin() const { return list_.data(); }
  const kernels::PortableBackwardConfig* end() const { return list_.data() + count_; }
  bool empty() const { return count_ == 0; }

  /// The columns of the sum of dQ in memory; 0: none.
  int dq_sum_columns() const { return list_.front().d; }

  /// Into how many parts what an entry of dBias sums is divided, and the floats that all of them take; 1: none.
  int dbias_parts() const { return dbias_parts_; }
  std::int64_t dbias_floats() const { return dbias_floats_; }

 private:
  static constexpr std::size_t kMost = 7;  ///< rows, dV, dK, dQ, dBias, its sum, sums
  std::array<kernels::PortableBackwardConfig, kMost> list_{};
  std::size_t count_ = 0;
  int dbias_parts_ = 1;
  std::int64_t dbias_floats_ = 0;
};

/// The thread blocks that one of them has work for. Sets p's schedule, but for the parts of dBias, which it counts.
std::int64_t portable_backward_blocks(const kernels::PortableBackwardConfig& config, const Problem& problem,
                                      kernels::BackwardParams& p);

/// Whether dBias is still to be written when they come.
enum class DBias { missing, written };

/// Their steps, compiled for `arch`, and their launches: a kernel for each. One whose gradients are written already is
/// left out.
std::vector<CudaBackwardKernel::Step> portable_backward_steps(const PortableBackwardConfigs& configs,
                                                              const std::string& arch);
void launch_portable_backward(const PortableBackwardConfigs& configs, const dispatch::BackwardCall& call,
                              const BackwardWorkspace& workspace,
                              std::span<const std::shared_ptr<const LoadedKernel>> kernels, int device,
                              DBias dbias = DBias::missing);

std::shared_ptr<const dispatch::BackwardKernel> make_portable_backward(const dispatch::BackwardKernelSpec& spec,
                                                                       std::shared_ptr<EngineState> state);

}  // namespace heed::cuda
