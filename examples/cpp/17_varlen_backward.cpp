// Gradients of packed sequences are those of each sequence on its own.
#include "example.hpp"

using example::Floats;

int main() {
  constexpr std::int64_t h = 2, d = 16, b = 3;
  const std::vector<std::int32_t> starts{0, 30, 31, 95};  // lengths 30, 1 and 64, one behind the other
  const std::int64_t total = starts.back();
  const Floats q = example::random_floats(total * h * d, 1), k = example::random_floats(total * h * d, 2),
               v = example::random_floats(total * h * d, 3), d_o = example::random_floats(total * h * d, 4);
  Floats o = example::unwritten(total * h * d), lse = example::unwritten(h * total);
  const heed::ForwardArgs packed{.q = {q.data(), heed::f32, {total, h, d}},
                                 .k = {k.data(), heed::f32, {total, h, d}},
                                 .v = {v.data(), heed::f32, {total, h, d}},
                                 .o = {o.data(), heed::f32, {total, h, d}},
                                 .lse = {lse.data(), heed::f32, {h, total}},
                                 .mask = heed::Mask::causal(),
                                 .seqstart_q = {starts.data(), heed::i32, {b + 1}},
                                 .seqstart_k = {starts.data(), heed::i32, {b + 1}}};
  heed::forward(packed);
  Floats dq = example::unwritten(total * h * d), dk = dq, dv = dq;
  heed::backward({.forward = packed,
                  .d_o = {d_o.data(), heed::f32, {total, h, d}},
                  .dq = {dq.data(), heed::f32, {total, h, d}},
                  .dk = {dk.data(), heed::f32, {total, h, d}},
                  .dv = {dv.data(), heed::f32, {total, h, d}}});

  // Each sequence alone: views into the same memory, a batch of one.
  Floats dq_alone = example::unwritten(total * h * d), dk_alone = dq_alone, dv_alone = dq_alone;
  for (std::size_t n = 0; n < b; ++n) {
    const std::int64_t first = starts[n], s = starts[n + 1] - first, at = first * h * d;
    Floats o_alone = example::unwritten(s * h * d), lse_alone = example::unwritten(h * s);
    const heed::ForwardArgs alone{.q = {q.data() + at, heed::f32, {1, s, h, d}},
                                  .k = {k.data() + at, heed::f32, {1, s, h, d}},
                                  .v = {v.data() + at, heed::f32, {1, s, h, d}},
                                  .o = {o_alone.data(), heed::f32, {1, s, h, d}},
                                  .lse = {lse_alone.data(), heed::f32, {1, h, s}},
                                  .mask = heed::Mask::causal()};
    heed::forward(alone);
    heed::backward({.forward = alone,
                    .d_o = {d_o.data() + at, heed::f32, {1, s, h, d}},
                    .dq = {dq_alone.data() + at, heed::f32, {1, s, h, d}},
                    .dk = {dk_alone.data() + at, heed::f32, {1, s, h, d}},
                    .dv = {dv_alone.data() + at, heed::f32, {1, s, h, d}}});
  }
  example::Checks checks;
  checks.expect_close(dq, dq_alone, "dQ of packed sequences is that of each on its own");
  checks.expect_close(dk, dk_alone, "dK, too");
  checks.expect_close(dv, dv_alone, "and dV");
  return checks.exit_code();
}
