/// Bits do not depend on threads, runs or neighbours.

#include "conformance/conformance.hpp"

#include <thread>

namespace heed::conformance {
namespace {

CONFORMANCE(the_number_of_threads_shows_in_no_bit) {
  for (const Case& c : various_cases()) {
    const auto expected = run(c);
    for (const int threads : {1, 2, 3, 5}) {
      ThreadPool pool(threads);
      EXPECT_EQ(run(c, &pool), expected) << threads << " threads: " << c.to_command();
    }
  }
}

CONFORMANCE(museum_11_a_repeated_run_gives_the_same_bits) {
  for (const Case& c : various_cases()) {
    Buffers buffers(c);
    target().forward(buffers, buffers.args());
    const auto expected = buffers.output_bytes();
    for (std::int64_t n = 0; n < 20; n += sweep_step(5)) {
      buffers.clear_outputs();
      target().forward(buffers, buffers.args());
      ASSERT_EQ(buffers.output_bytes(), expected) << c.to_command();
    }
  }
}

CONFORMANCE(calls_from_many_threads_at_once_do_not_disturb_each_other) {
  const auto cases = various_cases();
  std::vector<std::vector<std::byte>> expected;
  for (const Case& c : cases) expected.push_back(run(c));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (std::size_t n = 0; n < cases.size(); ++n) {
        const std::size_t at = (n + t) % cases.size();
        wrong[t] += run(cases[at]) != expected[at] ? 1 : 0;
      }
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

CONFORMANCE(a_plan_runs_in_exactly_the_workspace_it_asks_for) {
  for (const Case& c : various_cases()) {
    const auto expected = run(c);
    const Buffers buffers(c);
    if (on_gpu()) {
      run_plan_twice_on_the_gpu(buffers);
      EXPECT_EQ(buffers.output_bytes(), expected) << c.to_command();
      continue;
    }
    const Plan plan = context().plan(Problem::of(buffers.args()), {.engine = GetParam().choice, .threads = 2});
    // Guard bytes behind the workspace, and garbage inside.
    constexpr std::size_t kGuard = 4096;
    std::vector<std::byte> memory(plan.workspace_bytes() + kGuard + 64, std::byte{0xA5});
    const std::size_t shift = 64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
    ThreadPool pool(2);
    plan.run(buffers.args(), std::span(memory).subspan(shift, plan.workspace_bytes()), &pool);
    EXPECT_EQ(buffers.output_bytes(), expected) << c.to_command();
    for (std::size_t at = shift + plan.workspace_bytes(); at < memory.size(); ++at)
      ASSERT_EQ(memory[at], std::byte{0xA5}) << c.to_command();
  }
}

}  // namespace
}  // namespace heed::conformance
