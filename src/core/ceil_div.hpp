#pragma once

#include <cstdint>

namespace heed::core {

/// How many parts of b cover a. Neither is below zero.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace heed::core
