// Backward attention for sm_90a: the main kernel. docs/kernels/backward.md tells the schedule.
//
// A tile is 128 keys of one K/V head. K and V stay in shared memory; the loop runs over the query heads of the group and
// over the blocks of queries that see some of the keys:
//   S^T = K Q^T,  P^T = 2^(S^T - LSE),  dP^T = V dO^T,  dS^T = P^T (dP^T - D),
//   dV += P^T dO,  dK += dS^T Q  (P^T, dS^T from registers),  dQ += dS K  (dS through shared memory)
//
// Warpgroup 0: warp 0 copies by TMA; one thread each of warps 1 and 2 adds every other block of dQ to the sum in global
// memory, and stores its dS where that is dBias; warp 3 copies the bias, where it comes through shared memory, or zeroes
// the sum of dQ for heads that come later.
// Warpgroups 1 and 2 compute 64 keys each: rows of S^T, so that P^T and dS^T are already the left operand of dV and dK.
// dQ needs the keys of both: dS goes through shared memory, each warpgroup multiplies one half of dQ and hands it over
// in f32, in the order of the accumulator's fragments, which hopper_backward_rows.cuh sorts.
#pragma once

#include "hopper_backward_adds.cuh"
#include "hopper_backward_config.h"
#include "hopper_backward_copies.cuh"
#include "hopper_backward_tiles.cuh"
#include "hopper_roles.cuh"
#include "mma.cuh"
#include "ptx.cuh"
#include "wgmma.cuh"

