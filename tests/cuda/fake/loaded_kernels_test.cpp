/// How long kernels stay on a GPU, on the fake of libcuda.cpp, which counts modules.

#include "cuda/device.hpp"
#include "cuda/engine_state.hpp"
#include "cuda/fake/waiting_gpus.hpp"
#include "cuda/hopper_backward.hpp"
#include "cuda/hopper_forward.hpp"
#include "cuda/jit_fixture.hpp"
#include "dispatch/context_impl.hpp"

#include <heed/plan.hpp>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace heed::cuda::test {
namespace {

int count_of(const char* function) {
  return reinterpret_cast<int (*)()>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), function))();
}
/// Since it was made.
struct Modules {
  int loaded() const { return count_of("fake_cuda_modules_loaded") - loaded_before; }
  int there() const { return count_of("fake_cuda_modules") - there_before; }
  const int loaded_before = count_of("fake_cuda_modules_loaded"), there_before = count_of("fake_cuda_modules");
};

/// An engine of the CUDA kernels with a compiler that takes no time.
class FakedCuda final : public dispatch::Engine {
 public:
  explicit FakedCuda(const Compiler& compiler) : compiler_(compiler) {}

  dispatch::EngineKind kind() const override { return dispatch::EngineKind::cuda; }
  std::optional<std::string> unavailable() const override { return std::nullopt; }
  std::string arch_text() const override { return "a fake"; }
  void register_kernels(dispatch::Registry& registry) const override {
    const auto state = std::make_shared<EngineState>(
        devices().at(0), JitOptions{.cache_folder = {}, .pack = {}, .headers = {}, .compiler = [&compiler = compiler_] {
                                      return &compiler;
                                    }});
    for (const HopperLine& line : hopper_lines()) registry.add(make_hopper_forward(line, state), "");
    for (const HopperBackwardLine& line : hopper_backward_lines()) registry.add(make_hopper_backward(line, state), "");
  }

 private:
  const Compiler& compiler_;
};

std::unique_ptr<Context> context_on(const Compiler& compiler) {
  dispatch::Engines engines;
  engines.present.push_back(std::make_unique<FakedCuda>(compiler));
  return std::make_unique<Context>(std::make_unique<Context::Impl>(std::move(engines), 1, false));
}

Problem forward_of(std::int64_t s) { return Problem::forward().type(bf16).lengths(s, s).head_dims(128, 128); }
Problem backward_of(std::int64_t s) { return Problem::backward().type(bf16).lengths(s, s).head_dims(128, 128); }

// A graph launches them when nobody has the plan any more.
TEST(LoadedKernels, stay_when_a_plan_goes_and_leave_with_the_last_that_could_launch_them) {
  const FakeCompiler compiler{};
  const Modules modules{};
  auto context = context_on(compiler);
  { const Plan plan = context->plan(forward_of(1024)); }
  // Out of the cache, too.
  constexpr auto kPlans = static_cast<std::int64_t>(Context::Impl::kPlans);
  std::optional<Plan> kept = context->plan(backward_of(1024));
  const int loaded = modules.loaded();
  for (std::int64_t s = 1; s <= kPlans; ++s) context->plan(backward_of(1024 + s), {.kernel = kept->kernel()});
  EXPECT_EQ(loaded, 1 + static_cast<int>(kept->stages().size()));
  EXPECT_EQ(modules.there(), modules.loaded());
  context.reset();
  EXPECT_EQ(modules.there(), modules.loaded());
  kept.reset();
  EXPECT_EQ(modules.there(), 0);
}

TEST(LoadedKernels, are_one_for_all_lengths) {
  const FakeCompiler compiler{};
  const Modules modules{};
  const auto context = context_on(compiler);
  const Plan a = context->plan(forward_of(4096)), b = context->plan(forward_of(5000)),
             c = context->plan(forward_of(8192).batch(3));
  EXPECT_EQ(a.kernel(), b.kernel());
  EXPECT_EQ(a.kernel(), c.kernel());
  EXPECT_EQ(modules.loaded(), 1);
  EXPECT_EQ(compiler.compiled, 1);
}

class EngineStateTest : public ::testing::Test {
 protected:
  static Compilation some_kernel() { return {{"example", "extern heed_kernel"}, "sm_90a", 1024}; }

  const FakeCompiler compiler{};
  const Modules modules{};
  EngineState state{devices().at(0),
                    {.cache_folder = {}, .pack = {}, .headers = {}, .compiler = [this] { return &compiler; }}};
};

TEST_F(EngineStateTest, loads_a_kernel_once_for_all_threads) {
  constexpr int kThreads = 4;
  std::barrier together(kThreads);
  std::vector<std::shared_ptr<const LoadedKernel>> kernels(kThreads);
  std::vector<std::thread> threads;
  for (auto& kernel : kernels)
    threads.emplace_back([&] {
      together.arrive_and_wait();
      kernel = state.load(some_kernel());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(modules.loaded(), 1);
  for (const auto& kernel : kernels) EXPECT_EQ(kernel, kernels[0]);
}

TEST_F(EngineStateTest, loads_a_kernel_once_for_each_gpu_that_launches_it) {
  const auto kernel = state.load(some_kernel());
  EXPECT_EQ(modules.loaded(), 1);
  for (int run = 0; run < 2; ++run)
    for (const int device : {0, 1}) {
      const DeviceGuard guard(device);
      EXPECT_NO_THROW(kernel->launch(device, 1, 32, nullptr, nullptr));
    }
  EXPECT_EQ(modules.loaded(), 2);
}

TEST_F(EngineStateTest, a_gpu_that_loads_a_kernel_does_not_hold_up_another_one) {
  const auto kernel = std::make_shared<LoadedKernel>("example", state.jit.get(some_kernel().source, "sm_90a"), 1024);
  const auto launch_on = [&](int device) {
    const DeviceGuard guard(device);
    kernel->launch(device, 1, 32, nullptr, nullptr);
  };
  EXPECT_TRUE(second_goes_on_while_the_driver_holds_first(
      "cuModuleLoadDataEx", [&] { launch_on(0); }, [&] { launch_on(1); }));
}

TEST_F(EngineStateTest, tells_kernels_apart_by_source_and_by_architecture) {
  const auto kernel = state.load(some_kernel());
  Compilation other_text = some_kernel(), other_arch = some_kernel();
  other_text.source.text += " ";
  other_arch.arch = "sm_90";
  EXPECT_NE(state.load(other_text), kernel);
  EXPECT_NE(state.load(other_arch), kernel);
  EXPECT_EQ(modules.loaded(), 3);
}

TEST_F(EngineStateTest, a_kernel_that_could_not_be_loaded_is_tried_again) {
  {
    const Environment none("FAKE_CUDA_NO_FUNCTION", "1");
    EXPECT_THROW(state.load(some_kernel()), Error);
  }
  EXPECT_EQ(modules.there(), 0);
  EXPECT_NE(state.load(some_kernel()), nullptr);
  EXPECT_EQ(modules.there(), 1);
}

}  // namespace
}  // namespace heed::cuda::test
