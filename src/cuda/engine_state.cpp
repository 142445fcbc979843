#include "cuda/engine_state.hpp"

#include "core/invalid.hpp"

#include <mutex>
#include <utility>

namespace heed::cuda {
namespace {

/// Where a call runs whose q lies here: managed memory belongs to no GPU, whichever it is on now.
int device_for(const void* q, const Device& planned) {
  const PointerPlace place = place_of(q);
  return place.kind == PointerPlace::device ? place.device_ordinal : planned.ordinal;
}

}  // namespace

std::shared_ptr<const LoadedKernel> EngineState::load(const Compilation& compilation) {
  auto code = jit.get(compilation.source, compilation.arch);
  std::shared_ptr<const LoadedKernel> kernel;
  {
    const std::scoped_lock lock(mutex_);
    auto& kept = kernels_[{code.get(), compilation.shared_bytes}];
    if (kept == nullptr)
      kept = std::make_shared<const LoadedKernel>(compilation.source.name, std::move(code), compilation.shared_bytes);
    kernel = kept;
  }
  // Threads that come here with the same kernel at once load it once. In the child of a fork the guard throws.
  const DeviceGuard guard(device.ordinal);
  kernel->load(device.ordinal);
  return kernel;
}

std::span<std::byte> EngineState::workspace(const void* pointer, void* stream, std::size_t bytes) {
  const int where = devices().size() == 1 ? device.ordinal : device_for(pointer, device);
  const DeviceGuard guard(where);
  return scratch.take(where, static_cast<CUstream>(stream), bytes);
}

int device_of(const TensorView& q, std::span<const core::NamedView> views, const Device& planned) {
  // That they are in GPU memory has been seen; where there is one GPU no more can be wrong.
  if (devices().size() == 1) return planned.ordinal;
  const int device = device_for(q.data, planned);
  for (const core::NamedView& named : views) {
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

}  // namespace heed::cuda
