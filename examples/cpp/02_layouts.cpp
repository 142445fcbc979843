// One problem, four memory layouts: heed reads them by strides, and copies nothing.
#include "example.hpp"

using example::Floats;

int main() {
  constexpr std::int64_t b = 2, s = 40, h = 3, d = 32, count = b * s * h * d;
  const Floats q = example::random_floats(count, 1), k = example::random_floats(count, 2),
               v = example::random_floats(count, 3);
  example::Checks checks;

  // [b, s, h, d], as written: dense strides are implied.
  Floats o = example::unwritten(count);
  heed::forward({.q = {q.data(), heed::f32, {b, s, h, d}},
                 .k = {k.data(), heed::f32, {b, s, h, d}},
                 .v = {v.data(), heed::f32, {b, s, h, d}},
                 .o = {o.data(), heed::f32, {b, s, h, d}}});

  // Calls f(index in [b, s, h, d], batch, row, head, column) for every element.
  const auto each = [](auto f) {
    for (std::int64_t i = 0; i < count; ++i)
      f(static_cast<std::size_t>(i), i / (s * h * d), i / (h * d) % s, i / d % h, i % d);
  };

  // [b, h, s, d], PyTorch's layout. The view still counts (batch, sequence, head, dim); only the strides differ.
  Floats q2(count), k2(count), v2(count), o2 = example::unwritten(count), o2_as_bshd(count);
  const auto bhsd = [](auto batch, auto row, auto head, auto e) {
    return static_cast<std::size_t>(((batch * h + head) * s + row) * d + e);
  };
  each([&](auto i, auto... at) { q2[bhsd(at...)] = q[i], k2[bhsd(at...)] = k[i], v2[bhsd(at...)] = v[i]; });
  heed::forward({.q = heed::TensorView::bhsd(q2.data(), heed::f32, b, h, s, d),
                 .k = heed::TensorView::bhsd(k2.data(), heed::f32, b, h, s, d),
                 .v = heed::TensorView::bhsd(v2.data(), heed::f32, b, h, s, d),
                 .o = heed::OutputView::bhsd(o2.data(), heed::f32, b, h, s, d)});
  each([&](auto i, auto... at) { o2_as_bshd[i] = o2[bhsd(at...)]; });
  checks.expect_close(o2_as_bshd, o, "[b, h, s, d] gives the same");

  // One buffer [b, s, 3, h, d] that holds q, k and v, as a fused projection leaves them. All three views have the same
  // strides, and start h * d elements apart.
  Floats qkv(3 * count), o3 = example::unwritten(count);
  const auto packed = [](std::int64_t which, auto batch, auto row, auto head, auto e) {
    return static_cast<std::size_t>((((batch * s + row) * 3 + which) * h + head) * d + e);
  };
  each([&](auto i, auto... at) {
    qkv[packed(0, at...)] = q[i], qkv[packed(1, at...)] = k[i], qkv[packed(2, at...)] = v[i];
  });
  const auto part = [&](std::int64_t which) {
    return heed::TensorView{qkv.data() + which * h * d, heed::f32, {b, s, h, d}, {s * 3 * h * d, 3 * h * d, d, 1}};
  };
  heed::forward({.q = part(0), .k = part(1), .v = part(2), .o = {o3.data(), heed::f32, {b, s, h, d}}});
  checks.expect_close(o3, o, "q, k, v packed as [b, s, 3, h, d] give the same");

  // V column-major, [b, h, d, s]: the sequence may be innermost in V.
  Floats v4(count), o4 = example::unwritten(count);
  each([&](auto i, auto batch, auto row, auto head, auto e) {
    v4[static_cast<std::size_t>(((batch * h + head) * d + e) * s + row)] = v[i];
  });
  heed::forward({.q = {q.data(), heed::f32, {b, s, h, d}},
                 .k = {k.data(), heed::f32, {b, s, h, d}},
                 .v = {v4.data(), heed::f32, {b, s, h, d}, {h * d * s, 1, d * s, s}},
                 .o = {o4.data(), heed::f32, {b, s, h, d}}});
  checks.expect_close(o4, o, "column-major V gives the same");
  return checks.exit_code();
}
