// Causal attention in one call, checked against the formula written as loops.
#include "example.hpp"

using example::Floats;

namespace {

constexpr std::int64_t b = 1, s = 256, h = 8, h_k = 2, d = 64;  // 8 query heads share 2 key/value heads

// Where the row of one token and head begins in a dense [b, s, heads, d].
std::size_t at(std::int64_t batch, std::int64_t token, std::int64_t head, std::int64_t heads) {
  return static_cast<std::size_t>(((batch * s + token) * heads + head) * d);
}

// O = softmax(Q K^T / sqrt(d)) V, where query i sees the keys 0..i.
Floats by_hand(const Floats& q, const Floats& k, const Floats& v) {
  Floats o(q.size());
  for (std::int64_t batch = 0; batch < b; ++batch)
    for (std::int64_t head = 0; head < h; ++head)
      for (std::int64_t i = 0; i < s; ++i) {
        const std::size_t row = at(batch, i, head, h);
        std::vector<double> sum(d, 0.0);
        double weights = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          const std::size_t key = at(batch, j, head / (h / h_k), h_k);
          double score = 0;
          for (std::size_t e = 0; e < d; ++e) score += double{q[row + e]} * k[key + e];
          const double weight = std::exp(score / std::sqrt(double{d}));
          weights += weight;
          for (std::size_t e = 0; e < d; ++e) sum[e] += weight * v[key + e];
        }
        for (std::size_t e = 0; e < d; ++e) o[row + e] = static_cast<float>(sum[e] / weights);
      }
  return o;
}

}  // namespace

int main() {
  const Floats q = example::random_floats(b * s * h * d, 1), k = example::random_floats(b * s * h_k * d, 2),
               v = example::random_floats(b * s * h_k * d, 3);
  Floats o = example::unwritten(b * s * h * d);

  // Views over memory you own, [batch, sequence, head, dim]; dense strides are implied, and the rest has defaults.
  heed::forward({.q = {q.data(), heed::f32, {b, s, h, d}},
                 .k = {k.data(), heed::f32, {b, s, h_k, d}},
                 .v = {v.data(), heed::f32, {b, s, h_k, d}},
                 .o = {o.data(), heed::f32, {b, s, h, d}},
                 .mask = heed::Mask::causal()});

  example::Checks checks;
  checks.expect_close(o, by_hand(q, k, v), "causal attention is what the formula says");
  return checks.exit_code();
}
