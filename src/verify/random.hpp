#pragma once

#include <cmath>
#include <cstdint>

namespace heed::verify {

/// SplitMix64's output function: a good 64-bit hash.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// Random numbers that are the same on every machine and with every standard library. Streams of one seed are
/// independent.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream) : state_(mix(seed) ^ mix(~stream)) {}

  std::uint64_t word() { return mix(state_ += 0x9E3779B97F4A7C15u); }
  /// In [0, 1).
  double real() { return static_cast<double>(word() >> 11) * 0x1p-53; }
  /// In [least, most].
  std::int64_t integer(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(word() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool chance(double probability) { return real() < probability; }
  double normal() { return normal_from(word()); }

  /// N(0, 1) from the 64 random bits of `bits` (Box and Muller).
  static double normal_from(std::uint64_t bits) {
    const double u = (static_cast<double>(bits >> 32) + 0.5) * 0x1p-32;
    const double angle = static_cast<double>(bits & 0xFFFFFFFFu) * (0x1p-32 * 6.283185307179586);
    return std::sqrt(-2 * std::log(u)) * std::cos(angle);
  }

 private:
  std::uint64_t state_;
};

}  // namespace heed::verify
