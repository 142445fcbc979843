// One visible key: every row of the result is that key's row of v.
#include <heed/heed.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  const std::int64_t b = 1, s_q = 3, s_k = 1, h = 2, d = 4;
  const std::vector<float> q(b * s_q * h * d, 0.5f), k(b * s_k * h * d, 2.0f);
  std::vector<float> v(b * s_k * h * d), o(b * s_q * h * d, -1.0f);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i);

  heed::forward({.q = {q.data(), heed::f32, {b, s_q, h, d}},
                 .k = {k.data(), heed::f32, {b, s_k, h, d}},
                 .v = {v.data(), heed::f32, {b, s_k, h, d}},
                 .o = {o.data(), heed::f32, {b, s_q, h, d}}});
  for (std::size_t i = 0; i < o.size(); ++i) {
    const float wanted = v[i % v.size()];
    if (!(std::abs(o[i] - wanted) <= 1e-5f)) return std::printf("o[%zu] is %g, wanted %g\n", i, o[i], wanted), 1;
  }

  // An error thrown inside the library is caught outside it by its type.
  try {
    heed::forward({.q = {q.data(), heed::f32, {b, s_q, 3, d}},
                   .k = {k.data(), heed::f32, {b, s_k, 2, d}},
                   .v = {v.data(), heed::f32, {b, s_k, 2, d}},
                   .o = {o.data(), heed::f32, {b, s_q, 3, d}}});
    return std::puts("3 query heads over 2 key heads were accepted"), 1;
  } catch (const heed::Error& error) {
    if (error.code() != heed::ErrorCode::invalid_argument) return std::puts(error.what()), 1;
  }
  std::puts("heed " HEED_VERSION_STRING " from C++: right");
}
