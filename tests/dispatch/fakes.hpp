#pragma once

#include <heed/plan.hpp>

#include "dispatch/context_impl.hpp"
#include "dispatch/engine.hpp"
#include "dispatch/forward_kernel.hpp"
#include "dispatch/registry.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// Engines and kernels that compute nothing, for tests of how they are chosen and called.
namespace heed::testing {

struct FakeSpec {
  std::string stem = "fwd_fake";
  dispatch::ForwardSignature signature = {.types = {DataType::f32}};
  dispatch::Arch arch = dispatch::CpuIsa::baseline;
  double seconds = 1e-3;
  std::string lacks = {};
  std::vector<Plan::Stage> stages = {{.kernel = "fwd_fake", .purpose = "main"}};
  std::function<void(const dispatch::ForwardCall&)> run = [](const dispatch::ForwardCall&) {};
  std::optional<std::span<std::byte>> own_workspace = {};
};

class FakeKernel final : public dispatch::ForwardKernel {
 public:
  explicit FakeKernel(const FakeSpec& spec)
      : ForwardKernel({.stem = spec.stem,
                       .signature = spec.signature,
                       .algorithm = {.arch = spec.arch, .tile_q = 64, .tile_k = 128, .notes = "computes nothing"}}),
        spec_(spec) {}

  double expected_seconds(const Problem&) const override { return spec_.seconds; }
  std::vector<Plan::Stage> stages(const Problem&, int) const override {
    ++plans_made;
    return spec_.stages;
  }
  void run(const dispatch::ForwardCall& call) const override {
    ++runs;
    spec_.run(call);
  }
  std::optional<std::span<std::byte>> own_workspace(const void*, void*, std::size_t) const override {
    return spec_.own_workspace;
  }

  mutable std::atomic<int> plans_made{0}, runs{0};

 private:
  FakeSpec spec_;
};

class FakeEngine final : public dispatch::Engine {
 public:
  explicit FakeEngine(const std::vector<FakeSpec>& specs, std::optional<std::string> unavailable = {},
                      dispatch::Registry::PlaceOf place_of = nullptr)
      : unavailable_(std::move(unavailable)), place_of_(place_of) {
    for (const FakeSpec& spec : specs) kernels_.emplace_back(std::make_shared<FakeKernel>(spec), spec.lacks);
  }

  dispatch::EngineKind kind() const override {
    return kernels_.empty() ? dispatch::EngineKind::cpu : kernels_[0].first->arch().engine();
  }
  std::optional<std::string> unavailable() const override { return unavailable_; }
  std::string arch_text() const override { return "nothing at all"; }
  void register_kernels(dispatch::Registry& registry) const override {
    for (const auto& [kernel, lacks] : kernels_) registry.add(kernel, lacks);
    if (place_of_ != nullptr) registry.add_place_finder(place_of_);
  }
  const FakeKernel& kernel(std::size_t i) const { return *kernels_.at(i).first; }

 private:
  std::vector<std::pair<std::shared_ptr<FakeKernel>, std::string>> kernels_;
  std::optional<std::string> unavailable_;
  dispatch::Registry::PlaceOf place_of_;
};

/// A context whose only engine is a fake one; there is no CUDA engine.
struct FakeContext {
  explicit FakeContext(const std::vector<FakeSpec>& specs, int threads = 2, bool log = false) {
    auto made = std::make_unique<FakeEngine>(specs);
    engine = made.get();
    dispatch::Engines engines;
    engines.present.push_back(std::move(made));
    engines.missing.push_back({dispatch::EngineKind::cuda, "this build has no CUDA engine"});
    context = std::make_shared<Context>(std::make_unique<Context::Impl>(std::move(engines), threads, log));
  }

  FakeEngine* engine;
  std::shared_ptr<Context> context;
};

/// Memory for a small f32 problem in batch mode, [b, s, h, d] each.
struct SmallProblem {
  static constexpr std::int64_t b = 2, s = 3, h = 4, d = 8;

  std::vector<float> q = std::vector<float>(b * s * h * d, 0.5F), k = q, v = q, o = q;

  ForwardArgs args() {
    return {.q = {q.data(), f32, {b, s, h, d}},
            .k = {k.data(), f32, {b, s, h, d}},
            .v = {v.data(), f32, {b, s, h, d}},
            .o = {o.data(), f32, {b, s, h, d}}};
  }
};

/// The Error that f() throws; a failed test when it throws none.
template <class F>
std::optional<Error> error_of(F&& f) {
  try {
    std::forward<F>(f)();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace heed::testing
