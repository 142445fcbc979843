// Before and after the Hopper backward kernel, one thread block for tile_q rows of one head.
//   before: D = rowsum(dO * O) - dLSE, the LSE in log2 units, and zeros where dQ will be summed; where the main kernel
//           stores dBias, zeros in what it never comes to
//   after:  the sum of dQ, in the order of the accumulator's fragments -> rows of 16 bits, which it may have already
#pragma once

#include "hopper_backward_config.h"
#include "hopper_backward_tiles.cuh"

namespace heed::kernels {

/// The rows of one thread block: rows [first_row, first_row + tile_q) of a sequence, of which `rows` are its own.
struct RowBlock {
  int head, batch;
  int q_row;      ///< physical row of the first
  int first_row;
  int rows;       ///< 0 or below where they are no sequence's
  i64 block;      ///< in the workspace, of all heads'
};
template <auto C>
HEED_DEVICE RowBlock row_block_here(const BackwardParams& params) {
  constexpr ForwardFeatures F = C.features;
  const ForwardParams& p = params.forward;
  // Neighbours are the heads of the same rows: they are neighbours in memory, too.
  const int blocks = int(params.row_space / C.tile_q), at = blockIdx.x / p.heads, head = blockIdx.x - at * p.heads;
  RowBlock r;
  r.head = head;
  r.batch = F.own_lengths && p.start_q.data
                ? last_that_begins(p.batch, at, [&](int b) { return row_block_of<F, C.tile_q>(params, b); })
                : at / params.row_blocks;
  const Sequence q = lengths_of<F>(p, r.batch);
  r.first_row = (at - row_block_of<F, C.tile_q>(params, r.batch)) * C.tile_q;
  r.q_row = q.q_row + r.first_row;
  r.rows = r.first_row < 0 ? 0 : q.s_q - r.first_row;  // before the first sequence, which need not begin at row 0
  r.block = i64(head) * blocks + at;
  return r;
}

/// Two elements of 16 bits, the products of both with two others.
template <class T>
HEED_DEVICE float dot_of_two(u32 a, u32 b) {
  return to_float<T>(u16(a)) * to_float<T>(u16(b)) + to_float<T>(u16(a >> 16)) * to_float<T>(u16(b >> 16));
}

/// Zeros in dBias of these rows, in the tiles of keys that do not have this block among theirs. Keys are a multiple of 8,
/// and rows begin at multiples of 16 bytes.
template <auto C>
HEED_DEVICE void zero_unseen_dbias(const BackwardParams& params, const RowBlock& here) {
  constexpr int kKeys = 8, kLanes = C.kTileK / kKeys, kRows = kRowThreads / kLanes;  // keys of a lane
  const Sequence q = sequence_of<C.features>(params.forward, here.batch);
  const Steps& steps = params.d_bias_steps;
  const int block = here.first_row / C.tile_q, key0 = threadIdx.x % kLanes * kKeys;
  const int rows = min(here.rows, C.tile_q);
  u16* const to = static_cast<u16*>(params.d_bias) + here.batch * steps.batch + here.head * steps.head +
                  here.first_row * steps.row;
#pragma unroll 1
  for (int tile = 0; tile < q.s_k; tile += C.kTileK) {
    const QueryBlocks seen = query_blocks<C.features, C.tile_q>(q, tile, tile + C.kTileK);
    if ((block >= seen.first && block < seen.end) || tile + key0 >= q.s_k) continue;
    for (int row = threadIdx.x / kLanes; row < rows; row += kRows)
      *reinterpret_cast<uint4*>(to + row * steps.row + tile + key0) = make_uint4(0, 0, 0, 0);
  }
}

/// The tile that adds to this block of dQ before all others.
template <auto C>
HEED_DEVICE u32 first_turn(const BackwardParams& params, const RowBlock& here) {
  if constexpr (!C.last_tile_first()) return 0;
  const Sequence q = sequence_of<C.features>(params.forward, here.batch);
  return last_that_begins(max((q.s_k + C.kTileK - 1) / C.kTileK, 1), here.first_row / C.tile_q, [&](int tile) {
    return query_blocks<C.features, C.tile_q>(q, tile * C.kTileK, tile * C.kTileK + C.kTileK).first;
  });
}

template <auto C>
HEED_DEVICE void hopper_backward_before(const BackwardParams& params) {
  using T = typename TagOf<C.type>::Type;
  constexpr int kLanes = C.d <= 128 ? C.d / 8 : 32, kRows = kRowThreads / kLanes, kM = C.tile_q;  // 8 columns a lane
  const ForwardParams& p = params.forward;
  const RowBlock here = row_block_here<C>(params);
  const int lane = threadIdx.x % kLanes, row0 = threadIdx.x / kLanes;
  const int group = p.group / params.parts, pair = here.batch * (p.heads / group) + here.head / group;
  if (blockIdx.x == 0 && threadIdx.x == 0) *params.counter = 0;
  if (C.ordered && threadIdx.x < 2) params.turns[2 * here.block + threadIdx.x] = first_turn<C>(params, here);
  if (params.zeroed && here.first_row == 0 && threadIdx.x == 0) params.zeroed[pair] = 0;

  const u16* const o = static_cast<const u16*>(p.o) + here.batch * p.o_steps.batch + here.head * p.o_steps.head;
  const u16* const d_o =
      static_cast<const u16*>(params.d_o) + here.batch * params.d_o_steps.batch + here.head * params.d_o_steps.head;
  constexpr int kRounds = (kM + kRows - 1) / kRows;
  uint4 a[kRounds], b[kRounds];
  float lse[kRounds], d_lse[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const int row = row0 + i * kRows;
    a[i] = b[i] = make_uint4(0, 0, 0, 0);
    lse[i] = HEED_INFINITY;
    d_lse[i] = 0.0f;
    if (row < here.rows && row < kM && lane == 0) {
      lse[i] = p.lse[here.batch * p.lse_steps.batch + here.head * p.lse_steps.head +
                     i64(here.q_row + row) * p.lse_steps.row];
      if (params.d_lse)
        d_lse[i] = params.d_lse[here.batch * params.d_lse_steps.batch + here.head * params.d_lse_steps.head +
                                i64(here.q_row + row) * params.d_lse_steps.row];
    }
    if (row < here.rows && row < kM && lane * 8 < p.d_v) {
      a[i] = *reinterpret_cast<const uint4*>(o + i64(here.q_row + row) * p.o_steps.row + lane * 8);
      b[i] = *reinterpret_cast<const uint4*>(d_o + i64(here.q_row + row) * params.d_o_steps.row + lane * 8);
    }
  }
  if (!C.owned_dq && pair < params.zeroed_before) {
    constexpr int kChunks = kM * C.d * C.sum_bytes() / 16;
    uint4* const sum = static_cast<uint4*>(params.dq_sum) + here.block * kChunks;
#pragma unroll
    for (int i = 0; i < kChunks / kRowThreads; ++i) sum[i * kRowThreads + threadIdx.x] = make_uint4(0, 0, 0, 0);
  }
  if constexpr (stores_dbias(C) && C.features.mask != MaskShape::none)
    if (params.d_bias) zero_unseen_dbias<C>(params, here);

#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    float dot = dot_of_two<T>(a[i].x, b[i].x) + dot_of_two<T>(a[i].y, b[i].y) + dot_of_two<T>(a[i].z, b[i].z) +
                dot_of_two<T>(a[i].w, b[i].w);
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) dot += __shfl_xor_sync(0xffffffffu, dot, step);
    const int row = row0 + i * kRows;
    if (lane != 0 || row >= kM) continue;
    const i64 to = here.block * kM + row / 16 * 16 + place_in_16(row);
    params.row_lse[to] = lse[i] == -HEED_INFINITY ? HEED_INFINITY : lse[i] * kLog2e;
    params.row_dot[to] = dot - d_lse[i];
  }
}

