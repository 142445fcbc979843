#include "amx/products.hpp"

#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // gcc 12's own intrinsics start from an undefined vector
#endif
#include <immintrin.h>

namespace heed::amx {

// In the manual's order: even and odd elements have sums of their own, each by FMA from zero, which are added at the
// end, and then to the tile.
void add_products(std::uint8_t (*sums)[kRowBytes], const std::uint8_t (*first)[kRowBytes],
                  const std::uint8_t (*second)[kRowBytes], int rows, int pairs, int columns) {
  const auto there = static_cast<__mmask16>((1u << columns) - 1);
  const __m512i odd_half = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  for (int row = 0; row < rows; ++row) {
    __m512 even = _mm512_setzero_ps(), odd = even;
    for (int pair = 0; pair < pairs; ++pair) {
      int word = 0;
      __builtin_memcpy(&word, first[row] + 4 * pair, sizeof word);
      const __m512i a = _mm512_set1_epi32(word), b = _mm512_loadu_si512(second[pair]);
      even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)),
                             _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)), even);
      odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(a, odd_half)),
                            _mm512_castsi512_ps(_mm512_and_si512(b, odd_half)), odd);
    }
    const __m512 sum = _mm512_add_ps(_mm512_loadu_ps(sums[row]), _mm512_add_ps(even, odd));
    _mm512_storeu_ps(sums[row], _mm512_maskz_mov_ps(there, sum));
  }
}

}  // namespace heed::amx
