/// The bits and the memory of gradients: neither depends on runs, threads or neighbours.

#include "conformance/backward.hpp"
#include "test_scale.hpp"

#include <optional>
#include <span>
#include <utility>

namespace heed::conformance {
namespace {

// Wherever dQ is added up, it begins at zero in every run, and fits the workspace: rows of a sequence begin at whole
// blocks there.
BACKWARD(a_plan_runs_twice_in_one_workspace_without_an_order_of_sums) {
  if (!on_gpu()) return;
  Case packed = small_backward();
  packed.type = bf16, packed.mask = Mask::causal(), packed.d = packed.d_v = 64;
  packed.mode = Mode::group, packed.b = 5, packed.s_q = {1, 90, 0, 17, 64}, packed.s_k = {150, 90, 9, 0, 300};
  Case batch = packed;
  batch.mode = Mode::batch, batch.b = 3, batch.s_q = {65}, batch.s_k = {300};
  for (const Case& c : {packed, batch}) {
    const Buffers buffers(c);
    run_plan_twice_on_the_gpu(buffers);
    const verify::Verdict verdict = verify::judge(buffers, {.executor = &context().executor()});
    EXPECT_TRUE(verdict.valid()) << verdict.to_string() << "\n  " << c.to_command();
  }
}

/// Every way through the kernels that add up in memory: widths, masks, heads that share keys, and sums over them.
std::vector<Case> deterministic_cases() {
  std::vector<Case> cases;
  for (const std::int64_t d : {64, 128, 192, 256})
    for (const Mask& mask : {Mask::causal(), Mask::window(150, 20)})
      for (const auto& [h, h_k] : {std::pair{4, 2}, std::pair{8, 1}}) {
        if (h_k == 1 && mask != Mask::causal()) continue;
        Case c = small_backward();
        c.type = bf16, c.mask = mask;
        c.b = h_k == 1 ? 1 : 2, c.h = h, c.h_k = h_k;
        c.s_q = {100}, c.s_k = {210}, c.d = c.d_v = d;
        c.bias = BiasSpec{f32, {.query = true}}, c.dbias = f32;
        c.sink = SinkInit::normal, c.dsink = true;
        cases.push_back(c);
      }
  return cases;
}

BACKWARD(a_deterministic_run_gives_the_same_bits_every_time) {
  const auto check = [&](Case c, std::int64_t runs) {
    c.deterministic = true;
    Buffers buffers(c);
    target().backward(buffers, buffers.backward_args());
    const auto expected = buffers.output_bytes();
    for (std::int64_t n = 0; n < runs; ++n) {
      buffers.clear_outputs();
      target().backward(buffers, buffers.backward_args());
      ASSERT_EQ(buffers.output_bytes(), expected) << "run " << n << ": " << c.to_command();
    }
  };
  for (const Case& c : various_backward_cases()) check(c, test_repeats(small_scale() ? 3 : 30));
  for (const Case& c : deterministic_cases()) {
    if ((small_scale() || GetParam().emulated) && c.d > 64) continue;
    check(c, test_repeats(4));
  }
}

BACKWARD(the_number_of_threads_shows_in_no_bit_of_a_gradient) {
  for (Case c : various_backward_cases()) {
    c.deterministic = true;
    const auto expected = gradients(c);
    for (const int threads : {1, 2, 3, 5, 16}) {
      ThreadPool pool(threads);
      EXPECT_EQ(gradients(c, &pool), expected) << threads << " threads: " << c.to_command();
    }
  }
}

BACKWARD(a_plan_runs_in_exactly_the_workspace_it_asks_for) {
  for (Case c : various_backward_cases()) {
    c.deterministic = true;
    const auto expected = gradients(c);
    const Buffers buffers(c);
    if (on_gpu()) {
      run_plan_twice_on_the_gpu(buffers);
      EXPECT_EQ(buffers.output_bytes(), expected) << c.to_command();
      continue;
    }
    const Plan plan = context().plan(Problem::of(buffers.backward_args()), {.engine = GetParam().choice, .threads = 2});
    constexpr std::size_t kGuard = 4096;
    std::vector<std::byte> memory(plan.workspace_bytes() + kGuard + 64, std::byte{0xA5});
    const std::size_t shift = 64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
    const auto workspace = std::span(memory).subspan(shift, plan.workspace_bytes());
    ThreadPool pool(2);
    plan.run(buffers.backward_args(), workspace, &pool);
    EXPECT_EQ(buffers.output_bytes(), expected) << c.to_command();
    for (std::size_t at = shift + plan.workspace_bytes(); at < memory.size(); ++at)
      ASSERT_EQ(memory[at], std::byte{0xA5}) << c.to_command();
    EXPECT_THROW(plan.run(buffers.args(), workspace, &pool), Error);
  }
}

BACKWARD(memory_of_a_plan_does_not_grow_with_the_square_of_the_length) {
  const auto bytes = [&](std::int64_t s, std::optional<Broadcast> bias) {
    Problem problem = Problem::backward().type(bf16).batch(2).heads(4).lengths(s, s).head_dims(64).deterministic(true);
    if (bias) problem.bias(BiasSpec{bf16, *bias}).dbias(bf16).alibi(Alibi::per_head).dslopes(true);
    if (context().explain(problem, {.engine = GetParam().choice}).chosen() == nullptr) problem.deterministic(false);
    return context().plan(problem, {.engine = GetParam().choice, .threads = 2}).workspace_bytes();
  };
  std::vector<std::optional<Broadcast>> shapes{std::nullopt};
  for (int own = 0; own < 8; ++own)
    shapes.push_back(Broadcast{.batch = (own & 1) != 0, .head = (own & 2) != 0, .query = (own & 4) != 0});
  shapes.push_back(Broadcast{.query = true, .key = false});
  for (const auto& shape : shapes)
    EXPECT_LT(static_cast<double>(bytes(65536, shape)), 4.5 * static_cast<double>(bytes(16384, shape)) + 1e6);
}

}  // namespace
}  // namespace heed::conformance
