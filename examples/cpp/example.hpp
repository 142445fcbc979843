// What the examples share: numbers to compute with, and a verdict. Everything about heed is in the examples themselves.
#pragma once

#include <heed/heed.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace example {

using Floats = std::vector<float>;

/// Normally distributed, the same in every run.
inline Floats random_floats(std::int64_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  Floats values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(engine);
  return values;
}

/// An output before anything is written: an element that is forgotten stays NaN and shows.
inline Floats unwritten(std::int64_t count) {
  return Floats(static_cast<std::size_t>(count), std::numeric_limits<float>::quiet_NaN());
}

/// The largest |a - b|; infinite where one is NaN or they have different sizes.
inline double difference(const Floats& a, const Floats& b) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kInfinite;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;  // two infinities, too
    const double error = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    largest = std::isnan(error) ? kInfinite : std::max(largest, error);
  }
  return largest;
}

/// Collects what was checked; its answer is the program's exit code.
class Checks {
 public:
  void expect(bool right, const std::string& what) {
    std::printf("%-6s %s\n", right ? "right" : "WRONG", what.c_str());
    all_right_ = all_right_ && right;
  }
  /// f32 results of numbers around 1 agree to about 1e-6; a wrong mask or head is off by 0.1 and more.
  void expect_close(const Floats& got, const Floats& wanted, const std::string& what, double allowed = 1e-5) {
    const double error = difference(got, wanted);
    char text[64];
    std::snprintf(text, sizeof text, " (largest difference %.1e)", error);
    expect(error <= allowed, what + text);
  }
  int exit_code() const { return all_right_ ? 0 : 1; }

 private:
  bool all_right_ = true;
};

}  // namespace example
