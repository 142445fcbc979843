// Group mode: sequences of their own lengths, packed one behind the other without padding, in one call.
#include "example.hpp"

using example::Floats;

int main() {
  constexpr std::int64_t h = 4, h_k = 2, d = 32;
  // Four sequences. The third has no query (its keys are not looked at), the last no key (its rows become 0).
  const std::vector<std::int32_t> s_q{37, 1, 0, 5}, s_k{37, 120, 20, 0};
  std::vector<std::int32_t> start_q{0}, start_k{0};  // [b + 1] row offsets, like cu_seqlens
  for (std::size_t n = 0; n < s_q.size(); ++n) {
    start_q.push_back(start_q.back() + s_q[n]);
    start_k.push_back(start_k.back() + s_k[n]);
  }
  const std::int64_t b = 4, total_q = start_q.back(), total_k = start_k.back();
  const Floats q = example::random_floats(total_q * h * d, 1), k = example::random_floats(total_k * h_k * d, 2),
               v = example::random_floats(total_k * h_k * d, 3);
  Floats o = example::unwritten(total_q * h * d), lse = example::unwritten(h * total_q);

  heed::forward({.q = {q.data(), heed::f32, {total_q, h, d}},  // three dimensions: the batch is in the offsets
                 .k = {k.data(), heed::f32, {total_k, h_k, d}},
                 .v = {v.data(), heed::f32, {total_k, h_k, d}},
                 .o = {o.data(), heed::f32, {total_q, h, d}},
                 .lse = {lse.data(), heed::f32, {h, total_q}},
                 .mask = heed::Mask::causal(),  // aligned to the end of each sequence on its own
                 .seqstart_q = {start_q.data(), heed::i32, {b + 1}},
                 .seqstart_k = {start_k.data(), heed::i32, {b + 1}}});

  // Each sequence on its own gives the same rows.
  example::Checks checks;
  for (std::size_t n = 0; n < s_q.size(); ++n) {
    Floats alone = example::unwritten(s_q[n] * h * d), lse_alone = example::unwritten(h * s_q[n]), packed_lse;
    heed::forward({.q = {q.data() + start_q[n] * h * d, heed::f32, {1, s_q[n], h, d}},
                   .k = {k.data() + start_k[n] * h_k * d, heed::f32, {1, s_k[n], h_k, d}},
                   .v = {v.data() + start_k[n] * h_k * d, heed::f32, {1, s_k[n], h_k, d}},
                   .o = {alone.data(), heed::f32, {1, s_q[n], h, d}},
                   .lse = {lse_alone.data(), heed::f32, {1, h, s_q[n]}},
                   .mask = heed::Mask::causal()});
    for (std::int64_t head = 0; head < h; ++head)
      packed_lse.insert(packed_lse.end(), lse.begin() + head * total_q + start_q[n],
                        lse.begin() + head * total_q + start_q[n + 1]);
    const std::string name = "sequence " + std::to_string(n) + " is as on its own";
    checks.expect_close(Floats(o.begin() + start_q[n] * h * d, o.begin() + start_q[n + 1] * h * d), alone, name);
    checks.expect_close(packed_lse, lse_alone, name + ", LSE");
  }
  const Floats last(o.end() - s_q[3] * h * d, o.end());
  checks.expect(example::difference(last, Floats(last.size(), 0.0F)) == 0, "a sequence without keys gives rows of 0");
  return checks.exit_code();
}
