// What the Hopper backward kernels copy: tiles into shared memory, dK and dV out of it, zeros over rows of somebody else.
// C is the configuration of any of them, Barriers what it calls its barriers.
#pragma once

#include "copied_bias.cuh"
#include "hopper_backward_tiles.cuh"
#include "lanes.cuh"
#include "ptx.cuh"
#include "ring.cuh"

namespace heed::kernels {

/// Copies the tiles of this thread block into shared memory. One thread.
template <auto C, class Barriers>
HEED_DEVICE void copy_key_tiles(const TensorMap& map_q, const TensorMap& map_do, const TensorMap& map_k,
                                const TensorMap& map_v, const BackwardParams& p, const Barriers& bar,
                                volatile KeyTile* works, u32 base) {
  const u64 once = drop_from_l2(), keep = keep_in_l2();
  const i64 blocks_of_head = p.row_space / C.tile_q;
  u32 block_count = 0;  // of all tiles
  KeyTileSearch<C> search;
  // Where a tile waits for those before it, who draws one runs, and so do the thread blocks that have these, however few of
  // all have begun. Elsewhere the first ones need no counter.
  constexpr bool kAllDrawn = C.ordered || C.zeroes_ahead();
  int tile = kAllDrawn ? int(atomicAdd(p.counter, 1u)) : int(blockIdx.x);
#pragma unroll 1
  for (u32 tile_count = 0;; ++tile_count) {
    const TileTurn<C> turn(tile_count);
    KeyTile work{};
    const bool done = !search.find(p, tile, work);
    const int key_head = C.in_parts ? work.head / p.parts : work.head;
    auto load = [&](u32 to, const TensorMap* map, u32 barrier, int row, int head, const MapSteps& steps, u32 panel,
                    u64 policy) __attribute__((always_inline)) {
#pragma unroll
      for (int i = 0; i < C.panels(); ++i)
        tma_load(to + i * panel, map, barrier, i * 64, row, head * steps.head, work.batch * steps.batch, policy);
    };
    auto load_q = [&](int block, int head) __attribute__((always_inline)) {
      const RingTurn<C.q_stages()> q(block_count);
      mbarrier_wait(bar.q_empty + 8 * q.stage, q.phase ^ 1);
      const u32 barrier = bar.q_full + 8 * q.stage;
      mbarrier_arrive_expect(barrier, C.q_bytes() + C.tile_q * 4);
      load(base + C.q_at() + q.stage * C.q_bytes(), &map_q, barrier, work.q_row + block * C.tile_q, head, p.q_map,
           C.tile_q * 128, keep);
      bulk_load(base + C.lse_at() + q.stage * (C.tile_q * 4),
                p.row_lse + (head * blocks_of_head + work.row_block + block) * C.tile_q, C.tile_q * 4, barrier);
    };
    auto load_v = [&](u32 barrier) __attribute__((always_inline)) {
      load(base + turn.v_at(), &map_v, barrier, work.k_row + work.tile * C.kTileK, key_head, p.v_map, C.kTileK * 128, once);
    };
    auto wait_for_v_to_be_free = [&]() __attribute__((always_inline)) {
      mbarrier_wait(bar.v_empty, (tile_count & 1) ^ 1);
    };
    auto load_v_alone = [&]() __attribute__((always_inline)) {
      if constexpr (C.swaps_k_and_v()) {
        const TileTurn<C> before(tile_count - 1);
        mbarrier_wait(bar.k_empty + 8 * before.stage, before.phase);
      } else {
        wait_for_v_to_be_free();
      }
      mbarrier_arrive_expect(bar.v_full, C.k_bytes());
      load_v(bar.v_full);
    };
    auto load_o = [&](int block, int head, bool with_v) __attribute__((always_inline)) {
      const RingTurn<C.o_stages()> o(block_count);
      mbarrier_wait(bar.o_empty + 8 * o.stage, o.phase ^ 1);
      if (with_v) wait_for_v_to_be_free();
      const u32 barrier = bar.o_full + 8 * o.stage;
      mbarrier_arrive_expect(barrier, C.q_bytes() + C.tile_q * 4 + (with_v ? C.k_bytes() : 0));
      if (with_v) load_v(barrier);
      load(base + C.o_at() + o.stage * C.q_bytes(), &map_do, barrier, work.q_row + block * C.tile_q, head, p.d_o_map,
           C.tile_q * 128, keep);
      bulk_load(base + C.dot_at() + o.stage * (C.tile_q * 4),
                p.row_dot + (head * blocks_of_head + work.row_block + block) * C.tile_q, C.tile_q * 4, barrier);
      ++block_count;
    };
    u32 ticket = 0;
    TileSteps<C> step(work.first_block, work.end_block, work.head * p.forward.group);
    int left = (work.end_block - work.first_block) * p.forward.group;
    // Where tiles differ or wait for each other, the next one is drawn beside the last loads of this one. Any sooner, and
    // who is at a long tile would hold one that others could begin, or wait for.
    constexpr bool kAlike = !C.ordered && C.features.mask == MaskShape::none && !C.features.own_lengths;
    auto draw_if = [&](bool now) __attribute__((always_inline)) {
      if (now) ticket = atomicAdd(p.counter, 1u);
    };
    auto begin_tile = [&]() __attribute__((always_inline)) {
      const u32 full = bar.k_full + 8 * turn.stage;
      if constexpr (C.swaps_k_and_v()) {
        wait_for_v_to_be_free();
      } else {
        mbarrier_wait(bar.k_empty + 8 * turn.stage, turn.phase ^ 1);
      }
      works[turn.slot].set(work, done);
      if constexpr (C.bias_copied()) mbarrier_arrive(bar.work_full);
      if (done) {
        mbarrier_arrive(full);
        return;
      }
      mbarrier_arrive_expect(full, C.k_bytes() * (C.v_with_k() ? 2 : 1));
      load(base + turn.k_at(), &map_k, full, work.k_row + work.tile * C.kTileK, key_head, p.k_map, C.kTileK * 128, once);
      if constexpr (C.v_with_k()) load_v(full);
    };
    if constexpr (C.k_stages() > 1) begin_tile();
    if (!done) {
      draw_if(kAlike || left == 1);
      load_q(step.block, step.head);
      if constexpr (!C.v_with_k() && !C.v_with_o() && !C.swaps_k_and_v()) load_v_alone();
      load_o(step.block, step.head, C.v_with_o());
      if constexpr (C.swaps_k_and_v()) load_v_alone();  // its room is the last to become free
    }
    if constexpr (C.k_stages() == 1) begin_tile();  // the last to become free
    if (done) break;
#pragma unroll 1
    for (--left; left > 0; --left) {
      step.next();
      draw_if(!kAlike && left == 1);
      load_q(step.block, step.head);
      load_o(step.block, step.head, false);
    }
    tile = kAllDrawn ? int(ticket) : int(gridDim.x + ticket);
  }
}

/// The bias of every block of this thread block's tiles, in the order in which they are computed. One warp. What it needs
/// to know of a tile stays in the slot until its last bias is on the way: registers are few.
template <auto C, class Barriers>
HEED_DEVICE void copy_tile_biases(const BackwardParams& params, const Barriers& bar, const volatile KeyTile* works,
                                  u32 base) {
  const ForwardParams& p = params.forward;
  const Steps& steps = p.bias_steps;
  u32 number = 0;  // of blocks so far, of all tiles
  static_assert(C.kStages == 2);
#pragma unroll 1
  for (u32 tile_count = 0;; ++tile_count) {
    // Not k_full: the first bias of a tile is copied beside its K.
    mbarrier_wait(bar.work_full, tile_count & 1);
    const volatile KeyTile& slot = works[tile_count & 1];
    if (slot.tile < 0) return;
    int left = (slot.end_block - slot.first_block) * p.group;
    TileSteps<C> step(slot.first_block, slot.end_block, slot.head * p.group);
#pragma unroll 1
    for (; left > 0; --left, ++number, step.next()) {
      const u32 stage = number & 1;
      mbarrier_wait(bar.bias_empty + 8 * stage, (number >> 1 & 1) ^ 1);
      const int row = step.block * C.tile_q, key = slot.tile * C.kTileK;
      const char* from = static_cast<const char*>(p.bias) + 2 * (slot.batch * steps.batch + step.head * steps.head +
                                                                 row * steps.row + key * steps.column);
      copy_bias_block<CopiedBias<C.tile_q, C.kTileK>>(steps, base + C.bias_at() + stage * C.bias_bytes(),
                                                    bar.bias_full + 8 * stage, from, slot.s_q - row, slot.s_k - key,
                                                    fresh(threadIdx.x) % 32);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(bar.k_empty);
  }
}

/// A tile of keys' pair of a batch entry and a head, or of a part of its group: see BackwardParams::zeroed.
HEED_DEVICE int pair_of(const BackwardParams& p, int batch, int head) {
  return batch * (p.forward.heads / p.forward.group) + head;
}

/// Zeroes the sum of dQ where tiles will add to it that are drawn later: every tile a share of a pair further on. One warp.
/// Copies do it, for stores would hold up what the math warps read from shared memory, and few at a time, as would those of
/// Q and dO wait behind them.
template <auto C, class Barriers>
HEED_DEVICE void zero_sums_ahead(const BackwardParams& p, const Barriers& bar, const volatile KeyTile* works, u32 base) {
  constexpr int kAtOnce = 4;
  constexpr i64 kBlockBytes = C.tile_q * C.d * C.sum_bytes();
  static_assert(kBlockBytes % (kAtOnce * C.zero_bytes()) == 0);
  const u32 zeros = base + C.zeros_at();
  for (int i = threadIdx.x % 32; i < C.zero_bytes() / 16; i += 32) store_shared_zero_16(zeros + i * 16);
  fence_shared_for_async();
  __syncwarp();
  if (!elect_one()) return;
  const int heads = p.forward.heads / p.forward.group, group = p.forward.group;
  const u64 keep = keep_in_l2();
#pragma unroll 1
  for (u32 tile_count = 0;; ++tile_count) {
    const TileTurn<C> turn(tile_count);
    mbarrier_wait(bar.k_full + 8 * turn.stage, turn.phase);
    const volatile KeyTile& slot = works[turn.slot];
    const int tile = slot.tile, here = pair_of(p, slot.batch, slot.head);
    mbarrier_arrive(bar.k_empty + 8 * turn.stage);
    if (tile < 0) return;
    if (here >= heads * p.forward.batch - p.zeroed_before) continue;
    const int pair = here + p.zeroed_before, batch = pair / heads, first_head = (pair - batch * heads) * group;
    const int first = int(i64(tile) * p.row_blocks / p.key_tiles), end = int(i64(tile + 1) * p.row_blocks / p.key_tiles);
#pragma unroll 1
    for (int head = first_head; head < first_head + group; ++head) {
      char* to = static_cast<char*>(p.dq_sum) + (head * (p.row_space / C.tile_q) + batch * p.row_blocks + first) * kBlockBytes;
      char* const behind = to + (end - first) * kBlockBytes;
#pragma unroll 1
      while (to != behind) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i, to += C.zero_bytes()) bulk_store(to, zeros, C.zero_bytes(), keep);
        tma_store_commit();
        tma_store_wait_read<0>();
      }
    }
    tma_store_wait<0>();
    fence_global_for_async();
    add_release(p.zeroed + pair, 1);
  }
}
/// Waits until all tiles that zero this pair's sum have done so. One thread.
HEED_DEVICE void wait_for_zeros(const BackwardParams& p, int pair) {
  if (pair < p.zeroed_before) return;
  while (load_acquire(p.zeroed + pair) != u32(p.key_tiles)) {
  }
  fence_global_for_async();
}

