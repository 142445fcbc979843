// The gradient of the bias: dS before the soft cap and the scale, summed over everything the bias was broadcast over.
//
// One CTA owns C.tile() x C.block entries of dBias (one row of C.block where the bias has one row for all queries) and
// goes over the batch entries, heads and rows that share them, in order. Entries that nobody sees are 0.
#pragma once

#include "portable_backward_features.cuh"
#include "portable_backward_tiles.cuh"
#include "portable_schedule.cuh"

namespace heed::kernels {

template <PortableBackwardConfig C>
__device__ __forceinline__ void portable_backward_bias(const BackwardParams& bp) {
  static_assert(C.impossible() == nullptr && C.part == BackwardPart::bias);
  using T = typename TagOf<C.type>::Type;
  using Input = typename TagOf<C.input>::Type;
  using Output = typename TagOf<C.output>::Type;
  using Raw = typename T::Raw;
  constexpr ForwardFeatures F = C.features;
  using Bias = typename TagOf<C.d_bias>::Type;
  using BiasRaw = typename Bias::Raw;
  constexpr int kPiece = C.piece, kTile = C.tile(), kN = C.block, kM = C.warp_rows / 16, kThreads = C.threads();

  const ForwardParams& p = bp.forward;
  extern __shared__ __align__(128) u8 heed_shared[];
  const u32 rows_at = shared_address(heed_shared);  // [tile, piece] of Q or dO
  const u32 keys_at = rows_at + C.owned_bytes();    // [block, piece] of K or V
  float* const sums = reinterpret_cast<float*>(heed_shared + C.owned_bytes() + C.block_bytes());  // [warps, block]
  const u32 thread = threadIdx.x;
  const int lane = thread % 32, warp = __shfl_sync(0xffffffffu, thread / 32, 0);
  const PieceTiles at{rows_at, keys_at, rows_at + warp * C.warp_rows * kPiece * u32(sizeof(Raw)), keys_at};

  const bool one_row = bp.d_bias_rows == 1 && p.longest_q != 1;
  const int row_tiles = (bp.d_bias_rows + kTile - 1) / kTile, key_tiles = (p.longest_k + kN - 1) / kN;
  const i64 tiles = i64(key_tiles) * row_tiles * bp.d_bias_heads * bp.d_bias_batch;
  const DropKey drop_words = F.dropout ? drop_key(p) : DropKey{};
#pragma unroll 1
  for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int first_key = int(tile % key_tiles) * kN;
    const int own_row = int(tile / key_tiles % row_tiles) * kTile;
    const i64 pair = tile / key_tiles / row_tiles;
    const int own_head = int(pair % bp.d_bias_heads), own_batch = int(pair / bp.d_bias_heads);
    const int last_head = bp.d_bias_heads == 1 ? p.heads : own_head + 1;
    const int last_batch = bp.d_bias_batch == 1 ? p.batch : own_batch + 1;

    float sum[kM][kN / 2];  // [warp_rows, block]
    clear(sum);
#pragma unroll 1
    for (int batch = own_batch; batch < last_batch; ++batch) {
      const Sequence q = sequence_of<F>(p, batch);
      if (first_key >= q.s_k) continue;
      const int rows_end = one_row ? q.s_q : min(own_row + kTile, q.s_q);
#pragma unroll 1
      for (int head = own_head; head < last_head; ++head) {
        const int kv_head = head / p.group;
        const Matrix<Input> queries = matrix_of<Input>(p.q, p.q_steps, batch, head, q.q_row, q.s_q, p.d);
        const Matrix<Output> outputs = matrix_of<Output>(bp.d_o, bp.d_o_steps, batch, head, q.q_row, q.s_q, p.d_v);
        const Matrix<Input> keys = matrix_of<Input>(p.k, p.k_steps, batch, kv_head, q.k_row, q.s_k, p.d);
        const Matrix<Input> values = matrix_of<Input>(p.v, p.v_steps, batch, kv_head, q.k_row, q.s_k, p.d_v);
        const i64 first_place = head * bp.row_space + row_start(p, q, batch);
#pragma unroll 1
        for (int first_row = own_row; first_row < rows_end; first_row += kTile) {
          const int last_row = min(first_row + kTile, q.s_q) - 1, warp_row = first_row + warp * C.warp_rows;
          KeyBlocks blocks;
          blocks.template set<F, kN>(q, first_row, last_row);
          const int block = first_key / kN;
          if (!((block < blocks.last && block >= blocks.first) || block < blocks.sinks)) continue;
          const bool mine = warp_row < q.s_q;

          float s[kM][kN / 2], dp[kM][kN / 2];
          clear(s);
          clear(dp);
          multiply_in_pieces<T, kTile, kN, kPiece, kThreads, C.row_bytes, kN, kM>(
              s, at, queries, first_row, keys, first_key, mine, thread, lane);
          multiply_in_pieces<T, kTile, kN, kPiece, kThreads, C.row_bytes, kN, kM>(
              dp, at, outputs, first_row, values, first_key, mine, thread, lane);
          if (!mine) continue;
          const bool edge = first_key + kN > (F.mask == MaskShape::none ? q.s_k : q.end(warp_row)) ||
                            (F.mask == MaskShape::window && first_key < q.begin(warp_row + C.warp_rows - 1));
#pragma unroll
          for (int m = 0; m < kM; ++m) {
            const int my_row = int(fresh(warp_row + 16 * m + lane / 4));
            RowFeatures<F, Input> rows[2];
            RowStates states;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              rows[half].set(p, q, batch, head, my_row + 8 * half);
              const bool inside = my_row + 8 * half < q.s_q;
              states.lse[half] = inside ? bp.row_lse[first_place + my_row + 8 * half] : HEED_INFINITY;
              states.dot[half] = inside ? bp.row_dot[first_place + my_row + 8 * half] : 0.0f;
            }
            float no_sums[2];
#pragma unroll
            for (int n = 0; n < kN / 16; ++n) {
              const ScoreTile place{warp_row + 16 * m,
                                    int(fresh(first_key)) + 16 * n,
                                    q.s_k,
                                    edge,
                                    u32(batch) * p.heads + head,
                                    {fresh(drop_words.k0), fresh(drop_words.k1), drop_words.offset}};
              differentiate<C.part, F, Input>(p, rows, states, place, eighth(s[m], n), eighth(dp[m], n), no_sums, lane);
#pragma unroll
              for (int i = 0; i < 8; ++i) sum[m][8 * n + i] += dp[m][8 * n + i];
            }
          }
        }
      }
    }

