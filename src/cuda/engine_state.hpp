#pragma once

#include "core/forward_args.hpp"
#include "cuda/device.hpp"
#include "cuda/device_scratch.hpp"
#include "cuda/jit.hpp"
#include "cuda/loaded_kernel.hpp"
#include "dispatch/fork_safe_mutex.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace heed::cuda {

/// The first bytes of every workspace hold zero before and after a run, whichever kernels take turns with it: counters
/// of dynamic schedules.
inline constexpr std::size_t kCounterBytes = 64;

/// What is compiled for a problem, or a step of it, on some GPU.
struct Compilation {
  KernelSource source;
  std::string arch;      ///< "sm_90a"
  int shared_bytes = 0;  ///< of a launch
};

/// What all kernels of the engine share.
struct EngineState {
  EngineState(Device gpu, JitOptions options) : device(std::move(gpu)), jit(std::move(options)) {}

  const Device device;           ///< the one that selection is for; others of the same architecture run its plans, too
  bool portable_as_ptx = false;  ///< the portable family is compiled to PTX for sm_80, and by the driver from there
  Jit jit;
  DeviceScratch scratch;

  /// The architecture that kernels of the portable family are compiled for.
  std::string portable_arch() const { return portable_as_ptx ? "compute_80" : "sm_" + std::to_string(device.sm); }
  /// Compiled, or found among what was, and on the engine's GPU. Plans of any lengths share one kernel, and it stays
  /// loaded as long as the engine: a graph launches it when the plan it was captured from is gone.
  std::shared_ptr<const LoadedKernel> load(const Compilation& compilation);
  /// Scratch memory of the GPU that holds `pointer`, for work on `stream`.
  std::span<std::byte> workspace(const void* pointer, void* stream, std::size_t bytes);

 private:
  dispatch::ForkSafeMutex mutex_;
  /// By their code, of which `jit` has one for each source, and the shared bytes of a launch. Guarded by mutex_.
  std::map<std::pair<const CompiledKernel*, int>, std::shared_ptr<const LoadedKernel>> kernels_;
};

/// The GPU that holds q; throws Error unless all tensors of the call are there, and it is one the plan was made for.
int device_of(const TensorView& q, std::span<const core::NamedView> views, const Device& planned);

}  // namespace heed::cuda
