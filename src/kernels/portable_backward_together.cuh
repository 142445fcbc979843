// dK, dV and dQ in one pass over the scores, for 16-bit types on every GPU from sm_80 on: five products.
//
// One CTA owns C.tile() keys of one key/value head. It goes over the query heads of the group and over the blocks of
// query rows that see one of its keys; their Q, dO, LSE and D come by cp.async into a ring. Each product has the eight
// warps arranged as suits it, so that what a warp reads from shared memory serves many mma; P and dS change owners
// through shared memory:
//   S, dP  [step, tile]     2 x 4 warps, a step of the block's rows at a time
//   dV, dK [tile, d_v or d] C.key_warps() of 32 keys x C.column_warps(), in registers from the first block to the last
//   dQ     [block, d]       C.row_warps() x C.dq_column_warps(), added to the sum in memory (dq_sum)
// C.in_turns: S and dP by those warps that have dV and dK of their keys, who need not wait for the others; half of the
// warps are at dQ while the others are at the block behind it. P is theirs alone, dS of two blocks is there.
// Tiles of keys add to that sum in any order: the last bits of dQ differ from run to run.
#pragma once

#include "portable_backward_blocks.cuh"
#include "portable_backward_careful.cuh"
#include "portable_backward_features.cuh"
#include "portable_backward_gather.cuh"
#include "portable_backward_tiles.cuh"

