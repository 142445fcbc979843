// What a backward pass does row by row: LSE and D before the products, and the sums over rows behind them.
#pragma once

#include "portable_backward_features.cuh"

namespace heed::kernels {

/// Chunks of 16 bytes of neighbouring rows of O and dO; zeros where there is nothing.
template <int kRows>
struct RowChunks {
  uint4 o[kRows], d_o[kRows];

  template <class Output>
  __device__ __forceinline__ void add_dots(float (&dot)[kRows]) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const u32 x[4] = {o[r].x, o[r].y, o[r].z, o[r].w}, y[4] = {d_o[r].x, d_o[r].y, d_o[r].z, d_o[r].w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        using Raw = typename Output::Raw;
        if constexpr (sizeof(Raw) == 4) {
          dot[r] = __fmaf_rn(__int_as_float(x[i]), __int_as_float(y[i]), dot[r]);
        } else {
          dot[r] = __fmaf_rn(to_float<Output>(Raw(x[i])), to_float<Output>(Raw(y[i])), dot[r]);
          dot[r] = __fmaf_rn(to_float<Output>(Raw(x[i] >> 16)), to_float<Output>(Raw(y[i] >> 16)), dot[r]);
        }
      }
    }
  }
};

/// row_lse: log2 units, +inf where the row has no probability. row_dot: D = rowsum(dO * O) - dLSE. row_part: what the
/// row adds to dSink. dq_sum: zeros, where C.d columns of dQ will be added to it. One CTA does C.tile() rows of a head.
template <PortableBackwardConfig C>
__device__ __forceinline__ void portable_backward_rows(const BackwardParams& bp) {
  static_assert(C.impossible() == nullptr && C.part == BackwardPart::rows);
  using Output = typename TagOf<C.output>::Type;
  using Raw = typename Output::Raw;
  constexpr ForwardFeatures F = C.features;
  constexpr int kLanes = C.row_lanes(), kRows = C.kLaneRows, kElements = 16 / sizeof(Raw);
  static_assert(kRows <= kLanes, "each row has a lane that tells");
  const ForwardParams& p = bp.forward;
  const int lane = threadIdx.x % kLanes;

  const i64 tiles = i64(p.row_tiles) * p.heads * p.batch;
#pragma unroll 1
  for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const i64 pair = tile / p.row_tiles;
    const int head = int(pair % p.heads), batch = int(pair / p.heads);
    const Sequence q = lengths_of<F>(p, batch);
    const int first_row = int(tile % p.row_tiles) * C.tile(), row = first_row + int(threadIdx.x / kLanes) * kRows;
    const int told = row + lane;
    const bool tells = lane < kRows && told < q.s_q;
    // What is used last comes first: behind the sum it would be waited for a second time.
    float lse = 0.0f, d_lse = 0.0f;
    if (tells) {
      const i64 physical = i64(q.q_row) + told;
      lse = p.lse[batch * p.lse_steps.batch + head * p.lse_steps.head + physical * p.lse_steps.row];
      if (bp.d_lse)
        d_lse = bp.d_lse[batch * bp.d_lse_steps.batch + head * bp.d_lse_steps.head + physical * bp.d_lse_steps.row];
    }
    const i64 physical = i64(q.q_row) + row;
    const Raw* const o =
        static_cast<const Raw*>(p.o) + batch * p.o_steps.batch + head * p.o_steps.head + physical * p.o_steps.row;
    const Raw* const d_o = static_cast<const Raw*>(bp.d_o) + batch * bp.d_o_steps.batch + head * bp.d_o_steps.head +
                           physical * bp.d_o_steps.row;
    const auto chunks_at = [&](int column) {
      RowChunks<kRows> x;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        x.o[r] = x.d_o[r] = make_uint4(0, 0, 0, 0);
        if (row + r < q.s_q && column + kElements <= p.d_v) {
          x.o[r] = *reinterpret_cast<const uint4*>(o + r * p.o_steps.row + column);
          x.d_o[r] = *reinterpret_cast<const uint4*>(d_o + r * bp.d_o_steps.row + column);
        }
      }
      return x;
    };
    RowChunks<kRows> first;
    if constexpr (C.row_bytes == 16) first = chunks_at(lane * kElements);
    // While they come: zeros. The tiles of the sum are of 16 rows, the last one of a sequence, too.
    if constexpr (C.d > 0) {
      const int end = first_row + C.tile() < q.s_q ? first_row + C.tile() : (q.s_q + 15) / 16 * 16;
      float4* const sum = static_cast<float4*>(bp.dq_sum) +
                          (head * bp.row_space + row_start(p, q, batch) + first_row) * (C.d / 4);
#pragma unroll 8
      for (int i = threadIdx.x; i < (end - first_row) * (C.d / 4); i += C.threads())
        sum[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    float dot[kRows] = {};
    if constexpr (C.row_bytes == 16) {
      first.template add_dots<Output>(dot);
      int column = lane * kElements;
#pragma unroll 1
      while (column + kElements <= p.d_v) {
        column += kLanes * kElements;
        if (column + kElements <= p.d_v) chunks_at(column).template add_dots<Output>(dot);
      }
#pragma unroll 1
      for (; column < p.d_v; ++column)
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          if (row + r < q.s_q)
            dot[r] = __fmaf_rn(to_float<Output>(o[r * p.o_steps.row + column]),
                               to_float<Output>(d_o[r * bp.d_o_steps.row + column]), dot[r]);
    } else {
#pragma unroll 1
      for (int column = lane; column < p.d_v; column += kLanes)
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          if (row + r < q.s_q)
            dot[r] = __fmaf_rn(to_float<Output>(o[r * p.o_steps.row + column * p.o_steps.column]),
                               to_float<Output>(d_o[r * bp.d_o_steps.row + column * bp.d_o_steps.column]), dot[r]);
    }
    float told_dot = 0.0f;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int over = kLanes / 2; over > 0; over /= 2) dot[r] += __shfl_xor_sync(0xffffffffu, dot[r], over);
      if (lane == r) told_dot = dot[r];
    }
    if (!tells) continue;

    if (bp.d_lse) told_dot -= d_lse;
    const bool sees_none = lse == -HEED_INFINITY;
    const i64 place = head * bp.row_space + row_start(p, q, batch) + told;
    bp.row_lse[place] = sees_none ? HEED_INFINITY : lse * kLog2e;
    bp.row_dot[place] = sees_none ? 0.0f : told_dot;
    if constexpr (F.sink) {
      if (bp.d_sink) {
        const float sink = p.sink[head * p.sink_step];
        const bool none = sees_none || sink == -HEED_INFINITY;
        bp.row_part[p.heads * bp.row_space + place] = none ? 0.0f : -exp2_approx((sink - lse) * kLog2e) * told_dot;
      }
    }
  }
}

