// dK and dV for every GPU from sm_80 on: dV = P^T dO, dK = scale * dS^T Q, summed over the query heads of a group.
//
// One CTA owns C.tile() keys of one key/value head, each warp its own 16 or 32. It goes over the query heads of the
// group and over the blocks of query rows that see one of its keys; their Q, dO, LSE and D come by cp.async into a
// ring. S = Q K^T and dP = dO V^T are computed anew for C.step rows at a time.
#pragma once

#include "portable_backward_careful.cuh"
#include "portable_backward_features.cuh"
#include "portable_backward_tiles.cuh"
#include "portable_schedule.cuh"

namespace heed::kernels {

template <PortableBackwardConfig C>
__device__ __forceinline__ void portable_backward_keys(const BackwardParams& bp) {
  static_assert(C.impossible() == nullptr && C.owns_keys());
  using T = typename TagOf<C.type>::Type;
  using Input = typename TagOf<C.input>::Type;
  using Output = typename TagOf<C.output>::Type;
  using Raw = typename T::Raw;
  constexpr ForwardFeatures F = C.features;
  constexpr bool kPieces = C.in_pieces();
  constexpr int kD = kPieces ? C.piece : C.d, kDv = kPieces ? C.piece : C.d_v;  // columns of tiles
  constexpr int kDSum = C.has_keys() ? C.pass_d() : 32, kDvSum = C.has_values() ? C.pass_d_v() : 32;
  constexpr int kTile = C.tile(), kBlock = C.block, kStep = C.step, kM = C.step / 16, kK = C.warp_rows / 16;
  constexpr int kThreads = C.threads(), kRowBytes = C.row_bytes, kStages = C.stages;
  constexpr u32 kBytes = sizeof(Raw), kBlockBytes = C.block_bytes();

  const ForwardParams& p = bp.forward;
  extern __shared__ __align__(128) u8 heed_shared[];
  const u32 k_at = shared_address(heed_shared);  // [tile, d], or a piece of K or V
  const u32 v_at = k_at + kTile * kD * kBytes;   // [tile, d_v]; not for dV alone
  const u32 ring_at = k_at + C.owned_bytes();    // [stages]: Q [block, d], dO [block, d_v], or a piece of either
  const u32 stats_at = ring_at + kStages * kBlockBytes;  // [stages]: LSE [block], D [block]
  const u32 thread = threadIdx.x;
  const int lane = thread % 32, warp = __shfl_sync(0xffffffffu, thread / 32, 0);
  const u32 weights_at =
      stats_at + kStages * C.stats_bytes() + warp * C.warp_rows * kStep * 4;  // [warp_rows, step], f32

  const int kv_heads = p.heads / p.group;
  const int passes = kPieces ? ((C.has_keys() ? p.d : p.d_v) + C.pass - 1) / C.pass : 1;
  const i64 tiles = i64(p.row_tiles) * kv_heads * p.batch * passes;
#pragma unroll 1
  for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const i64 place = tile / passes, pair = place / p.row_tiles;  // under a right mask the first keys have most to do
    const int first_column = int(tile % passes) * C.pass;
    const int kv_head = int(pair % kv_heads), batch = int(pair / kv_heads);
    const Sequence q = sequence_of<F>(p, batch);
    const int first_key = int(place % p.row_tiles) * kTile, warp_key = first_key + warp * C.warp_rows;
    if (first_key >= q.s_k) continue;

    QueryRange range, mine;  // of the CTA; of this warp, none where it has no keys
    range.template set<F>(q, first_key, min(first_key + kTile, q.s_k) - 1);
    mine.template set<F>(q, warp_key, min(warp_key + C.warp_rows, q.s_k) - 1);
    if (warp_key >= q.s_k) mine.end = 0;
    const int first_block = range.begin / kBlock;
    const int blocks = max((range.end + kBlock - 1) / kBlock - first_block, 0), count = blocks * p.group;

    const Matrix<Input> keys = matrix_of<Input>(p.k, p.k_steps, batch, kv_head, q.k_row, q.s_k, p.d);
    const Matrix<Input> values = matrix_of<Input>(p.v, p.v_steps, batch, kv_head, q.k_row, q.s_k, p.d_v);
    const auto queries = [&](int head) { return matrix_of<Input>(p.q, p.q_steps, batch, head, q.q_row, q.s_q, p.d); };
    const auto outputs = [&](int head) {
      return matrix_of<Output>(bp.d_o, bp.d_o_steps, batch, head, q.q_row, q.s_q, p.d_v);
    };
    const auto head_of = [&](int i) { return kv_head * p.group + i / blocks; };
    const auto row_of = [&](int i) { return (first_block + i % blocks) * kBlock; };
    const auto load_stats = [&](int i, int slot) {
      for (int n = thread; n < 2 * kBlock; n += kThreads) {
        const int row = row_of(i) + n % kBlock;
        const float* const from = n < kBlock ? bp.row_lse : bp.row_dot;
        const bool inside = row < q.s_q;
        copy_4(stats_at + (slot * 2 * kBlock + n) * 4,
               from + head_of(i) * bp.row_space + row_start(p, q, batch) + (inside ? row : 0), inside ? 4 : 0);
      }
    };
    const auto load_block = [&](int i, int slot) {
      const u32 at = ring_at + slot * kBlockBytes;
      load_tile<T, Input, kBlock, kD, kThreads, kRowBytes>(at, queries(head_of(i)), row_of(i), thread);
      load_tile<T, Output, kBlock, kDv, kThreads, kRowBytes>(at + kBlock * kD * kBytes, outputs(head_of(i)), row_of(i),
                                                             thread);
      load_stats(i, slot);
    };

    if constexpr (!kPieces) {
      if (count > 0) {
        load_tile<T, Input, kTile, kD, kThreads, kRowBytes>(k_at, keys, first_key, thread);
        if constexpr (C.has_scores())
          load_tile<T, Input, kTile, kDv, kThreads, kRowBytes>(v_at, values, first_key, thread);
      }
#pragma unroll
      for (int i = 0; i < max(kStages - 1, 1); ++i) {
        if (i < count) load_block(i, i);
        close_copies();
      }
    }

    float dk[kK][kDSum / 2], dv[kK][kDvSum / 2];  // [warp_rows, d], [warp_rows, d_v], or a pass of them
    clear(dk);
    clear(dv);
    const DropKey drop_words = F.dropout ? drop_key(p) : DropKey{};

    int slot = 0;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const int head = head_of(i), block_row = row_of(i);
      if constexpr (!kPieces) {
        wait_copies<(kStages > 2 ? kStages - 2 : 0)>();
        __syncthreads();  // block i is here for all, and all are done with the memory that is loaded next
        if constexpr (kStages > 1) {
          if (i + kStages - 1 < count) load_block(i + kStages - 1, slot == 0 ? kStages - 1 : slot - 1);
          close_copies();
        }
      }
      const u32 q_at = ring_at + slot * kBlockBytes, do_at = q_at + kBlock * kD * kBytes;
#pragma unroll 1
      for (int within = 0; within < kBlock; within += kStep) {
        const int row = block_row + within;
        const bool seen = row < mine.end && row + kStep > mine.begin;
        if (!kPieces && !seen) continue;

        float s[kM][8 * kK], dp[kM][8 * kK];  // [step, warp_rows]: products, then P and dS
        clear(s);
        clear(dp);
        if constexpr (kPieces) {
          const PieceTiles at{ring_at, k_at, ring_at, k_at + warp * C.warp_rows * kD * kBytes};
          multiply_in_pieces<T, kBlock, kTile, kD, kThreads, kRowBytes, 16 * kK, kM>(
              s, at, queries(head), row, keys, first_key, seen, thread, lane);
          if constexpr (C.has_scores())
            multiply_in_pieces<T, kBlock, kTile, kD, kThreads, kRowBytes, 16 * kK, kM>(
                dp, at, outputs(head), row, values, first_key, seen, thread, lane);
          load_stats(i, 0);  // arrives with the columns below
          if constexpr (C.has_keys()) {
            load_columns<T, kBlock, kDSum, kThreads, kRowBytes>(ring_at, queries(head), row, first_column, thread);
          } else {
            load_columns<T, kBlock, kDvSum, kThreads, kRowBytes>(ring_at, outputs(head), row, first_column, thread);
          }
          if (!seen) continue;
        } else {
          multiply_rows<T, kD, 16 * kK, kM>(s, q_at + within * kD * kBytes,
                                                    k_at + warp * C.warp_rows * kD * kBytes, p.d, lane);
          if constexpr (C.has_scores())
            multiply_rows<T, kDv, 16 * kK, kM>(dp, do_at + within * kDv * kBytes,
                                                       v_at + warp * C.warp_rows * kDv * kBytes, p.d_v, lane);
        }

        const bool edge = warp_key + C.warp_rows > (F.mask == MaskShape::none ? q.s_k : q.end(row)) ||
                          (F.mask == MaskShape::window && warp_key < q.begin(row + kStep - 1));
        const u32 lse_at = stats_at + (slot * 2 * kBlock + within) * 4;
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          const int my_row = int(fresh(row + 16 * m + lane / 4));
          RowFeatures<F, Input> rows[2];
          if (F.changes_scores() || F.bit_masks() || edge) {
            rows[0].set(p, q, batch, head, my_row);
            rows[1].set(p, q, batch, head, my_row + 8);
          }
          RowStates states;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float lse[1], dot[1];
            const u32 at = lse_at + (16 * m + 8 * half + lane / 4) * 4;
            load_shared(lse, at);
            load_shared(dot, at + kBlock * 4);
            states.lse[half] = my_row + 8 * half < q.s_q ? lse[0] : HEED_INFINITY;
            states.dot[half] = dot[0];
          }
          float no_sums[2];
#pragma unroll
          for (int k = 0; k < kK; ++k) {
            const ScoreTile at{row + 16 * m,
                               warp_key + 16 * k,
                               q.s_k,
                               edge,
                               u32(batch) * p.heads + head,
                               {fresh(drop_words.k0), fresh(drop_words.k1), drop_words.offset}};
            differentiate<C.part, F, Input>(p, rows, states, at, eighth(s[m], k), eighth(dp[m], k), no_sums, lane);
          }
        }
        if constexpr (C.has_values())
          add_transposed_product<T, kDvSum, kM, kK>(dv, s, weights_at,
                                                            kPieces ? ring_at : do_at + within * kDv * kBytes, lane);
        if constexpr (C.has_keys())
          add_transposed_product<T, kDSum, kM, kK>(dk, dp, weights_at,
                                                           kPieces ? ring_at : q_at + within * kD * kBytes, lane);
      }
      if constexpr (!kPieces && kStages == 1) {
        __syncthreads();  // all are done with the block
        if (i + 1 < count) load_block(i + 1, 0);
        close_copies();
      }
      if constexpr (kStages > 1) slot = slot == kStages - 1 ? 0 : slot + 1;
    }

    if (warp_key < q.s_k) {
      const Rows<Input> dk_rows = rows_to<Input>(bp.dk, bp.dk_steps, batch, kv_head, q.k_row, q.s_k, p.d);
      const Rows<Input> dv_rows = rows_to<Input>(bp.dv, bp.dv_steps, batch, kv_head, q.k_row, q.s_k, p.d_v);
      const float scale[2] = {p.scale, p.scale}, one[2] = {1.0f, 1.0f};
      u32 careful = 0;  // bits 2 * k and 2 * k + 1: dK and dV of these 16 keys have met a hidden row that is no number
#pragma unroll
      for (int k = 0; k < kK; ++k) {
        if constexpr (C.has_keys()) {
          if (F.hides() && holds_no_number(dk[k])) {
            careful |= 1u << 2 * k;
          } else {
            store_rows<T, Input, kDSum>(dk_rows, warp_key + 16 * k, first_column, dk[k], scale, lane);
          }
        }
        if constexpr (C.has_values()) {
          if (F.hides() && holds_no_number(dv[k])) {
            careful |= 2u << 2 * k;
          } else {
            store_rows<T, Input, kDvSum>(dv_rows, warp_key + 16 * k, first_column, dv[k], one, lane);
          }
        }
      }
      if constexpr (F.hides()) {
#pragma unroll 1
        for (int k = 0; careful != 0; ++k, careful >>= 2) {
          if (C.has_keys() && careful % 2 != 0)
            careful_keys<true, F, T, Input, Output, kDSum>(bp, fresh(batch), fresh(kv_head), warp_key + 16 * k,
                                                           first_column, fresh(lane), PackedRows<F>{bp, batch});
          if (C.has_values() && careful / 2 % 2 != 0)
            careful_keys<false, F, T, Input, Output, kDvSum>(bp, fresh(batch), fresh(kv_head), warp_key + 16 * k,
                                                             first_column, fresh(lane), PackedRows<F>{bp, batch});
        }
      }
    }
    __syncthreads();  // all are done with the tiles, before the next ones are loaded over them
  }
}

}  // namespace heed::kernels
