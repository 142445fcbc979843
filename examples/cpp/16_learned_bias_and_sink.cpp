// Gradients of what many rows share: a relative-position bias, a sink logit per head, ALiBi slopes. Each is summed over
// everything that uses it, and is the same in every run.
#include "example.hpp"

using example::Floats;

int main() {
  constexpr std::int64_t b = 2, s = 20, h = 3, d = 8;
  const Floats q = example::random_floats(b * s * h * d, 1), k = example::random_floats(b * s * h * d, 2),
               v = example::random_floats(b * s * h * d, 3), d_o = example::random_floats(b * s * h * d, 4);
  const Floats bias = example::random_floats(h * s * s, 5), sink{0.5F, -1.0F, 2.0F}, slopes{0.5F, 0.25F, 0.125F};
  Floats o = example::unwritten(b * s * h * d), lse = example::unwritten(b * h * s);
  const heed::ForwardArgs forward{.q = {q.data(), heed::f32, {b, s, h, d}},
                                  .k = {k.data(), heed::f32, {b, s, h, d}},
                                  .v = {v.data(), heed::f32, {b, s, h, d}},
                                  .o = {o.data(), heed::f32, {b, s, h, d}},
                                  .lse = {lse.data(), heed::f32, {b, h, s}},
                                  .bias = {bias.data(), heed::f32, {h, s, s}},  // shared by the batch
                                  .alibi_slopes = {slopes.data(), heed::f32, {h}},
                                  .sink = {sink.data(), heed::f32, {h}}};
  heed::forward(forward);

  Floats dq = example::unwritten(b * s * h * d), dk = dq, dv = dq, dbias = example::unwritten(h * s * s),
         dsink = example::unwritten(h), dslopes = example::unwritten(h);
  heed::backward({.forward = forward,
                  .d_o = {d_o.data(), heed::f32, {b, s, h, d}},
                  .dq = {dq.data(), heed::f32, {b, s, h, d}},
                  .dk = {dk.data(), heed::f32, {b, s, h, d}},
                  .dv = {dv.data(), heed::f32, {b, s, h, d}},
                  .dbias = {dbias.data(), heed::f32, {h, s, s}},  // the sizes of the bias: summed over the batch
                  .dsink = {dsink.data(), heed::f32, {h}},
                  .dslopes = {dslopes.data(), heed::f32, {h}}});
  example::Checks checks;

  // A softmax gives away what it takes: over the keys and the sink of all rows of a head, the gradients add up to 0.
  for (std::size_t head = 0; head < h; ++head) {
    double sum = static_cast<double>(dsink[head]);
    for (std::size_t n = 0; n < s * s; ++n) sum += static_cast<double>(dbias[head * s * s + n]);
    checks.expect(std::abs(sum) < 1e-4, "head " + std::to_string(head) + ": dBias and dSink add up to nothing");
  }

  // ALiBi is the bias -slope * distance, so its gradient is what the bias's says.
  for (std::size_t head = 0; head < h; ++head) {
    double wanted = 0;
    for (std::int64_t i = 0; i < s; ++i)
      for (std::int64_t j = 0; j < s; ++j)
        wanted -= static_cast<double>(dbias[head * s * s + static_cast<std::size_t>(i * s + j)]) *
                  static_cast<double>(std::abs(i - j));
    checks.expect(std::abs(wanted - static_cast<double>(dslopes[head])) < 1e-4 * (1 + std::abs(wanted)),
                  "head " + std::to_string(head) + ": dSlope follows from dBias");
  }
  return checks.exit_code();
}
