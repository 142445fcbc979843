#include "cuda/forward_kernel.hpp"

#include "core/forward_args.hpp"
#include "core/invalid.hpp"
#include "cuda/kernel_text.hpp"

#include <algorithm>

namespace heed::cuda {
namespace {

/// The GPU that holds q. All tensors must be there.
int device_of(const ForwardArgs& args, const Device& planned) {
  // That they are in GPU memory has been seen; where there is one GPU no more can be wrong.
  if (devices().size() == 1) return planned.ordinal;
  const PointerPlace q = place_of(args.q.data);
  const int device = q.kind == PointerPlace::device ? q.device_ordinal : planned.ordinal;
  for (const core::NamedView& named : core::all_views(args)) {
    if (named.view.data == nullptr) continue;
    const PointerPlace place = place_of(named.view.data);
    if (!place.for_device(device))
      throw core::invalid("{} lies in {}, q in the memory of GPU {}: all tensors of a call must be on one GPU.",
                          named.name, to_text(place), device);
  }
  const Device& here = devices().at(static_cast<std::size_t>(device));
  if (here.sm != planned.sm)
    throw core::invalid("the tensors are on GPU {} (sm_{}), the plan was made for sm_{}: make a plan on that GPU.",
                        device, here.sm, planned.sm);
  return device;
}

}  // namespace

std::vector<Plan::Stage> CudaForwardKernel::stages(const Problem& problem, int) const {
  std::vector<Plan::Stage> list;
  if (problem.randval()) list.push_back({name(), "random words", 0, 0});
  list.push_back({name(), "forward", 0, kCounterBytes});
  return list;
}

std::optional<std::span<std::byte>> CudaForwardKernel::own_workspace(const void* pointer, void* stream,
                                                                     std::size_t bytes) const {
  int device = state_->device.ordinal;
  if (devices().size() > 1)
    if (const PointerPlace place = place_of(pointer); place.device_ordinal >= 0) device = place.device_ordinal;
  const DeviceGuard guard(device);
  return state_->scratch.take(device, static_cast<CUstream>(stream), bytes);
}

std::unique_ptr<LoadedKernel> CudaForwardKernel::load(const Compilation& compilation) const {
  auto kernel = std::make_unique<LoadedKernel>(
      compilation.source.name, state_->jit.get(compilation.source, compilation.arch), compilation.shared_bytes);
  const DeviceGuard guard(state_->device.ordinal);
  kernel->load(state_->device.ordinal);
  return kernel;
}

std::unique_ptr<const dispatch::Prepared> CudaForwardKernel::prepare(const Problem& problem, int) const {
  auto compiled = std::make_unique<Compiled>();
  compiled->main = load(compilation(problem, state_->device));
  if (problem.randval()) compiled->randval = load({randval_source(), "sm_" + std::to_string(state_->device.sm), 0});
  return compiled;
}

void CudaForwardKernel::run(const dispatch::ForwardCall& call) const {
  const Problem& problem = call.problem;
  const bool group = problem.mode() == Mode::group;
  const std::int64_t rows = group ? problem.total_q() : problem.s_q();
  if (problem.batch() == 0 || problem.heads_q() == 0 || rows == 0) return;
  const int device = device_of(call.args, state_->device);
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
