#include "cuda/forward_kernel.hpp"

#include "cuda/kernel_text.hpp"

namespace heed::cuda {

std::vector<Plan::Stage> CudaForwardKernel::stages(const Problem& problem, int) const {
  std::vector<Plan::Stage> list;
  if (problem.randval()) list.push_back({name(), "random words", 0, 0});
  list.push_back({name(), "forward", 0, kCounterBytes});
  return list;
}

std::optional<std::span<std::byte>> CudaForwardKernel::own_workspace(const void* pointer, void* stream,
                                                                     std::size_t bytes) const {
  return state_->workspace(pointer, stream, bytes);
}

std::unique_ptr<const dispatch::Prepared> CudaForwardKernel::prepare(const Problem& problem, int) const {
  auto compiled = std::make_unique<Compiled>();
  compiled->main = state_->load(compilation(problem, state_->device));
  if (problem.randval())
    compiled->randval = state_->load({randval_source(), "sm_" + std::to_string(state_->device.sm), 0});
  return compiled;
}

void CudaForwardKernel::run(const dispatch::ForwardCall& call) const {
  const Problem& problem = call.problem;
  const bool group = problem.mode() == Mode::group;
  const std::int64_t rows = group ? problem.total_q() : problem.s_q();
  if (problem.batch() == 0 || problem.heads_q() == 0 || rows == 0) return;
  const int device = device_of(call.args.q, core::all_views(call.args), state_->device);
  const DeviceGuard guard(device);
  const auto& compiled = static_cast<const Compiled&>(*call.prepared);
  if (compiled.randval) {
    kernels::ForwardParams p = forward_params(call);
    void* parameters[] = {&p};
    constexpr unsigned kThreads = 256, kBlocksPerMultiprocessor = 8;
    compiled.randval->launch(device, static_cast<unsigned>(state_->device.multiprocessors) * kBlocksPerMultiprocessor,
                             kThreads, static_cast<CUstream>(call.stream), parameters);
  }
  launch(call, compiled, device);
}

}  // namespace heed::cuda
