// dQ for every GPU from sm_80 on: dQ = scale * dS K, and what each row adds to the gradient of the ALiBi slopes.
//
// One CTA owns C.tile() query rows of one head, each warp its own 16 or 32, and goes over the blocks of keys that some
// row sees, the last one first, as the forward kernel does. K and V come by cp.async into a ring of C.stages blocks;
// S = Q K^T and dP = dO V^T are computed anew.
#pragma once

#include "portable_backward_careful.cuh"
#include "portable_backward_features.cuh"
#include "portable_backward_tiles.cuh"
#include "portable_schedule.cuh"

namespace heed::kernels {

template <PortableBackwardConfig C>
__device__ __forceinline__ void portable_backward_queries(const BackwardParams& bp) {
  static_assert(C.impossible() == nullptr && C.part == BackwardPart::queries);
  using T = typename TagOf<C.type>::Type;
  using Input = typename TagOf<C.input>::Type;
  using Output = typename TagOf<C.output>::Type;
  using Raw = typename T::Raw;
  constexpr ForwardFeatures F = C.features;
  constexpr bool kPieces = C.in_pieces();
  constexpr int kD = kPieces ? C.piece : C.d, kDv = kPieces ? C.piece : C.d_v, kDSum = C.pass_d();
  constexpr int kTile = C.tile(), kBlock = C.block, kN = C.step, kM = C.warp_rows / 16;
  constexpr int kThreads = C.threads(), kRowBytes = C.row_bytes, kStages = C.stages;
  constexpr u32 kBytes = sizeof(Raw), kBlockBytes = C.block_bytes();

  const ForwardParams& p = bp.forward;
  extern __shared__ __align__(128) u8 heed_shared[];
  const u32 q_at = shared_address(heed_shared);  // [tile, d], or a piece of Q or dO
  const u32 do_at = q_at + kTile * kD * kBytes;  // [tile, d_v]
  const u32 ring_at = q_at + C.owned_bytes();    // [stages]: K [block, d], V [block, d_v], or a piece of either
  const u32 thread = threadIdx.x;
  const int lane = thread % 32, warp = __shfl_sync(0xffffffffu, thread / 32, 0);
  const u32 weights_at = ring_at + kStages * kBlockBytes + warp * C.warp_rows * kN * 4;  // [warp_rows, step], f32 only
  const u32 my_q_at = q_at + warp * C.warp_rows * kD * kBytes, my_do_at = do_at + warp * C.warp_rows * kDv * kBytes;

  const int passes = kPieces ? (p.d + C.pass - 1) / C.pass : 1;
  const i64 tiles = i64(p.row_tiles) * p.heads * p.batch * passes;
#pragma unroll 1
  for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const PortableTile t = portable_tile<F.mask>(p, tile / passes);
    const int first_column = int(tile % passes) * C.pass;
    const Sequence q = sequence_of<F>(p, t.batch);
    const int first_row = t.row_tile * kTile, warp_row = first_row + warp * C.warp_rows;
    if (first_row >= q.s_q) continue;

    KeyBlocks blocks;
    blocks.template set<F, kBlock>(q, first_row, min(first_row + kTile, q.s_q) - 1);
    // Keys that some row of the warp sees: [my_begin, my_end) and [0, my_sink); none where it has no rows.
    const int warp_last = min(warp_row + C.warp_rows, q.s_q) - 1;
    const int my_end = warp_row >= q.s_q ? 0 : F.mask == MaskShape::none ? q.s_k : q.end(warp_last);
    const int my_begin = F.mask == MaskShape::window ? q.begin(warp_row) : 0;
    const int my_sink = F.mask == MaskShape::window ? q.sink_end(warp_last) : 0;
    // Those between these are seen by all.
    const int clear_end = F.mask == MaskShape::none ? q.s_k : q.end(warp_row);
    const int clear_begin = F.mask == MaskShape::window ? q.begin(warp_row + C.warp_rows - 1) : 0;

    const int kv_head = t.head / p.group;
    const Matrix<Input> queries = matrix_of<Input>(p.q, p.q_steps, t.batch, t.head, q.q_row, q.s_q, p.d);
    const Matrix<Output> outputs = matrix_of<Output>(bp.d_o, bp.d_o_steps, t.batch, t.head, q.q_row, q.s_q, p.d_v);
    const Matrix<Input> keys = matrix_of<Input>(p.k, p.k_steps, t.batch, kv_head, q.k_row, q.s_k, p.d);
    const Matrix<Input> values = matrix_of<Input>(p.v, p.v_steps, t.batch, kv_head, q.k_row, q.s_k, p.d_v);
    const auto load_block = [&](int i, int slot) {
      const u32 at = ring_at + slot * kBlockBytes;
      load_tile<T, Input, kBlock, kD, kThreads, kRowBytes>(at, keys, blocks.at(i) * kBlock, thread);
      load_tile<T, Input, kBlock, kDv, kThreads, kRowBytes>(at + kBlock * kD * kBytes, values, blocks.at(i) * kBlock,
                                                            thread);
    };
    if constexpr (!kPieces) {
      if (blocks.count > 0) {
        load_tile<T, Input, kTile, kD, kThreads, kRowBytes>(q_at, queries, first_row, thread);
        load_tile<T, Output, kTile, kDv, kThreads, kRowBytes>(do_at, outputs, first_row, thread);
      }
#pragma unroll
      for (int i = 0; i < max(kStages - 1, 1); ++i) {
        if (i < blocks.count) load_block(i, i);
        close_copies();
      }
    }

    const i64 first_place = t.head * bp.row_space + row_start(p, q, t.batch);
    RowStates states[kM];
    float slope_sums[kM][2];
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = warp_row + 16 * m + 8 * half + lane / 4;
        const bool inside = row < q.s_q;
        states[m].lse[half] = inside ? bp.row_lse[first_place + row] : HEED_INFINITY;
        states[m].dot[half] = inside ? bp.row_dot[first_place + row] : 0.0f;
        slope_sums[m][half] = 0.0f;
      }
    float dq[kM][kDSum / 2];  // [warp_rows, d], or a pass of it
    clear(dq);
    const DropKey drop_words = F.dropout ? drop_key(p) : DropKey{};

