#pragma once

#include "cuda/backward_params.hpp"
#include "cuda/engine_state.hpp"
#include "dispatch/backward_kernel.hpp"

#include <memory>
#include <string>
#include <vector>

namespace heed::cuda {

/// What both families of backward kernels do alike: places, workspaces, and a run of several compiled steps.
class CudaBackwardKernel : public dispatch::BackwardKernel {
 public:
  std::vector<Plan::Stage> stages(const Problem& problem, int threads) const final;
  void run(const dispatch::BackwardCall& call) const final;
  std::optional<std::span<std::byte>> own_workspace(const void* pointer, void* stream, std::size_t bytes) const final;
  std::unique_ptr<const dispatch::Prepared> prepare(const Problem& problem, int threads) const final;

  /// One launch of a run: what it is for, and what is compiled for it.
  struct Step {
    std::string purpose;  ///< "dK and dV"
    Compilation compilation;
  };
  /// Those of a problem that the kernel can compute, on such a GPU, in the order they run in.
  virtual std::vector<Step> steps(const Problem& problem, const Device& device) const = 0;

 protected:
  /// Without a state it can be asked and compiled for, but not run.
  CudaBackwardKernel(const dispatch::BackwardKernelSpec& spec, std::shared_ptr<EngineState> state)
      : BackwardKernel(spec), state_(std::move(state)) {}

  /// A kernel for each step.
  struct Compiled : dispatch::Prepared {
    std::vector<std::shared_ptr<const LoadedKernel>> kernels;
  };

  /// How the family divides the workspace.
  virtual BackwardWorkspace workspace(const Problem& problem) const = 0;

  /// Puts the steps on the stream. The context of `device` is current; what a step has nothing to do for is left out.
  virtual void launch(const dispatch::BackwardCall& call, const Compiled& compiled, int device) const = 0;

  /// What kernels of the portable family are compiled for.
  std::string portable_arch(const Device& device) const {
    return has_state() ? state_->portable_arch() : "sm_" + std::to_string(device.sm);
  }

  EngineState& state() const { return *state_; }
  bool has_state() const { return state_ != nullptr; }

 private:
  std::shared_ptr<EngineState> state_;
};

}  // namespace heed::cuda
