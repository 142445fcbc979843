// After the Hopper backward kernel, where the query heads of a group were divided into parts: dK and dV of the parts, in
// f32, are added up in their order -> rows of 16 bits. One thread block for kSumKeys keys of one head, of dK or of dV.
#pragma once

#include "hopper_backward_config.h"
#include "hopper_backward_tiles.cuh"

namespace heed::kernels {

/// The last batch entry whose keys begin at or before this row of key_space.
template <auto C>
HEED_DEVICE int batch_of_key_row(const BackwardParams& params, i64 row) {
  const ForwardParams& p = params.forward;
  if (!C.features.own_lengths || !p.start_k.data) return int(row / (params.key_tiles * C.kTileK));
  return last_that_begins(p.batch, row, [&](int b) { return key_sum_row<C>(params, b); });
}

template <auto C>
HEED_DEVICE void hopper_backward_parts(const BackwardParams& params) {
  using T = typename TagOf<C.type>::Type;
  constexpr ForwardFeatures F = C.features;
  constexpr int kLanes = C.d <= 128 ? C.d / 8 : 32, kRows = kRowThreads / kLanes;  // 8 columns a lane
  constexpr int kRounds = kSumKeys / kRows;
  const ForwardParams& p = params.forward;
  const int heads = p.heads / p.group, of_head = blockIdx.x / 2, head = of_head % heads;
  const bool keys = blockIdx.x % 2 == 0;  // dK, not dV
  const i64 first_row = i64(of_head / heads) * kSumKeys;
  const int batch = batch_of_key_row<C>(params, first_row);
  const Sequence sequence = lengths_of<F>(p, batch);
  const int first_key = int(first_row - key_sum_row<C>(params, batch)), rows = sequence.s_k - first_key;
  if (first_key < 0 || rows <= 0) return;  // before the first sequence, which need not begin at row 0; behind one

  const int lane = threadIdx.x % kLanes, row0 = threadIdx.x / kLanes, columns = keys ? p.d : p.d_v;
  const i64 step = params.key_space * C.d;  // from part to part
  const float* const sums =
      params.key_sum + ((keys ? 0 : heads) + head) * i64(params.parts) * step + first_row * C.d + lane * 8;
  uint4 packed[kRounds];
  float zero = 0.0f;
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int row = row0 + i * kRows;
    float x[8] = {};
    if (row < rows && lane * 8 < columns) {
#pragma unroll 1
      for (int part = 0; part < params.parts; ++part) {
        const float4* const from = reinterpret_cast<const float4*>(sums + part * step + row * C.d);
        const float4 a = from[0], b = from[1];
        const float more[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
        for (int e = 0; e < 8; ++e) x[e] += more[e];
      }
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) zero = __fmaf_rn(x[e], 0.0f, zero);
    packed[i] = make_uint4(pack<T>(x[0], x[1]), pack<T>(x[2], x[3]), pack<T>(x[4], x[5]), pack<T>(x[6], x[7]));
  }
  if constexpr (F.hides()) {
    if (__syncthreads_or(zero != 0.0f)) {  // perhaps 0 * NaN of a hidden pair
      const int warp = threadIdx.x / 32;
      const BlockRows<C> places{params, row_block_of<F, C.tile_q>(params, batch)};
      if (warp >= kSumKeys / 16) return;
      if (keys) {
        careful_keys<true, F, T, T, T, C.d>(params, batch, head, first_key + 16 * warp, 0, threadIdx.x % 32, places);
      } else {
        careful_keys<false, F, T, T, T, C.d>(params, batch, head, first_key + 16 * warp, 0, threadIdx.x % 32, places);
      }
      return;
    }
  }
  const Steps& steps = keys ? params.dk_steps : params.dv_steps;
  u16* const to = static_cast<u16*>(keys ? params.dk : params.dv) + batch * steps.batch + head * steps.head + lane * 8;
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int row = row0 + i * kRows;
    if (row < rows && lane * 8 < columns)
      *reinterpret_cast<uint4*>(to + i64(sequence.k_row + first_key + row) * steps.row) = packed[i];
  }
}

}  // namespace heed::kernels
