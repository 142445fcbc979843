// How to judge a result: heed's oracle computes the contract in fp64, and a plain computation in the same precision
// says how far from it an honest one may be. This is how heed judges itself.
#include "example.hpp"

#include <bit>

namespace {

using Bf16 = std::uint16_t;

// To the nearest, ties to even; the inputs here are finite.
Bf16 to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<Bf16>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
float from_bf16(Bf16 x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

std::vector<Bf16> random_bf16(std::int64_t count, unsigned seed) {
  std::vector<Bf16> values;
  for (const float x : example::random_floats(count, seed)) values.push_back(to_bf16(x));
  return values;
}

}  // namespace

int main() {
  constexpr std::int64_t b = 1, s = 300, h = 4, h_k = 1, d = 64, count = b * s * h * d;
  const auto q = random_bf16(count, 1), k = random_bf16(b * s * h_k * d, 2), v = random_bf16(b * s * h_k * d, 3);
  std::vector<Bf16> o(count), plain(count);
  std::vector<double> exact(count);
  heed::ForwardArgs args{.q = {q.data(), heed::bf16, {b, s, h, d}},
                         .k = {k.data(), heed::bf16, {b, s, h_k, d}},
                         .v = {v.data(), heed::bf16, {b, s, h_k, d}},
                         .o = {o.data(), heed::bf16, {b, s, h, d}},
                         .mask = heed::Mask::causal()};

  const auto largest_error = [&](const std::vector<Bf16>& values) {
    double largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      largest = std::max(largest, std::abs(double{from_bf16(values[i])} - exact[i]));
    return largest;
  };
  const auto with_output = [&](const heed::OutputView& to) {
    heed::ForwardArgs changed = args;
    changed.o = to;
    return changed;
  };

  heed::oracle::forward(with_output({exact.data(), heed::f64, {b, s, h, d}}));         // fp64, not rounded at the end
  heed::oracle::plain_forward(with_output({plain.data(), heed::bf16, {b, s, h, d}}));  // f32 sums, P and O in bf16
  const double plain_error = largest_error(plain);

  example::Checks checks;
  for (const heed::Math math : {heed::Math::fast, heed::Math::accurate}) {
    args.math = math;
    heed::forward(args);
    const double error = largest_error(o), allowed = 2 * plain_error + 0x1p-8;
    char text[128];
    std::snprintf(text, sizeof text, "%s math: largest error %.2e; a plain bf16 computation has %.2e",
                  math == heed::Math::fast ? "fast" : "accurate", error, plain_error);
    checks.expect(error <= allowed, text);
  }

  // Where the oracle would take too long, ask it for some rows only.
  std::vector<double> some(count, -1);
  heed::oracle::forward(with_output({some.data(), heed::f64, {b, s, h, d}}),
                        {.rows = [](std::int64_t, std::int64_t, std::int64_t i) { return i == 0 || i == s - 1; }});
  checks.expect(some.front() == exact.front() && some.back() == exact.back() && some[count / 2] == -1,
                "the oracle computes the rows it is asked for and leaves the others alone");
  return checks.exit_code();
}
