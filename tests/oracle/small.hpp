#pragma once

#include <heed/error.hpp>
#include <heed/forward.hpp>
#include <heed/oracle.hpp>

#include <cstdint>
#include <vector>

namespace heed::test {

/// How far sums in f64 that are the same on paper may be apart.
inline constexpr double kTiny = 1e-12;

/// A small problem in f32 with dense [b, s, h, d] tensors that a test fills by hand; results in f64.
struct Small {
  std::int64_t b = 1, s_q = 1, s_k = 1, h = 1, h_k = 1, d = 1, d_v = 1;
  std::vector<float> q = std::vector<float>(static_cast<std::size_t>(b * s_q * h * d));
  std::vector<float> k = std::vector<float>(static_cast<std::size_t>(b * s_k * h_k * d));
  std::vector<float> v = std::vector<float>(static_cast<std::size_t>(b * s_k * h_k * d_v));
  std::vector<double> o = std::vector<double>(static_cast<std::size_t>(b * s_q * h * d_v), -777.0);
  std::vector<double> lse = std::vector<double>(static_cast<std::size_t>(b * s_q * h), -777.0);

  /// Fills q, k, v with numbers that look random: sines of their places.
  Small& fill(double seed = 1) {
    double x = seed;
    for (auto* tensor : {&q, &k, &v})
      for (float& each : *tensor) each = static_cast<float>(__builtin_sin(x += 1.7) * 2);
    return *this;
  }

  ForwardArgs args() {
    return {.q = {q.data(), f32, {b, s_q, h, d}},
            .k = {k.data(), f32, {b, s_k, h_k, d}},
            .v = {v.data(), f32, {b, s_k, h_k, d_v}},
            .o = {o.data(), f64, {b, s_q, h, d_v}},
            .lse = {lse.data(), f64, {b, h, s_q}}};
  }

  double o_at(std::int64_t entry, std::int64_t head, std::int64_t i, std::int64_t e) const {
    return o[static_cast<std::size_t>(((entry * s_q + i) * h + head) * d_v + e)];
  }
  double lse_at(std::int64_t entry, std::int64_t head, std::int64_t i) const {
    return lse[static_cast<std::size_t>((entry * h + head) * s_q + i)];
  }
};

}  // namespace heed::test
