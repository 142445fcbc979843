#pragma once

#include "cuda/device.hpp"
#include "cuda/device_scratch.hpp"
#include "cuda/forward_params.hpp"
#include "cuda/jit.hpp"
#include "cuda/loaded_kernel.hpp"
#include "cuda/tensor_map.hpp"
#include "dispatch/forward_kernel.hpp"

#include <memory>
#include <string>

namespace heed::cuda {

/// What all kernels of the engine share.
struct EngineState {
  EngineState(Device gpu, JitOptions options) : device(std::move(gpu)), jit(std::move(options)) {}

  const Device device;           ///< the one that selection is for; others of the same architecture run its plans, too
  bool portable_as_ptx = false;  ///< the portable family is compiled to PTX for sm_80, and by the driver from there
  Jit jit;
  DeviceScratch scratch;
};

/// What both families of forward kernels do alike: places, workspaces, the random words of dropout.
class CudaForwardKernel : public dispatch::ForwardKernel {
 public:
  std::vector<Plan::Stage> stages(const Problem& problem, int threads) const final;
  void run(const dispatch::ForwardCall& call) const final;
  std::optional<std::span<std::byte>> own_workspace(const void* pointer, void* stream, std::size_t bytes) const final;
  std::unique_ptr<const dispatch::Prepared> prepare(const Problem& problem, int threads) const final;

  /// What is compiled for a problem that the kernel can compute, on such a GPU.
  struct Compilation {
    KernelSource source;
    std::string arch;      ///< "sm_90a"
    int shared_bytes = 0;  ///< of a launch
  };
  virtual Compilation compilation(const Problem& problem, const Device& device) const = 0;

 protected:
  /// Without a state it can be asked and compiled for, but not run.
  CudaForwardKernel(const dispatch::ForwardKernelSpec& spec, std::shared_ptr<EngineState> state)
      : ForwardKernel(spec), state_(std::move(state)) {}

  /// The main kernel and, where the words are asked for, the one that writes them.
  struct Compiled : dispatch::Prepared {
    std::unique_ptr<LoadedKernel> main, randval;
    mutable LastMaps maps;  ///< for kernels that copy by TMA
  };
  /// Bytes of workspace that hold zero before and after a run.
  static constexpr std::size_t kCounterBytes = 64;

  /// Puts the main kernel on the stream. The context of `device` is current; there are rows to compute.
  virtual void launch(const dispatch::ForwardCall& call, const Compiled& compiled, int device) const = 0;

  EngineState& state() const { return *state_; }
  bool has_state() const { return state_ != nullptr; }

 private:
  std::unique_ptr<LoadedKernel> load(const Compilation& compilation) const;

  std::shared_ptr<EngineState> state_;
};

}  // namespace heed::cuda
