#include "cuda/backward_kernel.hpp"

#include "core/backward_args.hpp"

#include <mutex>

namespace heed::cuda {

std::vector<Plan::Stage> CudaBackwardKernel::stages(const Problem& problem, int) const {
  const std::size_t bytes = workspace(problem).bytes;
  std::vector<Plan::Stage> list;
  for (const Step& step : steps(problem, state_->device)) list.push_back({name(), step.purpose, 0, bytes});
  return list;
}

std::optional<std::span<std::byte>> CudaBackwardKernel::own_workspace(const void* pointer, void* stream,
                                                                      std::size_t bytes) const {
  return state_->workspace(pointer, stream, bytes);
}

std::unique_ptr<const dispatch::Prepared> CudaBackwardKernel::prepare(const Problem& problem, int) const {
  auto compiled = std::make_unique<Compiled>();
  for (const Step& step : steps(problem, state_->device)) compiled->kernels.push_back(state_->load(step.compilation));
  return compiled;
}

void CudaBackwardKernel::run(const dispatch::BackwardCall& call) const {
  const int device = device_of(call.args.forward.q, core::all_views(call.args), state_->device);
  const DeviceGuard guard(device);
  const std::lock_guard together(state_->scratch.steps(device, static_cast<CUstream>(call.stream)));
  launch(call, static_cast<const Compiled&>(*call.prepared), device);
}

}  // namespace heed::cuda
