#pragma once

#include <cstdint>

namespace heed::core {

/// How many parts of b cover a. Neither is below zero.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// How large each part of a is where parts are few and alike, and none above `most`.
constexpr std::int64_t even_part(std::int64_t a, std::int64_t most) {
  return a == 0 ? 0 : ceil_div(a, ceil_div(a, most));
}

}  // namespace heed::core
