// Masks: what each one shows, and that the computation follows it. With V = the identity matrix, a row of O is the
// row of weights itself: greater than 0 exactly where a key is visible.
#include "example.hpp"

using example::Floats;

namespace {

constexpr std::int64_t kDim = 8;

void check(const heed::Mask& mask, std::int64_t s_q, std::int64_t s_k, example::Checks& checks) {
  const Floats q = example::random_floats(s_q * kDim, 1), k = example::random_floats(s_k * kDim, 2);
  Floats v(static_cast<std::size_t>(s_k * s_k), 0.0F), o = example::unwritten(s_q * s_k), lse = example::unwritten(s_q);
  for (std::int64_t j = 0; j < s_k; ++j) v[static_cast<std::size_t>(j * s_k + j)] = 1;

  heed::forward({.q = {q.data(), heed::f32, {1, s_q, 1, kDim}},
                 .k = {k.data(), heed::f32, {1, s_k, 1, kDim}},
                 .v = {v.data(), heed::f32, {1, s_k, 1, s_k}},
                 .o = {o.data(), heed::f32, {1, s_q, 1, s_k}},
                 .lse = {lse.data(), heed::f32, {1, 1, s_q}},
                 .mask = mask});

  // A Mask knows no lengths; its bounds for a pair of lengths say who sees whom.
  const heed::MaskBounds bounds = mask.bounds(s_q, s_k);
  bool right = true;
  std::printf("\nmask %s, %d queries, %d keys\n", mask.to_string().c_str(), static_cast<int>(s_q),
              static_cast<int>(s_k));
  for (std::int64_t i = 0; i < s_q; ++i) {
    std::printf("  ");
    for (std::int64_t j = 0; j < s_k; ++j) {
      const bool visible = bounds.visible(i, j);
      std::putchar(visible ? '1' : '.');
      right = right && (o[static_cast<std::size_t>(i * s_k + j)] > 0) == visible;
    }
    // A row that sees nothing is not an error: O = 0 and LSE = -inf.
    const bool empty = bounds.count(i) == 0;
    std::puts(empty ? "   sees nothing" : "");
    right = right && (lse[static_cast<std::size_t>(i)] == -std::numeric_limits<float>::infinity()) == empty;
  }
  checks.expect(right, "the weights are greater than 0 exactly where the picture has a 1");
}

}  // namespace

int main() {
  example::Checks checks;
  // Causal comes in two alignments, which differ when s_q != s_k. Which one is meant is always said, never guessed.
  check(heed::Mask::causal(), 2, 5, checks);           // the last query sees every key (FlashAttention)
  check(heed::Mask::causal_top_left(), 2, 5, checks);  // the first query sees the first key (SDPA's is_causal)
  check(heed::Mask::causal(), 5, 2, checks);
  check(heed::Mask::causal_top_left(), 5, 2, checks);
  check(heed::Mask::window(2, 0), 6, 6, checks);     // two keys back, and the own one
  check(heed::Mask::window(2, 0, 1), 6, 6, checks);  // the same, but the first key stays visible
  check(heed::Mask::parse("t:1,1"), 5, 5, checks);   // any text that 'heed mask' draws
  return checks.exit_code();
}
