// An additive bias, with the dimensions it has and no others; and ALiBi, which is a bias that needs no memory.
#include "example.hpp"

using example::Floats;

int main() {
  constexpr std::int64_t b = 2, h = 4, s_q = 20, s_k = 60, d = 32;
  const Floats q = example::random_floats(b * s_q * h * d, 1), k = example::random_floats(b * s_k * h * d, 2),
               v = example::random_floats(b * s_k * h * d, 3);
  const auto run = [&](const auto& add_features) {
    Floats o = example::unwritten(b * s_q * h * d);
    heed::ForwardArgs args{.q = {q.data(), heed::f32, {b, s_q, h, d}},
                           .k = {k.data(), heed::f32, {b, s_k, h, d}},
                           .v = {v.data(), heed::f32, {b, s_k, h, d}},
                           .o = {o.data(), heed::f32, {b, s_q, h, d}},
                           .mask = heed::Mask::causal()};
    add_features(args);
    heed::forward(args);
    return o;
  };
  example::Checks checks;

  // ALiBi: each head loses slope * distance from the diagonal, which ends at the last query and the last key.
  const Floats slopes{0.5F, 0.25F, 0.125F, 0.0625F};
  const Floats with_alibi = run([&](auto& args) { args.alibi_slopes = {slopes.data(), heed::f32, {h}}; });

  // The same as a bias [h, s_q, s_k]: sizes are aligned from the right, and missing ones (here the batch) broadcast.
  Floats bias(h * s_q * s_k);
  for (std::int64_t n = 0; n < h * s_q * s_k; ++n) {
    const std::int64_t head = n / (s_q * s_k), i = n / s_k % s_q, j = n % s_k;
    bias[static_cast<std::size_t>(n)] =
        -slopes[static_cast<std::size_t>(head)] * static_cast<float>(std::abs(i + s_k - s_q - j));
  }
  const Floats with_bias = run([&](auto& args) { args.bias = {bias.data(), heed::f32, {h, s_q, s_k}}; });
  checks.expect_close(with_alibi, with_bias, "ALiBi is the bias -slope * |i + s_k - s_q - j|");

  // One number per key is enough to hide keys: a bias of -inf is a true -inf, so a hidden key has no weight at all.
  Floats padding(s_k, 0.0F);
  for (std::size_t j = 0; j < 10; ++j) padding[j] = -std::numeric_limits<float>::infinity();
  const Floats hidden_by_bias = run([&](auto& args) { args.bias = {padding.data(), heed::f32, {s_k}}; });
  std::vector<std::uint8_t> keep(s_k, 1);
  std::fill_n(keep.begin(), 10, std::uint8_t{0});
  const Floats hidden_by_mask = run([&](auto& args) { args.bool_mask = {keep.data(), heed::u8, {s_k}}; });
  checks.expect_close(hidden_by_bias, hidden_by_mask, "a bias of -inf hides as a boolean mask does");
  checks.expect(example::difference(hidden_by_mask, run([](auto&) {})) > 0.01, "and both are seen in the result");
  return checks.exit_code();
}
