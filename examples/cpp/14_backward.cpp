// Gradients: the forward call's arguments as they were, the gradient of its output, and memory for the results.
#include "example.hpp"

using example::Floats;

int main() {
  constexpr std::int64_t b = 1, s = 24, h = 4, h_k = 2, d = 16;  // two query heads share each key/value head
  Floats q = example::random_floats(b * s * h * d, 1), k = example::random_floats(b * s * h_k * d, 2),
         v = example::random_floats(b * s * h_k * d, 3);
  Floats o = example::unwritten(b * s * h * d), lse = example::unwritten(b * h * s);
  const heed::ForwardArgs forward{.q = {q.data(), heed::f32, {b, s, h, d}},
                                  .k = {k.data(), heed::f32, {b, s, h_k, d}},
                                  .v = {v.data(), heed::f32, {b, s, h_k, d}},
                                  .o = {o.data(), heed::f32, {b, s, h, d}},
                                  .lse = {lse.data(), heed::f32, {b, h, s}},  // backward needs it
                                  .mask = heed::Mask::causal()};
  heed::forward(forward);

  // The loss is sum(d_o * o), so that d_o is its gradient with respect to o. Mask, scale and dropout are told once:
  // they come along in `forward`. dK and dV have the heads of k and v.
  const Floats d_o = example::random_floats(b * s * h * d, 4);
  Floats dq = example::unwritten(b * s * h * d), dk = example::unwritten(b * s * h_k * d),
         dv = example::unwritten(b * s * h_k * d);
  heed::backward({.forward = forward,
                  .d_o = {d_o.data(), heed::f32, {b, s, h, d}},
                  .dq = {dq.data(), heed::f32, {b, s, h, d}},
                  .dk = {dk.data(), heed::f32, {b, s, h_k, d}},
                  .dv = {dv.data(), heed::f32, {b, s, h_k, d}}});

  // A small step of one input changes the loss by its gradient times the step.
  const auto loss = [&] {
    heed::forward(forward);
    double sum = 0;
    for (std::size_t i = 0; i < o.size(); ++i) sum += static_cast<double>(d_o[i]) * static_cast<double>(o[i]);
    return sum;
  };
  const auto slope = [&](float& input) {
    constexpr float kStep = 1.0F / 64;
    const float before = input;
    input = before + kStep;
    const double above = loss();
    input = before - kStep;
    const double below = loss();
    input = before;
    return (above - below) / (2 * static_cast<double>(kStep));
  };
  example::Checks checks;
  const auto check = [&](Floats& input, const Floats& gradient, const std::string& name) {
    double worst = 0;
    for (std::size_t i = 0; i < input.size(); i += 7)
      worst = std::max(worst, std::abs(slope(input[i]) - static_cast<double>(gradient[i])));
    checks.expect(worst < 2e-3, name + " is the slope of the loss");
  };
  check(q, dq, "dQ");
  check(k, dk, "dK");
  check(v, dv, "dV");

  // The last query's own key is seen by it alone: without it, nothing of dV's last row would be there.
  checks.expect(dv[dv.size() - 1] != 0, "every key that is seen has a gradient");
  return checks.exit_code();
}
