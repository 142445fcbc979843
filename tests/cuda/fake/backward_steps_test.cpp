/// Threads that put their steps on one stream, on the fake of libcuda.cpp.

#include "cuda/backward_kernel.hpp"
#include "cuda/device.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace heed::cuda::test {
namespace {

/// Takes its time between a first and a last step, and sees whether somebody else comes between them.
class SlowSteps final : public CudaBackwardKernel {
 public:
  explicit SlowSteps(std::shared_ptr<EngineState> state)
      : CudaBackwardKernel({.stem = "slow", .signature = {}, .algorithm = {}}, std::move(state)) {}

  double expected_seconds(const Problem&) const override { return 1; }
  std::vector<Step> steps(const Problem&, const Device&) const override { return {}; }

  mutable std::atomic<int> at_work = 0, runs = 0, interrupted = 0;

 private:
  BackwardWorkspace workspace(const Problem&) const override { return {}; }
  void launch(const dispatch::BackwardCall&, const Compiled&, int) const override {
    const int others = at_work++;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (others > 0 || at_work > 1) ++interrupted;
    --at_work;
    ++runs;
  }
};

/// A launch on stream 1 waits until there is one on stream 2, as where the queue of a GPU is full until another one has
/// begun what its work waits for.
class WaitingSteps final : public CudaBackwardKernel {
 public:
  explicit WaitingSteps(std::shared_ptr<EngineState> state)
      : CudaBackwardKernel({.stem = "waiting", .signature = {}, .algorithm = {}}, std::move(state)) {}

  double expected_seconds(const Problem&) const override { return 1; }
  std::vector<Step> steps(const Problem&, const Device&) const override { return {}; }

  static void* stream(std::uintptr_t number) { return reinterpret_cast<void*>(16 * number); }
  mutable std::promise<void> on_the_first, on_the_second;
  mutable std::atomic<bool> in_time = false;

 private:
  BackwardWorkspace workspace(const Problem&) const override { return {}; }
  void launch(const dispatch::BackwardCall& call, const Compiled&, int) const override {
    if (call.stream == stream(2)) return on_the_second.set_value();
    on_the_first.set_value();
    in_time = on_the_second.get_future().wait_for(std::chrono::seconds(5)) == std::future_status::ready;
  }
};

TEST(BackwardSteps, on_one_stream_do_not_hold_up_those_on_another) {
  const auto state = std::make_shared<EngineState>(devices().at(0), JitOptions{});
  const WaitingSteps kernel(state);
  const Problem problem = Problem::backward();
  const auto prepared = kernel.prepare(problem, 1);
  const BackwardArgs args;
  const auto run_on = [&](std::uintptr_t stream) {
    SerialExecutor executor;
    kernel.run({.problem = problem,
                .args = args,
                .workspace = {},
                .executor = executor,
                .threads = 1,
                .prepared = prepared.get(),
                .stream = WaitingSteps::stream(stream)});
  };
  std::thread first([&] { run_on(1); });
  kernel.on_the_first.get_future().wait();
  run_on(2);
  first.join();
  EXPECT_TRUE(kernel.in_time);
}

TEST(BackwardSteps, of_one_run_are_not_interrupted_by_another_thread) {
  const auto state = std::make_shared<EngineState>(devices().at(0), JitOptions{});
  const SlowSteps kernel(state);
  const Problem problem = Problem::backward();
  const auto prepared = kernel.prepare(problem, 1);
  const BackwardArgs args;
  constexpr int kThreads = 4, kRuns = 10;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      SerialExecutor executor;
      for (int run = 0; run < kRuns; ++run)
        kernel.run({.problem = problem,
                    .args = args,
                    .workspace = {},
                    .executor = executor,
                    .threads = 1,
                    .prepared = prepared.get()});
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(kernel.runs, kThreads * kRuns);
  EXPECT_EQ(kernel.interrupted, 0);
}

}  // namespace
}  // namespace heed::cuda::test
