#pragma once

#include <algorithm>

namespace heed::core {

/// A soft cap as engines compute with it, in f32. Logits within 1e-30 of each other have the same softmax there, and
/// those within 1e30 are not capped: caps beyond them change nothing but that their terms are 0 or infinite.
inline float soft_cap_in_f32(double cap) {
  constexpr double kSmallest = 1e-30, kLargest = 1e30;
  return static_cast<float>(std::clamp(cap, kSmallest, kLargest));
}

}  // namespace heed::core