namespace heed::kernels {

/// K and V of the tile, by all threads.
template <PortableBackwardConfig C>
HEED_DEVICE void load_keys(const BackwardParams& bp, const TileState& t, TogetherMemory<C> memory, u32 thread) {
  using T = typename TagOf<C.type>::Type;
  const ForwardParams& p = bp.forward;
  load_tile<T, T, C.tile(), C.d, C.threads(), C.row_bytes>(
      memory.k, matrix_of<T>(p.k, p.k_steps, t.batch, t.kv_head, t.q.k_row, t.q.s_k, p.d), t.first_key, thread);
  load_tile<T, T, C.tile(), C.d_v, C.threads(), C.row_bytes>(
      memory.v(), matrix_of<T>(p.v, p.v_steps, t.batch, t.kv_head, t.q.k_row, t.q.s_k, p.d_v), t.first_key, thread);
}

/// Q, dO, LSE and D of a block of rows, by all threads.
template <PortableBackwardConfig C>
HEED_DEVICE void load_rows(const BackwardParams& bp, const HeadRows& rows, TogetherMemory<C> memory, u32 slot,
                           u32 thread_index) {
  using T = typename TagOf<C.type>::Type;
  using Raw = typename T::Raw;
  const ForwardParams& p = bp.forward;
  const u32 thread = fresh(thread_index);
  if constexpr (C.row_bytes == 16) {
    if (p.d == C.d && p.d_v == C.d_v && rows.row + C.block <= memory.order().rows) {  // as nearly always
      const RowSources from = memory.sources();
      const u64 head = u32(rows.head), row = u32(rows.row);
      load_whole_tile<T, C.block, C.d, C.threads()>(
          memory.q(slot), static_cast<const Raw*>(from.q) + (head * p.q_steps.head + row * p.q_steps.row),
          p.q_steps.row, thread);
      load_whole_tile<T, C.block, C.d_v, C.threads()>(
          memory.d_o(slot), static_cast<const Raw*>(from.d_o) + (head * bp.d_o_steps.head + row * bp.d_o_steps.row),
          bp.d_o_steps.row, thread);
      constexpr u32 kFours = C.block / 4;
      if (thread < 2 * kFours)
        copy_16_or_zeros(memory.stats(slot) + thread * 16,
                         (thread < kFours ? from.lse : from.dot) + (head * bp.row_space + row + thread % kFours * 4),
                         true);
      return;
    }
  }
  const TileState t = tile_state_at(memory.state());
  const int head = t.kv_head * p.group + rows.head, row = rows.row;
  load_tile<T, T, C.block, C.d, C.threads(), C.row_bytes>(
      memory.q(slot), matrix_of<T>(p.q, p.q_steps, t.batch, head, t.q.q_row, t.q.s_q, p.d), row, thread);
  load_tile<T, T, C.block, C.d_v, C.threads(), C.row_bytes>(
      memory.d_o(slot), matrix_of<T>(bp.d_o, bp.d_o_steps, t.batch, head, t.q.q_row, t.q.s_q, p.d_v), row, thread);
  const i64 first_place = head * bp.row_space + row_start(p, t.q, t.batch);
#pragma unroll 1
  for (int n = fresh(thread); n < 2 * C.block; n += C.threads()) {
    const int stats_row = row + n % C.block;
    const float* const from = n < C.block ? bp.row_lse : bp.row_dot;
    const bool inside = stats_row < t.q.s_q;
    copy_4(memory.stats(slot) + n * 4, from + first_place + (inside ? stats_row : 0), inside ? 4 : 0);
  }
}

/// The rows of a block that are a warp's in the product of dQ, [16 * kDqM, d / C.dq_column_warps()].
template <PortableBackwardConfig C>
HEED_DEVICE int first_dq_row(int warp) {
  return warp / C.dq_column_warps() * (C.block / C.row_warps());
}
/// dQ = dS K for those rows, added to its sum.
template <PortableBackwardConfig C, Stored kStored>
HEED_DEVICE void add_dq(const BackwardParams& bp, const HeadRows& here, TogetherMemory<C> memory, u32 ds_at, int warp,
                        int lane) {
  using T = typename TagOf<C.type>::Type;
  constexpr int kD = C.d, kDqColumnWarps = C.dq_column_warps(), kDqM = C.block / C.row_warps() / 16;
  constexpr int kStoredColumns = kStored == Stored::by_row ? C.tile() : C.block;
  const int dq_row = first_dq_row<C>(warp), column = warp % kDqColumnWarps, row = here.row + dq_row;
  float dq[kDqM][kD / kDqColumnWarps / 2];
  clear(dq);
  add_stored_product<T, kStored, kStoredColumns, kD, C.tile(), kDqColumnWarps, C.in_turns ? 2 : 1>(
      dq, stored_first<kStored, kStoredColumns>(ds_at, dq_row, lane), columns_first<kD>(memory.k, column, lane));
  const int rows = memory.order().rows - row;
  float* const to =
      memory.sums().dq + (u64(u32(here.head)) * bp.row_space + u32(row)) * kD + column * kSumTile;
#pragma unroll
  for (int m = 0; m < kDqM; ++m) {
    if (16 * m >= rows) break;
#pragma unroll
    for (int n = 0; n < kD / kDqColumnWarps / 16; ++n)
      add_to_sum(to + (16 * m * kD + n * kDqColumnWarps * kSumTile), eighth(dq[m], n), lane);
  }
}

/// What a warp has to do for a block: whether some of its rows see some of its keys, of dV and dK, and of dQ.
struct WarpsPart {
  bool sums, dq;
};

template <PortableBackwardConfig C>
__device__ __forceinline__ void portable_backward_together(const BackwardParams& bp) {
  static_assert(C.impossible() == nullptr && C.is_together() && !C.is_narrow());
  using T = typename TagOf<C.type>::Type;
  constexpr ForwardFeatures F = C.features;
  constexpr int kD = C.d, kDv = C.d_v, kTile = C.tile(), kBlock = C.block, kStep = C.step;
  constexpr int kStages = C.stages;
  constexpr u32 kBytes = sizeof(typename T::Raw), kWeightBytes = TogetherMemory<C>::kWeightBytes;
  constexpr int kM = kStep / 32, kN = kTile / 4;                  // S and dP of a warp: [16 * kM, kN]
  constexpr int kUnroll = kD % 64 == 0 && kDv % 64 == 0 ? 4 : 2;  // more would be loaded ahead than registers hold
  constexpr int kColumnWarps = C.column_warps();
  constexpr bool kAsksTile = F.own_lengths || F.changes_scores() || F.bit_masks() || F.dropout;  // for every score
  constexpr int kDqRows = kBlock / C.row_warps();
  // Where a warp would have S and dP of 16 keys it has one of them of 32: what it reads serves more products.
  constexpr bool kOneOfTwo = C.in_turns && kN == 16 && kD == kDv;
  constexpr int kSeenKeys = kOneOfTwo ? 2 * kN : kN;  // that warps ask for together

  const ForwardParams& p = bp.forward;
  extern __shared__ __align__(128) u8 heed_shared[];
  const TogetherMemory<C> memory{shared_address(heed_shared)};
  const u32 state_at = memory.state();
  TileState* const state = reinterpret_cast<TileState*>(heed_shared + (state_at - memory.k));
  const u32 thread = threadIdx.x;
  const int lane = thread % 32, warp = __shfl_sync(0xffffffffu, thread / 32, 0);

  // In turns no register is left to keep them in.
  const auto my_thread = [&] { return C.in_turns ? thread_anew() : thread; };
  const auto my_lane = [&] { return C.in_turns ? int(thread_anew() % 32) : lane; };

  i64 tile = blockIdx.x;
#pragma unroll 1
  while (tile < i64(p.row_tiles) * (p.heads / p.group) * p.batch) {
    set_tile<C>(bp, tile, state, thread);
    __syncthreads();
    const int count = memory.order().of_head * p.group;
    const auto rows_of = [&](int block) { return block_rows<kBlock>(memory.order(), block); };
    const auto load = [&](int slot, int block) { load_rows<C>(bp, rows_of(block), memory, slot, my_thread()); };
    constexpr bool kTwoAhead = C.in_turns || kStages == 3;  // at the beginning, where nobody waits for the second block
    if (count > 0) {
      load_keys<C>(bp, tile_state_at(state_at), memory, my_thread());
#pragma unroll 1
      for (int block = 0; block < (kTwoAhead ? 2 : 1); ++block) {
        if (block < count) load(block, block);
        close_copies();
      }
      if constexpr (!C.in_turns) {
        wait_copies<kTwoAhead ? 1 : 0>();
        __syncthreads();
      }
    }

    float dk[2][kD / kColumnWarps / 2], dv[2][kDv / kColumnWarps / 2];  // [32 keys, columns of the warp]
    clear(dk);
    clear(dv);
    const DropKey drop_words = F.dropout ? drop_key(p) : DropKey{};

    // P and dS of [16 * kM, kN], from row first_within of the block and from score_key of the tile on; then of the rows
    // a step behind.
    const auto weigh = [&](const HeadRows& rows, int slot, int first_within, int score_key, u32 p_at, u32 ds_at)
        __attribute__((always_inline)) {
#pragma unroll 1
      for (int within = first_within; within < kBlock; within += kStep) {
        float s[kM][kN / 2], dp[kM][kN / 2];  // products, then P and dS
        clear(s);
        clear(dp);
        const int seen_key = score_key / kSeenKeys * kSeenKeys;
        const PairsSeen seen =
            memory.sees_all(rows.row)
                ? PairsSeen::all
                : pairs_seen<F>(tile_state_at(state_at), rows.row + within, 16 * kM, seen_key, kSeenKeys);
        if (seen != PairsSeen::none) {
          const u32 my_q = memory.q(slot) + within * kD * kBytes, my_k = memory.k + score_key * kD * kBytes,
                    my_do = memory.d_o(slot) + within * kDv * kBytes, my_v = memory.v() + score_key * kDv * kBytes;
          if constexpr (kOneOfTwo) {
            const u32 my_warp = fresh(warp);
            const bool of_dp = my_warp / 2 % 2 != 0;
            float product[kM][kN];
            clear(product);
            multiply_ahead<T, kD>(product, of_dp ? my_do : my_q,
                                  (of_dp ? memory.v() : memory.k) + seen_key * kD * kBytes, my_lane());
            // The two warps' memory is where their P and dS will be.
            const u32 place = chunk_offset<kTile / 8>(within + my_lane(), seen_key / 8);
            exchange_halves(product, of_dp, s, dp, p_at + place, ds_at + place, 3 + my_warp / 4 * 2 + my_warp % 2);
          } else if constexpr (C.in_turns) {
            multiply_ahead<T, kD, kDv>(s, dp, my_q, my_k, my_do, my_v, my_lane());
          } else {
            multiply_rows<T, kD, kN, kM, kUnroll>(s, my_q, my_k, p.d, my_lane());
            multiply_rows<T, kDv, kN, kM, kUnroll>(dp, my_do, my_v, p.d_v, my_lane());
          }
          // `edge`: some pair is hidden. A constant, so that where none is nobody asks again, nor for the tile.
          const auto differentiate_all = [&]<bool edge>() __attribute__((always_inline)) {
            TileState t;
            if constexpr (edge || kAsksTile) {
              t = tile_state_at(state_at);
            } else {
              t.q = sequence_of<F>(p, 0);
              t.kv_head = t.batch = t.first_key = 0;
            }
            const Sequence& q = t.q;
            const int head = t.kv_head * p.group + rows.head, row = rows.row + within, key = t.first_key + score_key;
#pragma unroll
            for (int m = 0; m < kM; ++m) {
              const int my_row = int(fresh(row + 16 * m + my_lane() / 4));
              RowFeatures<F, T> two_rows[2];
              if (F.changes_scores() || F.bit_masks() || edge) {
                two_rows[0].set(p, q, t.batch, head, my_row);
                two_rows[1].set(p, q, t.batch, head, my_row + 8);
              }
              RowStates states;
#pragma unroll
              for (int half = 0; half < 2; ++half) {
                float lse[1], dot[1];
                const u32 at = memory.stats(slot) + (within + 16 * m + 8 * half + my_lane() / 4) * 4;
                load_shared(lse, at);
                load_shared(dot, at + kBlock * 4);
                states.lse[half] = my_row + 8 * half < q.s_q ? lse[0] : HEED_INFINITY;
                states.dot[half] = dot[0];
              }
              float no_sums[2];
#pragma unroll
              for (int n = 0; n < kN / 16; ++n) {
                const ScoreTile at{row + 16 * m,
                                   int(fresh(key)) + 16 * n,
                                   q.s_k,
                                   edge,
                                   u32(t.batch) * p.heads + head,
                                   {fresh(drop_words.k0), fresh(drop_words.k1), drop_words.offset}};
                differentiate<C.part, F, T>(p, two_rows, states, at, eighth(s[m], n), eighth(dp[m], n), no_sums,
                                            my_lane());
              }
            }
          };
          if (seen == PairsSeen::some) {
            differentiate_all.template operator()<true>();
          } else {
            differentiate_all.template operator()<false>();
          }
        }
        store_weights<T, kTile>(p_at, s, within, score_key, my_lane());
        store_weights<T, kTile>(ds_at, dp, within, score_key, my_lane());
      }
    };
    const auto add_to_keys = [&](int slot, u32 p_at, u32 ds_at) __attribute__((always_inline)) {
      const int sum_warp = int(fresh(warp)), sum_key = sum_warp / kColumnWarps * 32;
      const int sum_column = sum_warp % kColumnWarps;
      add_stored_product<T, Stored::by_depth, kTile, kDv, kBlock, kColumnWarps>(
          dv, stored_first<Stored::by_depth, kTile>(p_at, sum_key, my_lane()),
          columns_first<kDv>(memory.d_o(slot), sum_column, my_lane()));
      add_stored_product<T, Stored::by_depth, kTile, kD, kBlock, kColumnWarps>(
          dk, stored_first<Stored::by_depth, kTile>(ds_at, sum_key, my_lane()),
          columns_first<kD>(memory.q(slot), sum_column, my_lane()));
    };

    if constexpr (C.in_turns) {
      // Between two barriers come dQ of block i and all else of block i + 1: for half of the warps the one first, for
      // half the other, so that the two warps of a scheduler are never both at exponentials.
      int slot = 0;  // of block i + 1
#pragma unroll 1
      for (int i = -1; i < count; ++i) {
        // So block i + 1 has come, dS of block i is there, and nobody reads its Q and dO any more.
        if (i < 0) {
          wait_copies<1>();
        } else {
          wait_copies<0>();
        }
        __syncthreads();
        const auto ds_of = [&](int slot) { return memory.weights() + (slot + 1) * kWeightBytes; };
#pragma unroll 1
        for (int half = 0; half < 2; ++half) {
          const int my_warp = int(fresh(warp));
          if ((my_warp < 4) == (half == 0)) {
            if (i < 0) continue;
            const HeadRows rows = rows_of(i);
            if (memory.sees_all(rows.row) ||
                sees<F>(tile_state_at(state_at), rows.row + first_dq_row<C>(my_warp), kDqRows, 0, kTile))
              add_dq<C, Stored::by_row>(bp, rows, memory, ds_of(slot ^ 1), my_warp, my_lane());
          } else {
            if (i + 1 == count) continue;
            // Here, not behind the barrier for all: there the other half of the warps has its products at once.
            if (i >= 0 && i + 2 < count) load(slot ^ 1, i + 2);
            close_copies();
            const HeadRows rows = rows_of(i + 1);
            // Warps that share 32 keys have scores of them alone: half of the rows each, and all or half of the keys.
            const int owner = my_warp / kColumnWarps;
            const int score_key = 32 * owner + my_warp / 2 % (kColumnWarps / 2) * kN;
            weigh(rows, slot, my_warp % 2 * (16 * kM), score_key, memory.weights(), ds_of(slot));
            barrier_sync(1 + int(fresh(warp)) / kColumnWarps, 32 * kColumnWarps);
            if (memory.sees_all(rows.row) ||
                sees<F>(tile_state_at(state_at), rows.row, kBlock, int(fresh(warp)) / kColumnWarps * 32, 32))
              add_to_keys(slot, memory.weights(), ds_of(slot));
          }
        }
        slot ^= 1;
      }
    } else {
      int slot = 0;
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        const u32 p_at = memory.weights() + (C.weight_buffers() == 2 ? i % 2 * (2 * kWeightBytes) : 0),
                  ds_at = p_at + kWeightBytes;
        // Two stages: block i has come, and all are done with block i - 1, its P and dS.
        if constexpr (kStages == 2) {
          if (i + 1 < count) load(slot ^ 1, i + 1);
          close_copies();
        }

        const HeadRows here = rows_of(i);
        const int my_warp = int(fresh(warp)), score_key = my_warp % 4 * kN;
        const WarpsPart part = [&] {
          const TileState t = tile_state_at(state_at);
          const int sum_key = my_warp / kColumnWarps * 32, dq_row = here.row + first_dq_row<C>(my_warp);
          return WarpsPart{sees<F>(t, here.row, kBlock, sum_key, 32), sees<F>(t, dq_row, kDqRows, 0, kTile)};
        }();
        weigh(here, slot, my_warp / 4 * (16 * kM), score_key, p_at, ds_at);
        // Three stages: so block i + 1 has come, and nobody reads block i - 1, nor its P and dS, any more.
        if constexpr (kStages == 3) wait_copies<0>();
        __syncthreads();
        if constexpr (kStages == 3) {
          if (i + 2 < count) load(slot == 0 ? 2 : slot - 1, i + 2);
          close_copies();
        }

        // dQ first: its adds leave while dV and dK are multiplied.
        if (part.dq)
          add_dq<C, Stored::by_row>(bp, rows_of(i), memory, ds_at, int(fresh(warp)), lane);

        if (part.sums) add_to_keys(slot, p_at, ds_at);
        if constexpr (kStages == 3) {
          slot = slot == 2 ? 0 : slot + 1;
        } else {
          if constexpr (kStages == 1) {
            __syncthreads();  // all are done with the block
            if (i + 1 < count) load(0, i + 1);
            close_copies();
          } else {
            slot ^= 1;
          }
          wait_copies<0>();
          __syncthreads();
        }
      }
    }

    const TileState t = tile_state_at(state_at);
    const int sum_key = warp / kColumnWarps * 32, sum_column = warp % kColumnWarps, own_key = t.first_key + sum_key;
    u32 careful = 0;
    if constexpr (F.hides()) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const u32 found = (holds_no_number(dk[k]) ? 1u : 0u) | (holds_no_number(dv[k]) ? 2u : 0u);
        if (lane == 0 && found != 0) atomicOr(&state->spoilt, found << (sum_key / 8 + 2 * k));
      }
      __syncthreads();  // column by column, warps may have met different ones
      careful = state->spoilt >> (sum_key / 8);
    }
    const Rows<T> dk_rows = rows_to<T>(bp.dk, bp.dk_steps, t.batch, t.kv_head, t.q.k_row, t.q.s_k, p.d);
    const Rows<T> dv_rows = rows_to<T>(bp.dv, bp.dv_steps, t.batch, t.kv_head, t.q.k_row, t.q.s_k, p.d_v);
    const float scale[2] = {p.scale, p.scale}, one[2] = {1.0f, 1.0f};
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int key = own_key + 16 * k;
      if (!(careful >> 2 * k & 1))
        store_rows<T, T, kD / kColumnWarps, 16 * kColumnWarps>(dk_rows, key, 16 * sum_column, dk[k], scale, lane);
      if (!(careful >> 2 * k & 2))
        store_rows<T, T, kDv / kColumnWarps, 16 * kColumnWarps>(dv_rows, key, 16 * sum_column, dv[k], one, lane);
    }
    if constexpr (F.hides()) {
      if (sum_column != 0) careful = 0;  // one warp for all columns
#pragma unroll 1
      for (int k = 0; k < 2; ++k, careful >>= 2) {
        const int key = own_key + 16 * k;
        if (careful % 2 != 0)
          careful_keys<true, F, T, T, T, kD>(bp, fresh(t.batch), fresh(t.kv_head), key, 0, fresh(lane),
                                             PackedRows<F>{bp, t.batch});
        if (careful / 2 % 2 != 0)
          careful_keys<false, F, T, T, T, kDv>(bp, fresh(t.batch), fresh(t.kv_head), key, 0, fresh(lane),
                                               PackedRows<F>{bp, t.batch});
      }
    }
    tile = t.tile + gridDim.x;
    __syncthreads();  // all are done with the tiles, before the next ones are loaded over them
  }
}

}  // namespace heed::kernels