/// Waits until the tiles whose turn is before this one's have added their part to a block of dQ. One thread.
HEED_DEVICE void wait_for_turn(const u32* turn, int tile) {
  while (load_acquire(turn) != u32(tile)) {
  }
  fence_global_for_async();
}
/// Gives the turn to the next tile once this thread's adds are done. That this thread has seen them is not enough: the
/// release is what orders them before the adds of whoever takes the turn.
HEED_DEVICE void give_turn_away(u32* turn, int next_tile) {
  tma_store_wait<0>();
  fence_global_for_async();
  store_release(turn, u32(next_tile));
}

/// Rows [first, rows) of a tile of `rows` rows are not the sequence's: zeros, so that 0 * NaN is not made of them. Each math
/// warpgroup writes all of them before it multiplies, whoever else has: none waits for the other.
template <auto C>
HEED_DEVICE void zero_rows(u32 at, int first, int rows) {
  constexpr u32 kZeroing = 1;  // with its number, 1 or 2, a named barrier of the warpgroup
  const int thread = threadIdx.x % 128;
  const int chunks = (rows - first) * 8 * C.panels();
#pragma unroll 1
  for (int i = thread; i < chunks; i += 128)
    store_shared_zero_16(at + (i / 8 % C.panels()) * (rows * 128) + (first + i / (8 * C.panels())) * 128 + i % 8 * 16);
  fence_shared_for_async();
  barrier_sync(kZeroing + warp_uniform(threadIdx.x / 128), 128);
}

