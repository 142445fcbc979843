// dQ of the Hopper backward pass on its way to its sum, for head dims of up to 128: the barriers by which math warps and
// the warps of the first warpgroup tell each other, and the threads that add. C is a HopperBackwardConfig.
#pragma once

#include "hopper_backward_config.h"
#include "hopper_backward_copies.cuh"
#include "hopper_backward_tiles.cuh"
#include "ptx.cuh"

namespace heed::kernels {

/// The barriers, by their addresses. dq_full: [blocks of even or odd number][warpgroup], dq_empty: [warpgroup]. The last
/// three are there where a bias is copied.
template <HopperBackwardConfig C>
struct BackwardBarriers {
  u32 k_full, k_empty, v_full, v_empty, dq_full, dq_empty, q_full, q_empty, o_full, o_empty, ds_full, ds_empty;
  u32 work_full, bias_full, bias_empty;

  __device__ __forceinline__ explicit BackwardBarriers(u32 at)
      : k_full(at),
        k_empty(at + 16),
        v_full(at + 32),
        v_empty(at + 40),
        dq_full(at + 48),
        dq_empty(at + 80),
        q_full(at + 96),
        q_empty(q_full + 8 * C.kStages),
        o_full(q_empty + 8 * C.kStages),
        o_empty(o_full + 8 * C.kStages),
        ds_full(o_empty + 8 * C.kStages),
        ds_empty(ds_full + 8 * C.kStages),
        work_full(ds_empty + 8 * C.kStages),
        bias_full(work_full + 8),
        bias_empty(bias_full + 8 * C.kStages) {}

  __device__ __forceinline__ void init() const {
    constexpr int kMathWarps = 8, kAdders = 2;
    constexpr bool kStoreReadsDs = C.stores_dbias && C.pipeline == BackwardPipeline::ahead;
    for (int i = 0; i < C.k_stages(); ++i) {
      mbarrier_init(k_full + 8 * i, 1);
      mbarrier_init(k_empty + 8 * i, kMathWarps + kAdders + (C.bias_copied() || C.zeroes_ahead() ? 1 : 0));
    }
    mbarrier_init(v_full, 1);
    mbarrier_init(v_empty, kMathWarps);
    for (int i = 0; i < 2; ++i) {
      mbarrier_init(dq_full + 8 * i, kMathWarps / 2);
      mbarrier_init(dq_full + 16 + 8 * i, kMathWarps / 2);
      mbarrier_init(dq_empty + 8 * i, 1);
    }
    for (int i = 0; i < C.kStages; ++i) {
      mbarrier_init(q_full + 8 * i, 1);
      mbarrier_init(q_empty + 8 * i, kMathWarps);
      mbarrier_init(o_full + 8 * i, 1);
      mbarrier_init(o_empty + 8 * i, kMathWarps);
      mbarrier_init(ds_full + 8 * i, kMathWarps);
      mbarrier_init(ds_empty + 8 * i, kMathWarps + (kStoreReadsDs ? 1 : 0));
    }
    if constexpr (C.bias_copied()) {
      mbarrier_init(work_full, 1);
      for (int i = 0; i < C.kStages; ++i) {
        mbarrier_init(bias_full + 8 * i, 32);
        mbarrier_init(bias_empty + 8 * i, kMathWarps);
      }
    }
    mbarrier_init_fence();
  }
};

/// dS of a block -> dBias, as soon as both warpgroups have written it. The slot of its tile is not written again before
/// this thread has come to the next tile. One thread.
template <HopperBackwardConfig C>
HEED_DEVICE void store_ds(const TensorMap* map, const BackwardParams& p, const BackwardBarriers<C>& bar,
                          const volatile KeyTile& slot, const TileSteps<C>& step, u32 base, u32 stage, u32 phase) {
  mbarrier_wait(bar.ds_full + 8 * stage, phase);
  if (p.d_bias) {
#pragma unroll
    for (int w = 0; w < C.kWarpgroups; ++w)
      tma_store(map, base + C.ds_at() + stage * C.ds_bytes() + w * (C.tile_q * 128), slot.tile * C.kTileK + w * 64,
                step.block * C.tile_q, step.head * p.d_bias_map.head, slot.batch * p.d_bias_map.batch);
    tma_store_commit();
  }
  // In step dS is not written again before the memory of this block's dQ is free, which is waited for with this store.
  if constexpr (C.pipeline == BackwardPipeline::ahead) {
    tma_store_wait_read<0>();
    mbarrier_arrive(bar.ds_empty + 8 * stage);
  }
}

/// Adds the dQ of every other block of this thread block's tiles to the sum in global memory. One thread.
template <HopperBackwardConfig C>
HEED_DEVICE void add_dq(const TensorMap* map_dbias, const BackwardParams& p, const BackwardBarriers<C>& bar,
                        const volatile KeyTile* works, u32 base, u32 parity) {
  const u32 stage = base + C.dq_at();
  const u64 keep = keep_in_l2();
  const i64 blocks_of_head = p.row_space / C.tile_q;
  u32 number = 0;  // of blocks so far, of all tiles
#pragma unroll 1
  for (u32 tile_count = 0;; ++tile_count) {
    const TileTurn<C> turn(tile_count);
    mbarrier_wait(bar.k_full + 8 * turn.stage, turn.phase);
    const volatile KeyTile& slot = works[turn.slot];
    const int tile = slot.tile, row_block = slot.row_block, pair = pair_of(p, slot.batch, slot.head);
    const int steps = (slot.end_block - slot.first_block) * p.forward.group;
    TileSteps<C> step(slot.first_block, slot.end_block, slot.head * p.forward.group);
    mbarrier_arrive(bar.k_empty + 8 * turn.stage);
    if (tile < 0) break;
    if constexpr (C.zeroes_ahead()) wait_for_zeros(p, pair);
#pragma unroll 1
    for (int i = 0; i < steps; ++i, ++number, step.next()) {
      if (number % 2 != parity) continue;
      if constexpr (C.stores_dbias) store_ds<C>(map_dbias, p, bar, slot, step, base, parity, number >> 1 & 1);
      const i64 at = step.head * blocks_of_head + row_block + step.block;
      // All tiles from the one that goes first to this one have the block.
      if (C.ordered) wait_for_turn(p.turns + 2 * at, tile);
#pragma unroll
      for (u32 w = 0; w < 2; ++w) {
        mbarrier_wait(bar.dq_full + 16 * parity + 8 * w, number >> 1 & 1);
        add_staged_dq<C>(p, at * (C.tile_q * C.d) + w * C.dq_half(), stage + w * (C.dq_half() * 4), C.dq_half(), keep);
        tma_store_commit();
      }
      tma_store_wait_read<1>();
      mbarrier_arrive(bar.dq_empty);
      tma_store_wait_read<0>();
      mbarrier_arrive(bar.dq_empty + 8);
      if (C.ordered) give_turn_away(p.turns + 2 * at, C.last_tile_first() ? tile - 1 : tile + 1);
    }
  }
  tma_store_wait<0>();
}

}  // namespace heed::kernels
