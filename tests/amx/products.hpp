#pragma once

#include "amx/tiles.hpp"

namespace heed::amx {

/// sums [rows][columns] f32 += first [rows][pairs] second [pairs][columns], each element a pair of bf16. Zeroes the
/// columns behind. For CPUs with AVX-512; denormals are up to MXCSR.
void add_products(std::uint8_t (*sums)[kRowBytes], const std::uint8_t (*first)[kRowBytes],
                  const std::uint8_t (*second)[kRowBytes], int rows, int pairs, int columns);

}  // namespace heed::amx
