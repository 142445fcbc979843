// The two products of the Hopper forward kernel, as the warpgroup issues them, and the scores of one warp by itself.
#pragma once

#include "hopper_config.h"
#include "mma.cuh"
#include "wgmma.cuh"

namespace heed::kernels {

/// The instruction that accumulates N columns in f32, or in f16.
template <class T, int N, bool kInF16>
struct Product {
  using Mma = Wgmma<T, N>;
  using Element = float;
  static constexpr int kRegisters = N / 2;
};
template <class T, int N>
struct Product<T, N, true> {
  using Mma = WgmmaHalf<N>;
  using Element = u32;  ///< two sums
  static constexpr int kRegisters = N / 4;
};
template <HopperConfig C, class T>
using Scores = Product<T, C.tile_k, C.scores_in_f16>;
template <HopperConfig C, class T>
using Sums = Product<T, C.d_v, C.sums_in_f16>;

/// S [64 x tile_k] = Q [64 x d] K [tile_k x d]^T
template <HopperConfig C, class T, class X, int R>
HEED_DEVICE void issue_scores(X (&s)[R], u64 q, u64 k) {
#pragma unroll
  for (int i = 0; i < C.d / 16; ++i) {
    const u32 in = (i % 4) * 2, panel = i / 4;  // 32 bytes per step of 16 columns inside a panel
    Scores<C, T>::Mma::shared_shared(s, q + in + panel * (64 * 128 / 16), k + in + panel * (C.tile_k * 128 / 16),
                                     i > 0);
  }
}
template <HopperConfig C, class T, class X, int R, int N>
HEED_DEVICE void issue_scores_from_registers(X (&s)[R], const u32 (&q)[N], u64 k) {
  if constexpr (C.q_in_registers) {
#pragma unroll
    for (int i = 0; i < C.d / 16; ++i)
      Scores<C, T>::Mma::template registers_shared<false>(s, q[4 * i], q[4 * i + 1], q[4 * i + 2], q[4 * i + 3],
                                                          k + (i % 4) * 2 + (i / 4) * (C.tile_k * 128 / 16), i > 0);
  }
}
/// Q of a warp's 16 rows for it; `row` is this lane's row.
template <HopperConfig C, int N>
HEED_DEVICE void load_q_registers(u32 (&q)[N], u32 row, u32 lane) {
#pragma unroll
  for (int i = 0; i < C.d / 16; ++i) {
    const u32 group = 2 * i + (lane >> 4);
    u32 four[4];
    load_matrices(four, row + (group / 8) * (64 * 128) + (((group % 8) ^ (lane & 7)) * 16));
#pragma unroll
    for (int r = 0; r < 4; ++r) q[4 * i + r] = four[r];
  }
}
/// Where the V of the i-th 16 keys lies, from the operand of its block. By columns V is stored as K is.
template <HopperConfig C>
HEED_DEVICE u32 keys_of_v(int i) {
  return C.v_by_columns ? (i % 4) * 2 + (i / 4) * (C.d_v * 128 / 16) : i * (16 * 128 / 16);
}
/// O [64 x d_v] += P [64 x tile_k] V [tile_k x d_v]
template <HopperConfig C, class T, class X, int R>
HEED_DEVICE void issue_values(X (&o)[R], const u32 (&weights)[C.tile_k / 4], u64 v) {
#pragma unroll
  for (int i = 0; i < C.tile_k / 16; ++i)
    Sums<C, T>::Mma::template registers_shared<!C.v_by_columns>(o, weights[4 * i], weights[4 * i + 1],
                                                                weights[4 * i + 2], weights[4 * i + 3],
                                                                v + keys_of_v<C>(i), 1);
}
template <HopperConfig C, class T, class X, int R>
HEED_DEVICE void issue_values_from_shared(X (&o)[R], u64 weights, u64 v) {
#pragma unroll
  for (int i = 0; i < C.tile_k / 16; ++i)
    Sums<C, T>::Mma::template shared_shared<!C.v_by_columns>(o, weights + (i % 4) * 2 + (i / 4) * (64 * 128 / 16),
                                                             v + keys_of_v<C>(i), 1);
}
/// Sums in f16 as floats, from register `first` on: register i holds elements 2 * i and 2 * i + 1.
template <int N, int R>
HEED_DEVICE void widen(float (&x)[N], const u32 (&two)[R], int first = 0) {
#pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    x[2 * i] = to_float<f16>(u16(two[first + i]));
    x[2 * i + 1] = to_float<f16>(u16(two[first + i] >> 16));
  }
}
/// O of a thread's two rows, times a factor for each.
template <HopperConfig C, class X, int R>
HEED_DEVICE void rescale(X (&o)[R], const float (&factor)[2]) {
  if constexpr (C.sums_in_f16) {
#pragma unroll
    for (int i = 0; i < C.d_v / 4; ++i)
      o[i] = pack<f16>(to_float<f16>(u16(o[i])) * factor[i & 1], to_float<f16>(u16(o[i] >> 16)) * factor[i & 1]);
  } else {
#pragma unroll
    for (int i = 0; i < C.d_v / 2; ++i) o[i] *= factor[(i >> 1) & 1];
  }
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
