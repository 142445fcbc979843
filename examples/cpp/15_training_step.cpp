// Gradient descent through attention: keys and values are learned until the output is what it should be. A plan is made
// once for each pass and run in memory of the program's own, without allocation.
#include "example.hpp"

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

using example::Floats;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

int main() {
  constexpr std::int64_t b = 2, s_q = 16, s_k = 16, h = 2, d = 8, queries = b * s_q * h * d, keys = b * s_k * h * d;
  const Floats q = example::random_floats(queries, 1), target = example::random_floats(queries, 2);
  Floats k = example::random_floats(keys, 3), v = example::random_floats(keys, 4);
  Floats o(queries), lse(b * h * s_q), d_o(queries), dq(queries), dk(keys), dv(keys);
  const heed::ForwardArgs forward{.q = {q.data(), heed::f32, {b, s_q, h, d}},
                                  .k = {k.data(), heed::f32, {b, s_k, h, d}},
                                  .v = {v.data(), heed::f32, {b, s_k, h, d}},
                                  .o = {o.data(), heed::f32, {b, s_q, h, d}},
                                  .lse = {lse.data(), heed::f32, {b, h, s_q}}};
  const heed::BackwardArgs backward{.forward = forward,
                                    .d_o = {d_o.data(), heed::f32, {b, s_q, h, d}},
                                    .dq = {dq.data(), heed::f32, {b, s_q, h, d}},
                                    .dk = {dk.data(), heed::f32, {b, s_k, h, d}},
                                    .dv = {dv.data(), heed::f32, {b, s_k, h, d}},
                                    .deterministic = true};
  const heed::Plan forward_plan = heed::plan(heed::Problem::of(forward));
  const heed::Plan backward_plan = heed::plan(heed::Problem::of(backward));
  const std::size_t bytes = std::max(forward_plan.workspace_bytes(), backward_plan.workspace_bytes());
  const std::unique_ptr<std::byte, Free> memory(
      static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)));
  const std::span workspace(memory.get(), bytes);

  // loss = mean((o - target)^2)
  const auto step = [&] {
    forward_plan.run(forward, workspace);
    double loss = 0;
    for (std::size_t i = 0; i < o.size(); ++i) {
      const float error = o[i] - target[i];
      loss += static_cast<double>(error) * static_cast<double>(error) / static_cast<double>(queries);
      d_o[i] = 2 * error / static_cast<float>(queries);
    }
    backward_plan.run(backward, workspace);
    constexpr float kRate = 20;
    for (std::size_t i = 0; i < k.size(); ++i) {
      k[i] -= kRate * dk[i];
      v[i] -= kRate * dv[i];
    }
    return loss;
  };
  const double before = step();
  double loss = before;
  bool falls = true;
  for (int n = 0; n < 10; ++n) {
    double next = 0;
    for (int i = 0; i < 50; ++i) next = step();
    falls = falls && next < loss;
    loss = next;
  }
  std::printf("loss %.3f -> %.3f in 500 steps, %s\n", before, loss, backward_plan.kernel().c_str());
  example::Checks checks;
  checks.expect(falls, "the loss falls all the way");
  checks.expect(loss < before / 3, "and far");
  return checks.exit_code();
}