    BiasRaw* const out =
        static_cast<BiasRaw*>(bp.d_bias) + own_batch * bp.d_bias_steps.batch + own_head * bp.d_bias_steps.head;
    const i64 step = bp.d_bias_steps.column;
    if (one_row) {  // over the rows of a warp, then over the warps
      __syncthreads();
#pragma unroll
      for (int n = 0; n < kN / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float x = 0.0f;
#pragma unroll
          for (int m = 0; m < kM; ++m) x += sum[m][4 * n + e] + sum[m][4 * n + 2 + e];
#pragma unroll
          for (int over = 4; over < 32; over *= 2) x += __shfl_xor_sync(0xffffffffu, x, over);
          if (lane < 4) sums[warp * kN + 8 * n + lane * 2 + e] = x;
        }
      __syncthreads();
      if (thread < kN && first_key + int(thread) < p.longest_k) {
        float x = 0.0f;
#pragma unroll
        for (int w = 0; w < C.warps; ++w) x += sums[w * kN + thread];
        out[(first_key + i64(thread)) * step] = from_float<Bias>(x);
      }
      continue;
    }
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = own_row + warp * C.warp_rows + 16 * m + 8 * half + lane / 4;
        if (row >= bp.d_bias_rows) continue;
        BiasRaw* const to = out + row * bp.d_bias_steps.row;
#pragma unroll
        for (int n = 0; n < kN / 8; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int key = first_key + 8 * n + lane % 4 * 2 + e;
            if (key < p.longest_k) to[key * step] = from_float<Bias>(sum[m][4 * n + 2 * half + e]);
          }
      }
  }
}

}  // namespace heed::kernels