    int slot = 0;
#pragma unroll 1
    for (int i = 0; i < blocks.count; ++i) {
      if constexpr (!kPieces) {
        wait_copies<(kStages > 2 ? kStages - 2 : 0)>();
        __syncthreads();  // block i is here for all, and all are done with the memory that is loaded next
        if constexpr (kStages > 1) {
          if (i + kStages - 1 < blocks.count) load_block(i + kStages - 1, slot == 0 ? kStages - 1 : slot - 1);
          close_copies();
        }
      }
      const u32 k_at = ring_at + slot * kBlockBytes, v_at = k_at + kBlock * kD * kBytes;
#pragma unroll 1
      for (int within = 0; within < kBlock; within += kN) {
        const int first_key = blocks.at(i) * kBlock + within;
        const bool seen =
            first_key < my_end && (F.mask != MaskShape::window || first_key + kN > my_begin || first_key < my_sink);
        if (!kPieces && !seen) continue;

        float s[kM][kN / 2], dp[kM][kN / 2];  // [warp_rows, step]: products, then P and dS
        clear(s);
        clear(dp);
        if constexpr (kPieces) {
          const PieceTiles at{q_at, ring_at, my_q_at, ring_at};
          multiply_in_pieces<T, kTile, kN, kD, kThreads, kRowBytes, kN, kM>(s, at, queries, first_row, keys,
                                                                                    first_key, seen, thread, lane);
          multiply_in_pieces<T, kTile, kN, kD, kThreads, kRowBytes, kN, kM>(dp, at, outputs, first_row, values,
                                                                                    first_key, seen, thread, lane);
          load_columns<T, kN, kDSum, kThreads, kRowBytes>(ring_at, keys, first_key, first_column, thread);
          if (!seen) continue;
        } else {
          multiply_rows<T, kD, kN, kM>(s, my_q_at, k_at + within * kD * kBytes, p.d, lane);
          multiply_rows<T, kDv, kN, kM>(dp, my_do_at, v_at + within * kDv * kBytes, p.d_v, lane);
        }
        const bool edge = first_key + kN > clear_end || first_key < clear_begin;
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          RowFeatures<F, Input> rows[2];
          if (F.changes_scores() || F.bit_masks() || edge) {
            const int row = int(fresh(warp_row + 16 * m + lane / 4));
            rows[0].set(p, q, t.batch, t.head, row);
            rows[1].set(p, q, t.batch, t.head, row + 8);
          }
#pragma unroll
          for (int n = 0; n < kN / 16; ++n) {
            const ScoreTile at{warp_row + 16 * m,
                               int(fresh(first_key)) + 16 * n,
                               q.s_k,
                               edge,
                               u32(t.batch) * p.heads + t.head,
                               {fresh(drop_words.k0), fresh(drop_words.k1), drop_words.offset}};
            differentiate<C.part, F, Input>(p, rows, states[m], at, eighth(s[m], n), eighth(dp[m], n), slope_sums[m],
                                            lane);
          }
        }
        add_product<T, kDSum, kN, kM>(dq, dp, weights_at, kPieces ? ring_at : k_at + within * kD * kBytes,
                                              lane);
      }
      if constexpr (!kPieces && kStages == 1) {
        __syncthreads();  // all are done with the block
        if (i + 1 < blocks.count) load_block(i + 1, 0);
        close_copies();
      }
      if constexpr (kStages > 1) slot = slot == kStages - 1 ? 0 : slot + 1;
    }

    if (warp_row < q.s_q) {
      const Rows<Input> to = rows_to<Input>(bp.dq, bp.dq_steps, t.batch, t.head, q.q_row, q.s_q, p.d);
      const float factor[2] = {p.scale, p.scale};
      u32 careful = 0;  // bit m: dQ of these 16 rows has met a hidden K that is no number
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        if (F.hides() && spoilt(dq[m], warp_row + 16 * m + lane / 4 < q.s_q)) {
          careful |= 1u << m;
        } else {
          store_rows<T, Input, kDSum>(to, warp_row + 16 * m, first_column, dq[m], factor, lane);
        }
        if constexpr (F.alibi) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float sum = slope_sums[m][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            const int row = warp_row + 16 * m + 8 * half + lane / 4;
            if (bp.d_slopes && first_column == 0 && lane % 4 == 0 && row < q.s_q) bp.row_part[first_place + row] = sum;
          }
        }
      }
      if constexpr (F.hides()) {
#pragma unroll 1
        for (int m = 0; careful != 0; ++m, careful >>= 1)
          if (careful % 2 != 0)
            careful_queries<F, T, Input, Output, kDSum>(bp, fresh(t.batch), fresh(t.head), warp_row + 16 * m,
                                                        first_column, fresh(lane), PackedRows<F>{bp, t.batch});
      }
    }
    __syncthreads();  // all are done with the tiles, before the next ones are loaded over them
  }
}

}  // namespace heed::kernels