/// Of all elements in 16 bytes of the sum of dQ.
template <auto C, class T>
HEED_DEVICE float sum_of_chunk(const uint4& x) {
  if constexpr (C.dq_in_16_bits) {
    const u32 words[4] = {x.x, x.y, x.z, x.w};
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += to_float<T>(u16(words[i])) + to_float<T>(u16(words[i] >> 16));
    return sum;
  } else {
    return __uint_as_float(x.x) + __uint_as_float(x.y) + __uint_as_float(x.z) + __uint_as_float(x.w);
  }
}

template <auto C>
HEED_DEVICE void hopper_backward_after(const BackwardParams& params) {
  using T = typename TagOf<C.type>::Type;
  constexpr int kM = C.tile_q, kPitch = C.d / 2 + 4;  // words of a row
  static __shared__ u32 words[kM * kPitch];
  const ForwardParams& p = params.forward;
  const RowBlock here = row_block_here<C>(params);
  if (here.rows <= 0) return;
  constexpr int kChunks = kM * C.d * C.sum_bytes() / 16 / kRowThreads;
  const uint4* const sum = static_cast<const uint4*>(params.dq_sum) + here.block * (kChunks * kRowThreads);
  uint4 chunks[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) chunks[i] = sum[i * kRowThreads + threadIdx.x];
  if constexpr (C.features.hides()) {
    float zero = 0.0f;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) zero = __fmaf_rn(sum_of_chunk<C, T>(chunks[i]), 0.0f, zero);
    if (__syncthreads_or(zero != 0.0f)) {  // perhaps 0 * NaN of a hidden pair
      const int warp = threadIdx.x / 32;
      const BlockRows<C> rows{params, row_block_of<C.features, kM>(params, here.batch)};
      if (warp < kM / 16)
        careful_queries<C.features, T, T, T, C.d>(params, here.batch, here.head, here.first_row + 16 * warp, 0,
                                                  threadIdx.x % 32, rows);
      return;
    }
  }
  // Elements 4 * j to 4 * j + 3 of a lane of the main kernel, of its warp `part`, two and two.
  const auto place = [&](int lane, int j, int part, u32 a, u32 b) {
    if constexpr (C.transposed_dq()) {  // neighbours are two rows of dQ; the second pair is 8 columns on
      const int row = (C.d == 64 ? part / 4 * (kM / 2) : 0) + j * 8 + lane % 4 * 2;
      u16* const to = reinterpret_cast<u16*>(&words[row * kPitch]) + (C.d == 64 ? part % 4 : part) * 16 + lane / 4;
      to[0] = u16(a);
      to[2 * kPitch] = u16(a >> 16);
      to[8] = u16(b);
      to[2 * kPitch + 8] = u16(b >> 16);
    } else {  // neighbours are two columns; the second pair is 8 rows below
      const int row = (C.d == 64 ? part / 4 * 64 : 0) + part % 4 * 16 + lane / 4;
      const int word = (C.d == 64 ? 0 : part / 4 * 32) + j * 4 + lane % 4;
      words[row * kPitch + word] = a;
      words[(row + 8) * kPitch + word] = b;
    }
  };
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    // Chunk number -> lane, chunk of the thread, warp: as the main kernel stored them.
    const int at = i * kRowThreads + threadIdx.x, lane = at % 32, j = at / 32 % C.sum_chunks(), part = at / 32 / C.sum_chunks();
    const uint4& x = chunks[i];
    if constexpr (C.dq_in_16_bits) {
      place(lane, 2 * j, part, x.x, x.y);
      place(lane, 2 * j + 1, part, x.z, x.w);
    } else {
      place(lane, j, part, pack<T>(__uint_as_float(x.x) * p.scale, __uint_as_float(x.y) * p.scale),
            pack<T>(__uint_as_float(x.z) * p.scale, __uint_as_float(x.w) * p.scale));
    }
  }
  __syncthreads();
  constexpr int kLanes = C.d <= 128 ? C.d / 8 : 32, kRows = kRowThreads / kLanes;
  const int lane = threadIdx.x % kLanes;
  u16* const dq = static_cast<u16*>(params.dq) + here.batch * params.dq_steps.batch + here.head * params.dq_steps.head;
#pragma unroll
  for (int row = threadIdx.x / kLanes; row < kM; row += kRows)
    if (row < here.rows && lane * 8 < p.d)
      *reinterpret_cast<uint4*>(dq + i64(here.q_row + row) * params.dq_steps.row + lane * 8) =
          *reinterpret_cast<const uint4*>(&words[row * kPitch + lane * 4]);
}

}  // namespace heed::kernels
