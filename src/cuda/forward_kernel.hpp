#pragma once

#include "cuda/engine_state.hpp"
#include "cuda/forward_params.hpp"
#include "cuda/tensor_map.hpp"
#include "dispatch/forward_kernel.hpp"

#include <memory>

namespace heed::cuda {

/// What both families of forward kernels do alike: places, workspaces, the random words of dropout.
class CudaForwardKernel : public dispatch::ForwardKernel {
 public:
  std::vector<Plan::Stage> stages(const Problem& problem, int threads) const final;
  void run(const dispatch::ForwardCall& call) const final;
  std::optional<std::span<std::byte>> own_workspace(const void* pointer, void* stream, std::size_t bytes) const final;
  std::unique_ptr<const dispatch::Prepared> prepare(const Problem& problem, int threads) const final;

  /// What is compiled for a problem that the kernel can compute, on such a GPU.
  virtual Compilation compilation(const Problem& problem, const Device& device) const = 0;

 protected:
  /// Without a state it can be asked and compiled for, but not run.
  CudaForwardKernel(const dispatch::ForwardKernelSpec& spec, std::shared_ptr<EngineState> state)
      : ForwardKernel(spec), state_(std::move(state)) {}

  /// The main kernel and, where the words are asked for, the one that writes them.
  struct Compiled : dispatch::Prepared {
    std::shared_ptr<const LoadedKernel> main, randval;
    mutable LastMaps maps;  ///< for kernels that copy by TMA
  };

  /// Puts the main kernel on the stream. The context of `device` is current; there are rows to compute.
  virtual void launch(const dispatch::ForwardCall& call, const Compiled& compiled, int device) const = 0;

  EngineState& state() const { return *state_; }
  bool has_state() const { return state_ != nullptr; }

 private:
  std::shared_ptr<EngineState> state_;
};

}  // namespace heed::cuda