namespace heed::kernels {

// This warpgroup's half of dQ [tile_q x d] = dS [tile_q x 128 keys] K [128 keys x d]
template <HopperBackwardConfig C, class T>
HEED_DEVICE void multiply_dq(float (&c)[C.dq_registers()], u64 ds, u64 k) {
  if constexpr (C.transposed_dq()) {
    constexpr int kRows = C.d == 64 ? C.tile_q / 2 : C.tile_q;
    WgmmaMajor<T, kRows>::template first<true, false>(c, k, ds);
#pragma unroll
    for (int i = 1; i < C.kTileK / 16; ++i)
      WgmmaMajor<T, kRows>::template add<true, false>(c, k + i * (16 * 128 / 16),
                                                         ds + (i % 4) * 2 + (i / 4) * (C.tile_q * 128 / 16));
  } else {
    WgmmaMajor<T, 64>::template first<false, true>(c, ds, k);
#pragma unroll
    for (int i = 1; i < C.kTileK / 16; ++i)
      WgmmaMajor<T, 64>::template add<false, true>(c, ds + (i % 4) * 2 + (i / 4) * (C.tile_q * 128 / 16),
                                                   k + i * (16 * 128 / 16));
  }
}

/// map_dbias: where it is stored.
template <HopperBackwardConfig C>
HEED_DEVICE void hopper_backward(const TensorMap& map_q, const TensorMap& map_do, const TensorMap& map_k,
                                 const TensorMap& map_v, const BackwardParams& params, const TensorMap* map_dbias = nullptr) {
  static_assert(C.impossible() == nullptr);
  using T = typename TagOf<C.type>::Type;
  static constexpr ForwardFeatures F = C.features;
  constexpr int kM = C.tile_q, kN = C.kTileK;
  constexpr bool kAhead = C.pipeline == BackwardPipeline::ahead;
  constexpr u32 kMeeting = 1, kTurn = 4;  // named barriers: of both math warpgroups, and of who has the turn
  const ForwardParams& p = params.forward;

  extern __shared__ __align__(1024) u8 heed_shared[];
  const u32 base = shared_address(heed_shared);
  const BackwardBarriers<C> bar(base + C.barriers_at());
  volatile KeyTile* const works = reinterpret_cast<volatile KeyTile*>(heed_shared + C.work_at());
  const u32 warpgroup = warp_uniform(threadIdx.x / 128);

  if (threadIdx.x == 0) {
    tma_prefetch(&map_q);
    tma_prefetch(&map_do);
    tma_prefetch(&map_k);
    tma_prefetch(&map_v);
    bar.init();
  }
  __syncthreads();

  if (warpgroup == 0) {
    begin_copying<C>();
    const u32 role = warp_uniform(threadIdx.x / 32);
    // The warp of the bias comes last. Before the others, ptxas would no longer see that one thread of each is left, and
    // keep what it knows in registers of its warp.
    if (role <= 2) {
      if (elect_one()) {
        if (role == 0) {
          copy_key_tiles<C>(map_q, map_do, map_k, map_v, params, bar, works, base);
        } else {
          add_dq<C>(map_dbias, params, bar, works, base, role - 1);
        }
      }
    } else if constexpr (C.bias_copied()) {
      copy_tile_biases<C>(params, bar, works, base);
    } else if constexpr (C.zeroes_ahead()) {
      zero_sums_ahead<C>(params, bar, works, base);
    }
    return;
  }

  begin_computing<C>();
  const u32 w = warpgroup - 1, lane = threadIdx.x % 32, warp = warp_uniform(threadIdx.x / 32 % 4);
  constexpr u32 kQPanel = kM * 128, kKPanel = kN * 128;
  const u32 half_rows = w * 64 * 128;  // bytes of 64 rows in a panel
  const u64 k_rows = swizzled_operand(base + half_rows, 16);               // this warpgroup's keys
  const u64 v_rows = swizzled_operand(base + C.v_at() + half_rows, 16);
  const u64 k_columns = swizzled_operand(base + (C.d == 128 ? w * kKPanel : 0), 16);  // all keys, its columns of dQ
  const u64 q_rows = swizzled_operand(base + C.q_at(), 16), o_rows = swizzled_operand(base + C.o_at(), 16);
  const u64 q_columns = swizzled_operand(base + C.q_at(), kQPanel), o_columns = swizzled_operand(base + C.o_at(), kQPanel);
  const u64 ds_rows = swizzled_operand(base + C.ds_at() + (C.d == 64 ? w * (kM / 2) * 128 : 0), 16);  // its rows of dQ
  // Addresses of a thread. Where registers are short they are made anew for every use.
  constexpr bool kShort = kM > 64 || F.weight() > 1;
  auto my_lane = [&]() __attribute__((always_inline)) { return kShort ? fresh(lane) : lane; };
  auto ds_to = [&](u32 stage) __attribute__((always_inline)) {
    const u32 l = my_lane();
    return base + C.ds_at() + stage * C.ds_bytes() + w * kQPanel + ((l & 7) + (l >> 4) * 8) * 128 +
           (((2 * warp + ((l >> 3) & 1)) ^ (l & 7)) * 16);
  };
  auto of_queries = [&](u32 at, u32 stage) __attribute__((always_inline)) {  // this thread's in 16 LSEs or Ds
    return base + at + stage * (kM * 4) + my_lane() % 4 * 16;
  };

  float dk[C.d / 2], dv[C.d / 2], s[kM / 2], dp[kM / 2], dq[C.dq_registers()];
  u32 weights[kM / 4], ds[kM / 4];
  // Of this block's Q, dO and dS. The stages alternate, so that `stage` is also the parity of the blocks' number.
  u32 stage = 0, phase = 0;
  static_assert(C.kStages == 2);
  auto next_block = [&]() __attribute__((always_inline)) {
    stage = fresh(stage ^ 1);  // or else every address that depends on it would have a register of its own
    phase ^= stage ^ 1;
  };
  Sequence sequence{};
  int key0 = 0;  // first key of this warpgroup
  u32 batch = 0, k_at = 0;  // k_at: of this tile's K behind the first stage, as descriptors count
  const DropKey drop_keys = F.dropout ? drop_key(p) : DropKey{};

  auto arrive = [&](u32 barrier) __attribute__((always_inline)) {
    if (lane == 0) mbarrier_arrive(barrier);
  };
  auto issue_s = [&](u32 stage) __attribute__((always_inline)) {
    wgmma_fence();
    multiply_scores<C, T>(s, k_rows + k_at, q_rows + stage * (C.q_bytes() / 16));
    wgmma_commit();
  };
  auto issue_dp = [&](u32 stage) __attribute__((always_inline)) {
    wgmma_fence();
    multiply_scores<C, T>(dp, v_rows + (C.v_with_k() ? k_at : 0), o_rows + stage * (C.q_bytes() / 16));
    wgmma_commit();
  };
  auto issue_dv = [&]<bool kFirst = false>(u32 stage) __attribute__((always_inline)) {
    wgmma_fence();
    multiply_gradient<C, T, kFirst>(dv, weights, o_columns + stage * (C.q_bytes() / 16));
    wgmma_commit();
  };
  auto issue_dk = [&]<bool kFirst = false>(u32 stage) __attribute__((always_inline)) {
    wgmma_fence();
    multiply_gradient<C, T, kFirst>(dk, ds, q_columns + stage * (C.q_bytes() / 16));
    wgmma_commit();
  };
  auto issue_dq = [&](u32 stage, u32 k_at) __attribute__((always_inline)) {
    wgmma_fence();
    multiply_dq<C, T>(dq, ds_rows + stage * (C.ds_bytes() / 16), k_columns + k_at);
    wgmma_commit();
  };

  // Rows behind a sequence's last one are zeroed in both at once: a branch between S and dP would cost every block.
  auto wait_q = [&](int block) __attribute__((always_inline)) {
    mbarrier_wait(bar.q_full + 8 * stage, phase);
    const int rows = sequence.s_q - block * kM;
    if (F.own_lengths && rows < kM) {
      mbarrier_wait(bar.o_full + 8 * stage, phase);
      zero_rows<C>(base + C.q_at() + stage * C.q_bytes(), rows, kM);
      zero_rows<C>(base + C.o_at() + stage * C.q_bytes(), rows, kM);
    }
  };
  auto wait_o = [&]() __attribute__((always_inline)) { mbarrier_wait(bar.o_full + 8 * stage, phase); };

  BlockEntries<F, T, kM, C.bias_copied()> entries;
  auto fetch_entries = [&](int block, int head) __attribute__((always_inline)) {
    entries.fetch(p, sequence, {int(batch), head, block * kM, key0 + int(warp) * 16, int(my_lane())});
    if constexpr (C.bias_copied()) {
      mbarrier_wait(bar.bias_full + 8 * stage, phase);
      entries.copied.begin(base + C.bias_at() + stage * C.bias_bytes(), w * 64 + warp * 16, my_lane());
    }
  };
  auto part_of_exponentials = [&]<int kFrom, int kTo>(int block, int head) __attribute__((always_inline)) {
    make_weights<C, T, kFrom, kTo>(p, sequence, batch, head, block * kM, key0, warp, my_lane(), drop_keys,
                                   of_queries(C.lse_at(), stage), entries, s, weights);
    if constexpr (C.bias_copied() && kTo == kM / 16) {
      __syncwarp();
      arrive(bar.bias_empty + 8 * stage);
    }
  };
  auto exponentials = [&](int block, int head) __attribute__((always_inline)) {
    part_of_exponentials.template operator()<0, kM / 16>(block, head);
  };
  auto gradients = [&](int block) __attribute__((always_inline)) {
    make_gradients<C, T>(p, of_queries(C.dot_at(), stage), s, dp, ds);
    if constexpr (C.stores_dbias && F.hides())
      if (hides_some<F, kM>(sequence, block * kM, key0))
        hide_gradients<F>(sequence, key0 + int(warp * 16 + my_lane() / 4), block * kM, my_lane(), ds);
  };
  auto write_ds = [&]() __attribute__((always_inline)) {
    const u32 to = ds_to(stage);
#pragma unroll
    for (int i = 0; i < kM / 16; ++i)
      store_transposed_x4(to + i * (16 * 128), ds[4 * i], ds[4 * i + 1], ds[4 * i + 2],
                          ds[4 * i + 3]);
    fence_shared_for_async();
  };
  auto tell_of_ds = [&]() __attribute__((always_inline)) {
    __syncwarp();
    arrive(bar.ds_full + 8 * stage);
  };
  auto share_ds = [&]() __attribute__((always_inline)) {
    mbarrier_wait(bar.ds_empty + 8 * stage, phase ^ 1);
    write_ds();
    tell_of_ds();
  };
  auto wait_ds = [&](u32 stage, u32 phase) __attribute__((always_inline)) {
    mbarrier_wait(bar.ds_full + 8 * stage, phase);
  };
  auto hand_over_dq = [&](u32 stage) __attribute__((always_inline)) {
    mbarrier_wait(bar.dq_empty + 8 * w, stage ^ 1);
    stage_dq<C, T>(dq, base + C.dq_at() + staged_dq_at<C>(w, warp) + my_lane() * 16, p.scale);
    fence_shared_for_async();
    __syncwarp();
    arrive(bar.dq_full + 16 * stage + 8 * w);
  };

  // The tile at work, and its blocks.
  u32 tile_count = 0;
  int keys_here = 0, tile_blocks = 0;
  TileSteps<C> step(0, 0, 0);
  // The next tile, once its K has come. Without one: false.
  auto begin_tile = [&](u32 number) __attribute__((always_inline)) {
    tile_count = number;
    const TileTurn<C> turn(tile_count);
    mbarrier_wait(bar.k_full + 8 * turn.stage, turn.phase);
    volatile KeyTile& slot = works[turn.slot];
    const int tile = slot.tile;
    if (tile < 0) return false;
    batch = slot.batch;
    k_at = turn.stage * (C.k_bytes() / 16);
    sequence = lengths_of<ForwardFeatures{}>(p, 0);
    if constexpr (F.own_lengths) {
      sequence.s_q = slot.s_q;
      sequence.s_k = slot.s_k;
    }
    sequence = with_mask<F>(p, sequence);
    key0 = tile * kN + int(w) * 64;
    keys_here = sequence.s_k - tile * kN;
    if (F.own_lengths && keys_here < kN) zero_rows<C>(base + turn.stage * C.k_bytes(), keys_here, kN);
    const int first_block = slot.first_block, end_block = slot.end_block;
    step = TileSteps<C>(first_block, end_block, slot.head * p.group);
    tile_blocks = (end_block - first_block) * p.group;
    return true;
  };
  auto wait_v = [&]() __attribute__((always_inline)) {
    if constexpr (!C.v_with_k() && !C.v_with_o()) mbarrier_wait(bar.v_full, tile_count & 1);
    if (F.own_lengths && keys_here < kN) zero_rows<C>(base + TileTurn<C>(tile_count).v_at(), keys_here, kN);
  };
  auto give_k_back = [&](u32 number) __attribute__((always_inline)) {
    arrive(bar.k_empty + 8 * TileTurn<C>(number).stage);
  };
  auto give_v_back = [&]() __attribute__((always_inline)) {
    if constexpr (!C.v_with_k()) arrive(bar.v_empty);
  };
  // Its slot is still this tile's: the next but one has another.
  auto store_tile = [&](u32 number) __attribute__((always_inline)) {
    volatile KeyTile& slot = works[TileTurn<C>(number).slot];
    KeyTile done;
    done.tile = slot.tile;
    done.head = slot.head;
    done.batch = slot.batch;
    done.k_row = slot.k_row;
    done.s_k = slot.s_k;
    done.row_block = slot.row_block;
    const int first_key = done.tile * kN + int(w) * 64 + int(warp) * 16;
    store_keys<false, C, T>(params, dv, {params.dv, params.dv_steps, p.d_v, F.dropout ? p.drop_scale : 1.0f}, done,
                            first_key, lane);
    store_keys<true, C, T>(params, dk, {params.dk, params.dk_steps, p.d, p.scale}, done, first_key, lane);
  };

  if constexpr (!kAhead) {
    // Half of the exponentials run under dP. ptxas would wait for dP as early as it can, but not in front of a branch: this
    // one, which nobody takes.
    constexpr int kUnderDp = F.only_positions() && kM <= 64 ? kM / 32 : 0;
    auto exponentials_until_dp = [&]() __attribute__((always_inline)) {
      if constexpr (kUnderDp > 0) {
        part_of_exponentials.template operator()<0, kUnderDp>(step.block, step.head);
#pragma unroll
        for (int i = 0; i < 4 * kUnderDp; ++i) pin(weights[i]);
        if (phase > 1) wait_a_while();
      }
      wgmma_wait<0>(dp);
      part_of_exponentials.template operator()<kUnderDp, kM / 16>(step.block, step.head);
    };
    // kBegins: the first of its tile. What the tile before has summed up leaves under the product of S, while V comes.
    // Beside more than a mask there are no registers left for that, and a tile's blocks are alike.
    auto block = [&]<bool kBegins>() __attribute__((always_inline)) {
      wait_q(step.block);
      issue_s(stage);
      if constexpr (kBegins) {
        wgmma_wait<1>(dv);  // nothing of it is in flight, but ptxas would wait for S
        pin(dk);
        if (tile_count > 0) store_tile(tile_count - 1);
      }
      wait_o();
      if constexpr (kBegins) wait_v();
      issue_dp(stage);
      fetch_entries(step.block, step.head);
      wgmma_wait<1>(s);
      exponentials_until_dp();
      gradients(step.block);
      issue_dv.template operator()<kBegins>(stage);
      write_ds();
      if constexpr (C.stores_dbias) tell_of_ds();
      barrier_sync(kMeeting, 256);
      issue_dq(stage, k_at);
      wgmma_wait<1>(dv);
      arrive(bar.o_empty + 8 * stage);
      issue_dk.template operator()<kBegins>(stage);
      wgmma_wait<1>(dq);
      hand_over_dq(stage);
      wgmma_wait<0>(dk);
      arrive(bar.q_empty + 8 * stage);
      next_block();
      step.next();
    };
    if constexpr (F.only_positions() && !F.own_lengths && kM <= 64) {
      bool more = begin_tile(0);
#pragma unroll 1
      while (more) {
        block.template operator()<true>();
#pragma unroll 1
        for (int left = tile_blocks - 1; left > 0; --left) block.template operator()<false>();
        give_k_back(tile_count);
        give_v_back();
        more = begin_tile(tile_count + 1);
      }
      if (tile_count > 0) store_tile(tile_count - 1);
    } else {
#pragma unroll 1
      for (u32 number = 0; begin_tile(number); ++number) {
        make_zeros(dk);
        make_zeros(dv);
        wait_v();
#pragma unroll 1
        for (int left = tile_blocks; left > 0; --left) block.template operator()<false>();
        give_k_back(number);
        give_v_back();
        store_tile(number);
      }
    }
  } else {
    // A tile's first block, when nothing is left of the tile before.
    auto first_block = [&]() __attribute__((always_inline)) {
      wait_q(step.block);
      issue_s(stage);
      wait_o();
      wait_v();
      issue_dp(stage);
      fetch_entries(step.block, step.head);
      wgmma_wait<1>(s);
      exponentials(step.block, step.head);
      issue_dv.template operator()<true>(stage);
      wgmma_wait<1>(dp);
      gradients(step.block);
      share_ds();
      wgmma_wait<0>(dv);
    };
    // w, which is at hand all the time; made anew where it would cost a register too many.
    auto w_anew = [&]() __attribute__((always_inline)) { return fresh(threadIdx.x) / 128 - 1; };
    auto my_warpgroup = [&]() __attribute__((always_inline)) { return C.d == 64 && !C.in_parts ? w : w_anew(); };
    // dQ is two blocks late, so that a tile's last two are multiplied beside the next one's first two. late: whether there
    // is one; k_late: of its tile.
    bool late = false, late_of_tile_before = false;
    u32 k_late = 0;
    // One block further: dK of the block before, dQ of the one before that, S of this one. kBegins: it is the first of its
    // tile, and what the tile before has summed up leaves under the product of S.
    // The warpgroups take turns with these three. Side by side they would be at products together, and at exponentials.
    // The loop over blocks is cut where nothing is in flight: were S or dP, ptxas would serialise all wgmma; were dV, it
    // would run out of registers.
    auto next_block_of = [&]<bool kBegins>() __attribute__((always_inline)) {
      const u32 before = stage;
      next_block();
      barrier_sync(kTurn + my_warpgroup(), 256);
      issue_dk(before);
      if (late) wait_ds(stage, phase ^ 1);
      issue_dq(stage, k_late);  // of stale memory, and ignored, where none is late
      wait_q(step.block);
      issue_s(stage);
      barrier_arrive(kTurn + (my_warpgroup() ^ 1), 256);
      wgmma_wait<1>(dq);  // and dK
      arrive(bar.q_empty + 8 * before);
      arrive(bar.o_empty + 8 * before);
      if (late) {
        arrive(bar.ds_empty + 8 * stage);
        hand_over_dq(stage);
        if constexpr (!kBegins) {
          if (late_of_tile_before) give_k_back(tile_count - 1);
        }
      }
      if constexpr (kBegins) {
        pin(dk);
        pin(dv);
        store_tile(tile_count - 1);
      }
      wait_o();
      if constexpr (kBegins) wait_v();
      issue_dp(stage);
      fetch_entries(step.block, step.head);
      wgmma_wait<1>(s);
      exponentials(step.block, step.head);
      issue_dv.template operator()<kBegins>(stage);
      wgmma_wait<1>(dp);
      gradients(step.block);
      share_ds();
      wgmma_wait<0>(dv);
    };
    auto end_tile = [&](u32 number) __attribute__((always_inline)) {
      arrive(bar.o_empty + 8 * stage);
      issue_dk(stage);
      if (late) wait_ds(stage ^ 1, phase ^ stage ^ 1);
      issue_dq(stage ^ 1, k_late);
      wgmma_wait<0>(dq);
      if (late) {
        arrive(bar.ds_empty + 8 * (stage ^ 1));
        hand_over_dq(stage ^ 1);
        if (late_of_tile_before) give_k_back(number - 1);
      }
      wait_ds(stage, phase);
      issue_dq(stage, k_at);
      wgmma_wait<0>(dq);
      pin(dk);
      pin(dv);
      give_k_back(number);
      arrive(bar.q_empty + 8 * stage);
      arrive(bar.ds_empty + 8 * stage);
      hand_over_dq(stage);
      next_block();
      store_tile(number);
    };

    // From tile to tile without a pause, where registers allow it, but behind one of a single block: its K lies where the
    // next but one comes.
    constexpr bool kFlows = C.k_stages() > 1 && C.d == 64 && F.only_positions() && !C.dq_in_16_bits &&
                            !(C.in_parts && F.own_lengths);
    if (my_warpgroup() == 1) barrier_arrive(kTurn, 256);  // the first one begins
    bool more = begin_tile(0);
#pragma unroll 1
    while (more) {
      first_block();
      late = late_of_tile_before = false;
      u32 number;
      bool flows;
#pragma unroll 1
      do {
        make_zeros(dk);  // a copy of an accumulator inside the pipeline would serialise it
#pragma unroll 1
        for (int left = tile_blocks - 1; left > 0; --left) {
          step.next();
          next_block_of.template operator()<false>();
          late = true;
          late_of_tile_before = false;
          k_late = k_at;
        }
        give_v_back();
        number = tile_count;
        flows = kFlows && tile_blocks > 1;
        if (flows) {
          more = begin_tile(number + 1);
          if (more) {
            next_block_of.template operator()<true>();
            late_of_tile_before = true;
          }
        }
      } while (flows && more);
      end_tile(number);
      if (!flows) more = begin_tile(number + 1);
    }
    if (w_anew() == 0) barrier_sync(kTurn, 256);  // nobody leaves a turn that was given
  }
}

}  // namespace heed::kernels
