/// Bits do not depend on threads, runs or neighbours.

#include "conformance/conformance.hpp"

#include <thread>

namespace heed::conformance {
namespace {

/// Cases that take different ways through an engine.
std::vector<Case> various_cases() {
  std::vector<Case> cases;
  const auto add = [&](auto change) {
    Case c = small();
    change(c);
    cases.push_back(c);
  };
  add([](Case& c) { c.type = bf16, c.s_q = {150}, c.s_k = {150}, c.mask = Mask::causal(); });
  add([](Case& c) { c.s_q = {1}, c.s_k = {3000}, c.d = c.d_v = 32; });
  add([](Case& c) { c.type = bf16, c.s_q = {3}, c.s_k = {2500}, c.h = 8; });
  add([](Case& c) { c.s_q = {30}, c.s_k = {2100}, c.b = 1, c.h = 1, c.h_k = 1; });
  add([](Case& c) {
    c.type = f16, c.p_drop = 0.3, c.bias = BiasSpec{f32, {.query = true}}, c.alibi = Alibi::per_head;
  });
  add([](Case& c) {
    c.mode = Mode::group, c.b = 5, c.s_q = {1, 90, 0, 17, 64}, c.s_k = {1500, 90, 9, 0, 65};
    c.sink = SinkInit::normal, c.soft_cap = 10;
  });
  return cases;
}

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
    target().forward(buffers.args());
    const auto expected = buffers.output_bytes();
    for (std::int64_t n = 0; n < 20; n += sweep_step(5)) {
      buffers.clear_outputs();
      target().forward(buffers.args());
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
