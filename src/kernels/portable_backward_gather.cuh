// dQ where tiles of keys have added it up in memory in f32: the order of that sum, and the way to the rows of dQ.
//
// The sum [h, row_space, d] has tiles of 16 rows by 16 columns, those of the same rows one after the other. A tile lies
// as the accumulators of a warp do, so that a warp adds whole lines: lane by lane, four numbers of each at a time where
// the GPU can add four, else one.
#pragma once

#include "portable_backward_careful.cuh"
#include "portable_backward_features.cuh"
#include "portable_backward_tiles.cuh"

namespace heed::kernels {

constexpr int kSumTile = 16 * 16;

/// x: eight accumulators of a 16 x 16 tile. `to`: the tile.
HEED_DEVICE void add_to_sum(float* to, const float (&x)[8], int lane) {
#if __CUDA_ARCH__ >= 900
#pragma unroll
  for (int i = 0; i < 2; ++i)
    add_to_memory(to + i * 128 + lane * 4, x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
#else
#pragma unroll
  for (int i = 0; i < 8; ++i) add_to_memory(to + i * 32 + lane, x[i]);
#endif
}
HEED_DEVICE void load_sum(float (&x)[8], const float* from, int lane) {
#if __CUDA_ARCH__ >= 900
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float4 four = *reinterpret_cast<const float4*>(from + i * 128 + lane * 4);
    x[4 * i] = four.x, x[4 * i + 1] = four.y, x[4 * i + 2] = four.z, x[4 * i + 3] = four.w;
  }
#else
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = from[i * 32 + lane];
#endif
}

/// Each warp brings 16 rows from the sum to dQ.
template <PortableBackwardConfig C>
__device__ __forceinline__ void portable_backward_gather(const BackwardParams& bp) {
  static_assert(C.impossible() == nullptr && C.part == BackwardPart::gather);
  using T = typename TagOf<C.type>::Type;
  constexpr ForwardFeatures F = C.features;
  // Of wide rows a warp has half at a time, so that a multiprocessor has room for two thread blocks.
  constexpr int kD = C.d, kPiece = kD > 128 ? kD / 2 : kD;
  const ForwardParams& p = bp.forward;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  const i64 tiles = i64(p.row_tiles) * p.heads * p.batch;
#pragma unroll 1
  for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const i64 pair = tile / p.row_tiles;
    const int head = int(pair % p.heads), batch = int(pair / p.heads);
    const Sequence q = lengths_of<F>(p, batch);
    const int row = int(tile % p.row_tiles) * C.tile() + warp * 16;
    if (row >= q.s_q) continue;
    const float* const from =
        static_cast<const float*>(bp.dq_sum) + (head * bp.row_space + row_start(p, q, batch) + row) * kD;
    const Rows<T> to = rows_to<T>(bp.dq, bp.dq_steps, batch, head, q.q_row, q.s_q, p.d);
    const float factor[2] = {p.scale, p.scale};
    bool careful = false;
#pragma unroll 1
    for (int column = 0; column < kD; column += kPiece) {
      float dq[kPiece / 2];  // [16, kPiece]
#pragma unroll
      for (int n = 0; n < kPiece / 16; ++n) load_sum(eighth(dq, n), from + column * 16 + n * kSumTile, lane);
      if (F.hides() && spoilt(dq, row + lane / 4 < q.s_q)) {  // has met a hidden K that is no number
        careful = true;
      } else {
        store_rows<T, T, kPiece>(to, row, column, dq, factor, lane);
      }
    }
    if (careful) careful_queries<F, T, T, T, kD>(bp, batch, head, row, 0, lane, PackedRows<F>{bp, batch});
  }
}

}  // namespace heed::kernels
