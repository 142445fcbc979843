// Grouped and multi-query attention: h query heads on h_k key/value heads, query head n reading key/value head
// n / (h / h_k). Nothing is repeated in memory.
#include "example.hpp"

using example::Floats;

int main() {
  constexpr std::int64_t b = 2, s = 50, h = 8, h_k = 2, d = 32;
  const Floats q = example::random_floats(b * s * h * d, 1), k = example::random_floats(b * s * h_k * d, 2),
               v = example::random_floats(b * s * h_k * d, 3);
  example::Checks checks;

  // The head counts are in the shapes; there is no option to set.
  Floats o = example::unwritten(b * s * h * d);
  heed::ForwardArgs args{.q = {q.data(), heed::f32, {b, s, h, d}},
                         .k = {k.data(), heed::f32, {b, s, h_k, d}},
                         .v = {v.data(), heed::f32, {b, s, h_k, d}},
                         .o = {o.data(), heed::f32, {b, s, h, d}},
                         .mask = heed::Mask::causal()};
  heed::forward(args);

  // The same by hand: repeat each key/value head for its group of query heads.
  const auto repeated = [](const Floats& x) {
    Floats result;
    for (std::int64_t row = 0; row < b * s; ++row)
      for (std::int64_t head = 0; head < h; ++head) {
        const auto from = x.begin() + (row * h_k + head / (h / h_k)) * d;
        result.insert(result.end(), from, from + d);
      }
    return result;
  };
  const Floats k_all = repeated(k), v_all = repeated(v);
  Floats o_all = example::unwritten(b * s * h * d);
  heed::ForwardArgs all_heads = args;
  all_heads.k = {k_all.data(), heed::f32, {b, s, h, d}};
  all_heads.v = {v_all.data(), heed::f32, {b, s, h, d}};
  all_heads.o = {o_all.data(), heed::f32, {b, s, h, d}};
  heed::forward(all_heads);
  checks.expect_close(o, o_all, "8 query heads on 2 key/value heads = each of them repeated 4 times");

  // A stride of 0 repeats without memory too: one prompt's keys for every entry of the batch.
  Floats o_shared = example::unwritten(b * s * h * d);
  heed::ForwardArgs shared = args;
  shared.k = {k.data(), heed::f32, {b, s, h_k, d}, {0, h_k * d, d, 1}};
  shared.v = {v.data(), heed::f32, {b, s, h_k, d}, {0, h_k * d, d, 1}};
  shared.o = {o_shared.data(), heed::f32, {b, s, h, d}};
  heed::forward(shared);
  const auto first_entry = [](const Floats& x) { return Floats(x.begin(), x.begin() + s * h * d); };
  checks.expect_close(first_entry(o_shared), first_entry(o), "a batch stride of 0: the first entry is as before");
  checks.expect(example::difference(o_shared, o) > 0.1, "and the second now reads the first one's keys");

  // What cannot be shared is refused before anything is written, with what would work.
  try {
    shared.k = shared.v = {k.data(), heed::f32, {b, 1, 3, d}};
    heed::forward(shared);
    checks.expect(false, "8 query heads on 3 key/value heads are refused");
  } catch (const heed::Error& error) {
    checks.expect(error.code() == heed::ErrorCode::invalid_argument, error.what());
  }
  return checks.exit_code();
}