/// Where dK or dV goes.
struct KeyGradient {
  void* data;
  const Steps& steps;
  int columns;
  float factor;  ///< of the sums
};

/// Sums of a warp's 16 keys from first_key on: dK (kKeys) or dV of a part of the group, in f32, where
/// hopper_backward_parts.cuh finds them.
template <bool kKeys, auto C>
HEED_DEVICE void store_part(const BackwardParams& params, const float (&x)[C.d / 2], float factor, const KeyTile& work,
                            int first_key, u32 lane) {
  const int heads = params.forward.heads / params.forward.group;  // each part of a group is one
  const i64 row = (i64(kKeys ? 0 : heads) + work.head) * params.key_space + key_sum_row<C>(params, work.batch) + first_key;
  const u32 my_lane = fresh(lane);  // nothing of this is kept through the loop
  float* const to = params.key_sum + (row + my_lane / 4) * C.d + my_lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < C.d / 8; ++i) {
    *reinterpret_cast<float2*>(to + i * 8) = make_float2(x[4 * i] * factor, x[4 * i + 1] * factor);
    *reinterpret_cast<float2*>(to + 8 * C.d + i * 8) = make_float2(x[4 * i + 2] * factor, x[4 * i + 3] * factor);
  }
}

/// Sums of a warp's 16 keys from first_key on: dK (kKeys) or dV -> 16 bits -> global memory, straight from registers: by
/// way of shared memory a tile's end would wait for adds of dQ, and for copies. Lanes exchange in fours, so that each
/// writes 16 bytes of a row, and the four 32 columns.
template <bool kKeys, auto C, class T>
HEED_DEVICE void store_keys(const BackwardParams& params, const float (&x)[C.d / 2], const KeyGradient& to,
                            const KeyTile& work, int first_key, u32 lane) {
  constexpr ForwardFeatures F = C.features;
  if constexpr (C.in_parts) {
    store_part<kKeys, C>(params, x, to.factor, work, first_key, lane);
    return;
  }
  if (F.hides() && holds_no_number(x)) {
    careful_keys<kKeys, F, T, T, T, C.d>(params, fresh(work.batch), fresh(work.head), first_key, 0, lane,
                                         BlockRows<C>{params, work.row_block});
    return;
  }
  const u32 my_lane = fresh(lane);  // nothing of this is kept through the loop
  const int row = my_lane / 4, first_column = my_lane % 4 * 8, rows = work.s_k - first_key;
  u16* const out = static_cast<u16*>(to.data) + work.batch * to.steps.batch + work.head * to.steps.head +
                   (work.k_row + first_key + row) * to.steps.row + first_column;
#pragma unroll
  for (int i = 0; i < C.d / 32; ++i) {
#pragma unroll
    for (int below = 0; below < 2; ++below) {  // eight rows
      u32 words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* two = x + 16 * i + 4 * j + 2 * below;
        words[j] = pack<T>(two[0] * to.factor, two[1] * to.factor);
      }
      transpose_in_fours(words, my_lane);
      if (row + 8 * below < rows && 32 * i + first_column < to.columns)
        *reinterpret_cast<uint4*>(out + 8 * below * to.steps.row + 32 * i) =
            make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
}

}  // namespace heed::kernels