/// dSink [h] and dSlopes [h] or [b, h] from the rows' parts: one CTA for each number, its order fixed.
template <PortableBackwardConfig C>
__device__ __forceinline__ void portable_backward_sums(const BackwardParams& bp) {
  static_assert(C.impossible() == nullptr && C.part == BackwardPart::sums);
  constexpr int kThreads = C.threads();
  const ForwardParams& p = bp.forward;
  extern __shared__ __align__(128) u8 heed_shared[];
  float* const of_warps = reinterpret_cast<float*>(heed_shared);
  const bool each_batch = bp.d_slope_steps.batch != 0;
  const i64 slopes = bp.d_slopes ? i64(p.heads) * (each_batch ? p.batch : 1) : 0, sinks = bp.d_sink ? p.heads : 0;
#pragma unroll 1
  for (i64 number = blockIdx.x; number < slopes + sinks; number += gridDim.x) {
    const bool slope = number < slopes;
    const int head = int((slope ? number : number - slopes) % p.heads);
    const int only = slope && each_batch ? int(number / p.heads) : -1;
    const float* const parts = bp.row_part + ((slope ? 0 : p.heads) + head) * bp.row_space;
    float sum = 0.0f;
#pragma unroll 1
    for (int batch = max(only, 0); batch < (only < 0 ? p.batch : only + 1); ++batch) {
      const Sequence q = lengths_of<C.features>(p, batch);
      const float* const rows = parts + row_start(p, q, batch);
#pragma unroll 4
      for (int row = threadIdx.x; row < q.s_q; row += kThreads) sum += rows[row];
    }
#pragma unroll
    for (int over = 16; over > 0; over /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, over);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      float total = 0.0f;
#pragma unroll
      for (int w = 0; w < C.warps; ++w) total += of_warps[w];
      if (slope) {
        bp.d_slopes[(only < 0 ? 0 : only) * bp.d_slope_steps.batch + head * bp.d_slope_steps.head] = total;
      } else {
        bp.d_sink[head * bp.d_sink_step] = total;
      }
    }
    __syncthreads();
  }
}

}  // namespace heed::kernels
