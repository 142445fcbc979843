#include "cuda/engine.hpp"

#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/hopper_backward.hpp"
#include "cuda/hopper_forward.hpp"
#include "cuda/portable_backward.hpp"
#include "cuda/portable_forward.hpp"
#include "cuda/user_lines.hpp"
#include "dispatch/registry.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace heed::cuda {
namespace {

constexpr int kOldestSm = 80;

dispatch::Place place(const void* pointer) {
  switch (place_of(pointer).kind) {
    case PointerPlace::device:
      return dispatch::Place::gpu;
    case PointerPlace::managed:
      return dispatch::Place::both;
    default:
      return dispatch::Place::host;
  }
}

/// The GPU this thread works on, or the first one.
int current_device() {
  const Driver& driver = *Driver::get();
  CUcontext context = nullptr;
  CUdevice device = 0;
  if (driver.cuCtxGetCurrent(&context) == kSuccess && context != nullptr && driver.cuCtxGetDevice(&device) == kSuccess)
    return device;
  return 0;
}

class CudaEngine final : public dispatch::Engine {
 public:
  explicit CudaEngine(const CudaEngineOptions& options)
      : options_(options),
        forward_algo_(HopperAlgo::parse(options.forward_algo)),
        backward_algo_(HopperBackwardAlgo::parse(options.backward_algo)) {}

  dispatch::EngineKind kind() const override { return dispatch::EngineKind::cuda; }

  std::optional<std::string> unavailable() const override {
    if (Driver::get() == nullptr) return Driver::missing();
    if (devices().empty()) return "the NVIDIA driver shows no GPU";
    const Device& device = devices().at(static_cast<std::size_t>(current_device()));
    if (device.sm < kOldestSm)
      return fmt::format("{} is sm_{}: heed needs sm_{} or newer (Ampere)", device.name, device.sm, kOldestSm);
    return std::nullopt;
  }

  std::string arch_text() const override {
    const Device& device = devices().at(static_cast<std::size_t>(current_device()));
    return fmt::format("sm_{} ({})", device.sm, device.name);
  }

  void register_places(dispatch::Registry& registry) const override {
    if (Driver::library() != nullptr) registry.add_place_finder(place);
  }

  void register_kernels(dispatch::Registry& registry) const override {
    const Device& device = devices().at(static_cast<std::size_t>(current_device()));
    auto state = std::make_shared<EngineState>(device, JitOptions::from_environment());
    state->portable_as_ptx = options_.family == "portable_ptx";
    UserTuning user = UserTuning::read();
    const UserLines tuned = UserLines::of(user);
    register_forward(registry, state, tuned.forward);
    register_backward(registry, state, tuned.backward);
  }

 private:
  using State = std::shared_ptr<EngineState>;

  void register_forward(dispatch::Registry& registry, const State& state, std::span<const HopperLine> user) const {
    const auto add = [&](std::span<const HopperLine> lines, const std::string& lacks) {
      for (const HopperLine& line : lines) registry.add(make_hopper_forward(line, state), lacks);
    };
    const std::string lacks = lacks_hopper(state->device);
    if (!forward_algo_.empty()) add(forced_lines(forward_algo_), lacks);
    add(user, without_algo(forward_algo_, lacks));
    add(hopper_lines(), without_algo(forward_algo_, lacks));
    for (const dispatch::ForwardKernelSpec& spec : portable_specs())
      registry.add(make_portable_forward(spec, state), without_algo(forward_algo_, lacks_portable()));
  }

  void register_backward(dispatch::Registry& registry, const State& state,
                         std::span<const HopperBackwardLine> user) const {
    const auto add = [&](std::span<const HopperBackwardLine> lines, const std::string& lacks) {
      for (const HopperBackwardLine& line : lines) registry.add(make_hopper_backward(line, state), lacks);
    };
    const std::string lacks = lacks_hopper(state->device);
    if (!backward_algo_.empty()) add(forced_backward_lines(backward_algo_), lacks);
    add(user, without_algo(backward_algo_, lacks));
    add(hopper_backward_lines(), without_algo(backward_algo_, lacks));
    for (const dispatch::BackwardKernelSpec& spec : portable_backward_specs())
      registry.add(make_portable_backward(spec, state), without_algo(backward_algo_, lacks_portable()));
  }

  static constexpr const char* kLeftAside = "left aside: the CUDA engine was limited to another family";

  /// What a kernel lacks whose algorithm is its own.
  template <class Algo>
  static std::string without_algo(const Algo& algo, std::string lacks) {
    if (!lacks.empty() || algo.empty()) return lacks;
    return fmt::format("left aside: the algorithm was told to be {}", algo.to_string());
  }

  std::string lacks_hopper(const Device& device) const {
    if (device.sm != 90) return fmt::format("wgmma is Hopper's alone: needs sm_90, this GPU is sm_{}", device.sm);
    return options_.family.starts_with("portable") ? kLeftAside : "";
  }

  std::string lacks_portable() const { return options_.family == "hopper" ? kLeftAside : ""; }

  CudaEngineOptions options_;
  HopperAlgo forward_algo_;
  HopperBackwardAlgo backward_algo_;
};

}  // namespace

std::unique_ptr<dispatch::Engine> make_cuda_engine(const CudaEngineOptions& options) {
  return std::make_unique<CudaEngine>(options);
}

}  // namespace heed::cuda
