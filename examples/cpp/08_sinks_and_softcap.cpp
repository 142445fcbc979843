// Two changes to the softmax: a sink logit per head (a key without a value, which lets a head attend to nothing) and a
// soft cap on the logits.
#include "example.hpp"

using example::Floats;

int main() {
  constexpr std::int64_t b = 1, h = 4, s = 48, d = 32;
  const Floats q = example::random_floats(b * s * h * d, 1), k = example::random_floats(b * s * h * d, 2),
               v = example::random_floats(b * s * h * d, 3);
  struct Result {
    Floats o = example::unwritten(b * s * h * d), lse = example::unwritten(b * h * s);
  };
  const auto run = [&](const heed::TensorView& sink, double soft_cap) {
    Result result;
    heed::forward({.q = {q.data(), heed::f32, {b, s, h, d}},
                   .k = {k.data(), heed::f32, {b, s, h, d}},
                   .v = {v.data(), heed::f32, {b, s, h, d}},
                   .o = {result.o.data(), heed::f32, {b, s, h, d}},
                   .lse = {result.lse.data(), heed::f32, {b, h, s}},
                   .mask = heed::Mask::causal(),
                   .sink = sink,
                   .soft_cap = soft_cap});
    return result;
  };
  example::Checks checks;
  const Result plain = run({}, 0);

  // exp(sink) joins the denominator and the LSE. It has no row of V, so O shrinks by what the sink takes:
  // O' = O * exp(LSE - LSE') with exp(LSE') = exp(LSE) + exp(sink).
  const Floats sinks{-1.0F, 0.0F, 2.0F, 5.0F};
  const Result sunk = run({sinks.data(), heed::f32, {h}}, 0);
  Floats wanted_o = plain.o, wanted_lse = plain.lse;
  for (std::size_t n = 0; n < wanted_lse.size(); ++n) {  // n = head * s + i
    const std::size_t head = n / s, row = n % s * h + head;
    const double lse = plain.lse[n], with_sink = std::log(std::exp(lse) + std::exp(double{sinks[head]}));
    wanted_lse[n] = static_cast<float>(with_sink);
    for (std::size_t e = row * d; e < (row + 1) * d; ++e) wanted_o[e] *= static_cast<float>(std::exp(lse - with_sink));
  }
  checks.expect_close(sunk.lse, wanted_lse, "the LSE holds the sink");
  checks.expect_close(sunk.o, wanted_o, "O shrinks by the sink's share");

  // S = cap * tanh(S / cap): no score leaves (-cap, cap), so no key has more than exp(2 cap) times another's weight.
  const double cap = 0.5;
  const Result capped = run({}, cap);
  bool within = true;
  for (std::size_t n = 0; n < capped.lse.size(); ++n) {
    const double keys = static_cast<double>(n % s + 1);  // causal: query i sees i + 1 keys
    within = within && std::abs(capped.lse[n] - std::log(keys)) <= cap + 1e-5;
  }
  checks.expect(within, "with a cap of 0.5 the LSE of n keys is within 0.5 of log(n)");
  checks.expect_close(run({}, 1e6).o, plain.o, "a very large cap changes nothing", 1e-4);

  // A cap that makes no sense is refused, not ignored.
  try {
    run({}, -1);
    checks.expect(false, "a negative cap is refused");
  } catch (const heed::Error& error) {
    checks.expect(error.code() == heed::ErrorCode::invalid_argument, error.what());
  }
  return checks.exit_code();
}
