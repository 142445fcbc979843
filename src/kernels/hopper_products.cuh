// The two products of the Hopper forward kernel, as the warpgroup issues them, and the scores of one warp by itself.
#pragma once

#include "hopper_config.h"
#include "mma.cuh"
#include "wgmma.cuh"

namespace heed::kernels {

/// S [64 x tile_k] = Q [64 x d] K [tile_k x d]^T
template <HopperConfig C, class T>
HEED_DEVICE void issue_scores(float (&s)[C.tile_k / 2], u64 q, u64 k) {
#pragma unroll
  for (int i = 0; i < C.d / 16; ++i) {
    const u32 in = (i % 4) * 2, panel = i / 4;  // 32 bytes per step of 16 columns inside a panel
    Wgmma<T, C.tile_k>::shared_shared(s, q + in + panel * (64 * 128 / 16), k + in + panel * (C.tile_k * 128 / 16),
                                      i > 0);
  }
}
template <HopperConfig C, class T, int R>
HEED_DEVICE void issue_scores_from_registers(float (&s)[C.tile_k / 2], const u32 (&q)[R], u64 k) {
  if constexpr (C.q_in_registers) {
#pragma unroll
    for (int i = 0; i < C.d / 16; ++i)
      Wgmma<T, C.tile_k>::template registers_shared<false>(s, q[4 * i], q[4 * i + 1], q[4 * i + 2], q[4 * i + 3],
                                                           k + (i % 4) * 2 + (i / 4) * (C.tile_k * 128 / 16), i > 0);
  }
}
/// O [64 x d_v] += P [64 x tile_k] V [tile_k x d_v]
template <HopperConfig C, class T>
HEED_DEVICE void issue_values(float (&o)[C.d_v / 2], const u32 (&weights)[C.tile_k / 4], u64 v) {
#pragma unroll
  for (int i = 0; i < C.tile_k / 16; ++i)
    Wgmma<T, C.d_v>::template registers_shared<true>(o, weights[4 * i], weights[4 * i + 1], weights[4 * i + 2],
                                                     weights[4 * i + 3], v + i * (16 * 128 / 16), 1);
}
/// The same scores for one warp's 16 rows by mma.sync: the rare path of the lazy maximum, where other warps stay away.
template <HopperConfig C, class T>
HEED_DEVICE void scores_of_warp(float (&s)[C.tile_k / 2], u32 q_rows, u32 k_at, u32 lane) {
#pragma unroll
  for (int i = 0; i < C.tile_k / 2; ++i) s[i] = 0.0f;
#pragma unroll 1
  for (int step = 0; step < C.d / 16; ++step) {
    u32 a[4];
    const u32 q_group = 2 * step + (lane >> 4);
    load_matrices(a, q_rows + (q_group / 8) * (64 * 128) + (lane & 15) * 128 + (((q_group % 8) ^ (lane & 7)) * 16));
    const u32 k_group = 2 * step + ((lane >> 3) & 1);
    const u32 k_rows = k_at + (k_group / 8) * (C.tile_k * 128) + ((lane & 7) + ((lane & 16) >> 1)) * 128 +
                       (((k_group % 8) ^ (lane & 7)) * 16);
#pragma unroll
    for (int n = 0; n < C.tile_k / 16; ++n) {
      u32 b[4];
      load_matrices(b, k_rows + n * 16 * 128);
      multiply_add<T>(s + 8 * n, a, b[0], b[1]);
      multiply_add<T>(s + 8 * n + 4, a, b[2], b[3]);
    }
  }
}

}  // namespace heed::kernels
