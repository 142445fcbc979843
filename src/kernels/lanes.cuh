// What lanes of a warp exchange.
#pragma once

#include "numbers.cuh"

namespace heed::kernels {

/// Lane q of four holds x[j] = m[q][j] of a 4 x 4 matrix m of words; then it holds x[i] = m[i][q].
HEED_DEVICE void transpose_in_fours(u32 (&x)[4], int lane) {
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
    const bool upper = lane & step;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & step) continue;
      const u32 other = __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i | step], step);
      (upper ? x[i] : x[i | step]) = other;
    }
  }
}

}  // namespace heed::kernels
