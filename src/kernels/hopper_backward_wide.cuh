// Backward attention for sm_90a and head dims of 192 and 256. docs/kernels/backward.md tells the schedule.
//
// A tile is 64 keys of one K/V head. dK and dV of 64 keys take 128 registers of a thread each, so that the two math
// warpgroups share the work by products instead of by keys:
//   warpgroup 1:  S^T = K Q^T,  P^T,          dV += P^T dO,  panels 0 and 1 of dQ
//   warpgroup 2:  dP^T = V dO^T,  dS^T,       dK += dS^T Q,  the other panels of dQ
// P goes from the first to the second in f32, thread by thread; dS goes through shared memory to both. dQ of a block is
// multiplied during the next one. Warpgroup 0 copies and adds as in hopper_backward.cuh. Where the rows of dQ have
// owners (owned_dq) nothing is made of it here: hopper_backward_queries.cuh.
#pragma once

#include "hopper_backward_config.h"
#include "hopper_backward_copies.cuh"
#include "hopper_backward_tiles.cuh"
#include "hopper_roles.cuh"
#include "mma.cuh"
#include "ptx.cuh"
#include "ring.cuh"
#include "wgmma.cuh"

namespace heed::kernels {

/// The barriers, by their addresses. dq_full, dq_empty: [warpgroup].
template <HopperWideBackwardConfig C>
struct WideBarriers {
  u32 k_full, k_empty, v_full, v_empty, p_full, p_empty, ds_full, ds_empty, dq_empty, dq_full, q_full, q_empty, o_full,
      o_empty;

  __device__ __forceinline__ explicit WideBarriers(u32 at)
      : k_full(at),
        k_empty(at + 16),
        v_full(at + 32),
        v_empty(at + 40),
        p_full(at + 48),
        p_empty(at + 56),
        ds_full(at + 64),
        ds_empty(at + 80),
        dq_empty(at + 96),
        dq_full(at + 112),
        q_full(at + 128),
        q_empty(q_full + 8 * C.q_stages()),
        o_full(q_empty + 8 * C.q_stages()),
        o_empty(o_full + 8 * C.o_stages()) {}

  __device__ __forceinline__ void init() const {
    constexpr int kWarps = 4;  // of a math warpgroup
    mbarrier_init(v_full, 1);
    mbarrier_init(v_empty, kWarps);
    mbarrier_init(p_full, kWarps);
    mbarrier_init(p_empty, kWarps);
    for (int i = 0; i < 2; ++i) {
      mbarrier_init(k_full + 8 * i, 1);
      mbarrier_init(k_empty + 8 * i, 2 * kWarps + C.adders() + (C.zeroes_ahead() ? 1 : 0));
      mbarrier_init(ds_full + 8 * i, kWarps);
      mbarrier_init(ds_empty + 8 * i, 2 * kWarps);
      mbarrier_init(dq_empty + 8 * i, 1);
      mbarrier_init(dq_full + 8 * i, kWarps);
    }
    for (int i = 0; i < C.q_stages(); ++i) {
      mbarrier_init(q_full + 8 * i, 1);
      mbarrier_init(q_empty + 8 * i, 2 * kWarps);
    }
    for (int i = 0; i < C.o_stages(); ++i) {
      mbarrier_init(o_full + 8 * i, 1);
      mbarrier_init(o_empty + 8 * i, 2 * kWarps);
    }
    mbarrier_init_fence();
  }
};

/// Adds what warpgroup w makes of dQ to the sum in global memory. One thread.
template <HopperWideBackwardConfig C>
HEED_DEVICE void add_wide_dq(const BackwardParams& p, const WideBarriers<C>& bar, const volatile KeyTile* works, u32 base,
                             u32 w) {
  constexpr int kPanel = 64 * 64;  // elements
  const u64 keep = keep_in_l2();
  const i64 blocks_of_head = p.row_space / C.tile_q;
  const int panels = w == 0 ? C.dq_panels(0) : C.dq_panels(1);
  u32 phase = 0;
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
    for (int i = 0; i < steps; ++i, step.next()) {
      const i64 at = step.head * blocks_of_head + row_block + step.block;
      const i64 to = at * (C.tile_q * C.d) + 2 * w * kPanel;
#pragma unroll 1
      for (int panel = 0; panel < panels; ++panel, phase ^= 1) {
        mbarrier_wait(bar.dq_full + 8 * w, phase);
        add_staged_dq<C>(p, to + panel * kPanel, base + C.dq_at() + w * (kPanel * 4), kPanel, keep);
        tma_store_commit();
        tma_store_wait_read<0>();
        mbarrier_arrive(bar.dq_empty + 8 * w);
      }
    }
  }
  tma_store_wait<0>();
}

/// What both math warpgroups know and do.
template <HopperWideBackwardConfig C>
struct WideMath {
  using T = typename TagOf<C.type>::Type;
  static constexpr ForwardFeatures F = C.features;

  const BackwardParams& params;
  const WideBarriers<C>& bar;
  volatile KeyTile* const works;
  const u32 base, w, lane, warp;
  Sequence sequence{};
  float sum[C.d / 2];  ///< dV or dK of 64 keys
  float dq[32];        ///< a panel of dQ
  u32 tile_count = 0, block_count = 0;
  u32 dq_phase = 0;

  __device__ __forceinline__ WideMath(const BackwardParams& all, const WideBarriers<C>& barriers, volatile KeyTile* slots,
                                      u32 shared, u32 warpgroup)
      : params(all),
        bar(barriers),
        works(slots),
        base(shared),
        w(warpgroup),
        lane(threadIdx.x % 32),
        warp(warp_uniform(threadIdx.x / 32 % 4)) {}

  __device__ __forceinline__ void arrive(u32 barrier) const {
    if (lane == 0) mbarrier_arrive(barrier);
  }
  /// For what all lanes have written or read.
  __device__ __forceinline__ void arrive_after_warp(u32 barrier) const {
    __syncwarp();
    arrive(barrier);
  }
  /// Asked for where it is used: through the loop it would take registers.
  __device__ __forceinline__ TileTurn<C> turn() const { return TileTurn<C>(fresh(tile_count)); }
  __device__ __forceinline__ RingTurn<C.q_stages()> q() const { return RingTurn<C.q_stages()>(block_count); }
  __device__ __forceinline__ RingTurn<C.o_stages()> o() const { return RingTurn<C.o_stages()>(block_count); }
  __device__ __forceinline__ RingTurn<2> ds() const { return RingTurn<2>(block_count); }
  __device__ __forceinline__ RingTurn<1> weights() const { return RingTurn<1>(block_count); }
  __device__ __forceinline__ u64 operand(u32 at, u32 panel_bytes) const { return swizzled_operand(base + at, panel_bytes); }
  __device__ __forceinline__ u32 of_queries(u32 at) const { return base + at + lane % 4 * 16; }

  __device__ __forceinline__ void wait_q(int block) const {
    mbarrier_wait(bar.q_full + 8 * q().stage, q().phase);
    const int rows = sequence.s_q - block * C.tile_q;
    if (F.own_lengths && rows < C.tile_q) zero_rows<C>(base + C.q_at() + q().stage * C.q_bytes(), rows, C.tile_q);
  }
  __device__ __forceinline__ void wait_o(int block) const {
    mbarrier_wait(bar.o_full + 8 * o().stage, o().phase);
    const int rows = sequence.s_q - block * C.tile_q;
    if (F.own_lengths && rows < C.tile_q) zero_rows<C>(base + C.o_at() + o().stage * C.q_bytes(), rows, C.tile_q);
  }

  /// dQ's panel `panel` of this warpgroup = dS [64 queries x 64 keys] K [64 keys x 64 columns]
  __device__ __forceinline__ void issue_dq(u32 buffer, int panel) {
    const u64 left = operand(C.ds_at() + buffer * C.kPanel, 16);
    const u64 right = operand(turn().k_at() + (2 * w + panel) * C.kPanel, 16);
    wgmma_fence();
    WgmmaMajor<T, 64>::template first<false, true>(dq, left, right);
#pragma unroll
    for (int i = 1; i < 4; ++i) WgmmaMajor<T, 64>::template add<false, true>(dq, left + 2 * i, right + i * (16 * 128 / 16));
    wgmma_commit();
  }
  __device__ __forceinline__ void hand_over_dq() {
    mbarrier_wait(bar.dq_empty + 8 * w, dq_phase ^ 1);
    dq_phase ^= 1;
    stage_dq<C, T>(dq, base + C.dq_at() + staged_dq_at<C>(w, warp) + lane * 16, params.forward.scale);
    fence_shared_for_async();
    __syncwarp();
    arrive(bar.dq_full + 8 * w);
  }

  /// Waits for S or dP, under which dQ of the block before begins, if there is one.
  __device__ __forceinline__ void wait_over_dq(float (&product)[32], u32 before, bool real) {
    if constexpr (C.owned_dq) {
      wgmma_wait<0>(product);
    } else {
      if (real) mbarrier_wait(bar.ds_full + 8 * before, ds().phase ^ (ds().stage ^ 1));
      issue_dq(before, 0);
      wgmma_wait<1>(product);
    }
  }
  /// dQ of a tile's last block, with nothing to do beside it.
  template <int kPanels>
  __device__ __forceinline__ void finish_dq() {
    if constexpr (!C.owned_dq) {
      const u32 last = ds().stage ^ 1;
      mbarrier_wait(bar.ds_full + 8 * last, ds().phase ^ (ds().stage ^ 1));
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        issue_dq(last, panel);
        wgmma_wait<0>(dq);
        hand_over_dq();
      }
      arrive(bar.ds_empty + 8 * last);
    }
  }

  __device__ __forceinline__ bool begin_tile(KeyTile& work) {
    const TileTurn<C> here = turn();
    mbarrier_wait(bar.k_full + 8 * here.stage, here.phase);
    volatile KeyTile& slot = works[here.slot];
    work.tile = slot.tile;
    if (work.tile < 0) return false;
    work.head = slot.head;
    work.batch = slot.batch;
    work.first_block = slot.first_block;
    work.end_block = slot.end_block;
    sequence = lengths_of<ForwardFeatures{}>(params.forward, 0);
    if constexpr (F.own_lengths) {
      sequence.s_q = slot.s_q;
      sequence.s_k = slot.s_k;
    }
    sequence = with_mask<F>(params.forward, sequence);
    zero_keys_behind(work.tile, here.k_at());
    make_zeros(sum);
    return true;
  }
  /// Of a K or V at `at`.
  __device__ __forceinline__ void zero_keys_behind(int tile, u32 at) const {
    const int keys = sequence.s_k - tile * C.kTileK;
    if (F.own_lengths && keys < C.kTileK) zero_rows<C>(base + at, keys, C.kTileK);
  }

  /// Writes `sum`: dK (kKeys) or dV of the tile that was begun as this one.
  template <bool kKeys>
  __device__ __forceinline__ void store(const KeyGradient& to) {
    const u32 my_lane = fresh(lane), my_warp = fresh(warp);  // nothing of this is kept through the loop
    const volatile KeyTile& slot = works[turn().slot];  // still this tile's
    KeyTile work;
    work.tile = slot.tile;
    work.head = slot.head;
    work.batch = slot.batch;
    work.k_row = slot.k_row;
    work.s_k = slot.s_k;
    work.row_block = slot.row_block;
    store_keys<kKeys, C, T>(params, sum, to, work, work.tile * C.kTileK + int(my_warp) * 16, my_lane);
  }
};

/// P and dV.
template <HopperWideBackwardConfig C>
HEED_DEVICE void wide_weights_and_dv(WideMath<C>& math) {
  using T = typename WideMath<C>::T;
  constexpr ForwardFeatures F = C.features;
  const ForwardParams& p = math.params.forward;
  const WideBarriers<C>& bar = math.bar;
  const u64 q_rows = math.operand(C.q_at(), 16);
  const u64 o_columns = math.operand(C.o_at(), C.kPanel);
  const u32 p_to = math.base + C.p_at() + math.warp * (C.kPanelChunks * 512) + math.lane * 16;
  const DropKey drop_keys = F.dropout ? drop_key(p) : DropKey{};
  BlockEntries<F, T, C.tile_q> entries;  // nothing: these kernels have no such features
  float s[32];
  u32 weights[16];

#pragma unroll 1
  for (;; ++math.tile_count) {
    KeyTile work;
    if (!math.begin_tile(work)) break;
    TileSteps<C> step(work.first_block, work.end_block, work.head * p.group);
    const int steps = (work.end_block - work.first_block) * p.group;
    // The dQ of a block is multiplied during the next one: the first time it is a product of stale memory, and ignored.
    bool real = false;
#pragma unroll 1
    for (int left = steps; left > 0; --left) {
      const u32 before = math.ds().stage ^ 1;
      math.wait_q(step.block);
      wgmma_fence();
      multiply_scores<C, T>(s, math.operand(math.turn().k_at(), 16), q_rows + math.q().stage * (C.q_bytes() / 16));
      wgmma_commit();
      math.wait_over_dq(s, before, real);
      make_weights<C, T>(p, math.sequence, work.batch, step.head, step.block * C.tile_q, work.tile * C.kTileK, math.warp,
                         math.lane, drop_keys, math.of_queries(C.lse_at() + math.q().stage * (C.tile_q * 4)), entries, s,
                         weights);
      mbarrier_wait(bar.p_empty, math.weights().phase ^ 1);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float four[4] = {s[4 * j], s[4 * j + 1], s[4 * j + 2], s[4 * j + 3]};
        store_shared(p_to + j * 512, four);
      }
      math.arrive_after_warp(bar.p_full);
      math.wait_o(step.block);
      wgmma_fence();
      multiply_gradient<C, T>(math.sum, weights, o_columns + math.o().stage * (C.q_bytes() / 16));
      wgmma_commit();
      if constexpr (!C.owned_dq) {
        wgmma_wait<1>(math.dq);
        if (real) math.hand_over_dq();
        math.issue_dq(before, 1);
        wgmma_wait<1>(math.sum);
      } else {
        wgmma_wait<0>(math.sum);
      }
      math.arrive(bar.q_empty + 8 * math.q().stage);
      math.arrive(bar.o_empty + 8 * math.o().stage);
      if constexpr (!C.owned_dq) {
        wgmma_wait<0>(math.dq);
        if (real) {
          math.arrive(bar.ds_empty + 8 * before);
          math.hand_over_dq();
        }
      }
      real = true;
      ++math.block_count;
      step.next();
    }
    math.template finish_dq<C.dq_panels(0)>();
    math.arrive(bar.k_empty + 8 * math.turn().stage);
    pin(math.sum);
    const BackwardParams& params = math.params;
    math.template store<false>({params.dv, params.dv_steps, p.d_v, F.dropout ? p.drop_scale : 1.0f});
  }
}

/// dS and dK.
template <HopperWideBackwardConfig C>
HEED_DEVICE void wide_gradients_and_dk(WideMath<C>& math) {
  using T = typename WideMath<C>::T;
  const ForwardParams& p = math.params.forward;
  const WideBarriers<C>& bar = math.bar;
  const u64 o_rows = math.operand(C.o_at(), 16);
  const u64 q_columns = math.operand(C.q_at(), C.kPanel);
  const u32 lane = math.lane, warp = math.warp;
  const u32 p_from = math.base + C.p_at() + warp * (C.kPanelChunks * 512) + lane * 16;
  const u32 ds_to = math.base + C.ds_at() + ((lane & 7) + (lane >> 4) * 8) * 128 +
                    (((2 * warp + ((lane >> 3) & 1)) ^ (lane & 7)) * 16);
  float dp[32];
  u32 ds[16];

#pragma unroll 1
  for (;; ++math.tile_count) {
    KeyTile work;
    if (!math.begin_tile(work)) break;
    TileSteps<C> step(work.first_block, work.end_block, work.head * p.group);
    const int steps = (work.end_block - work.first_block) * p.group;
    mbarrier_wait(bar.v_full, math.tile_count & 1);
    math.zero_keys_behind(work.tile, math.turn().v_at());
    bool real = false;
#pragma unroll 1
    for (int left = steps; left > 0; --left) {
      const u32 before = math.ds().stage ^ 1;
      math.wait_q(step.block);  // first, as the other warpgroup does
      math.wait_o(step.block);
      wgmma_fence();
      multiply_scores<C, T>(dp, math.operand(math.turn().v_at(), 16), o_rows + math.o().stage * (C.q_bytes() / 16));
      wgmma_commit();
      math.wait_over_dq(dp, before, real);
      mbarrier_wait(bar.p_full, math.weights().phase);
      const u32 dot_at = math.of_queries(C.dot_at() + math.o().stage * (C.tile_q * 4));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float weights[8], half[4];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          load_shared(half, p_from + (2 * i + j) * 512);
#pragma unroll
          for (int e = 0; e < 4; ++e) weights[4 * j + e] = half[e];
        }
        make_gradient<C.features, T>(p, dot_at + i * 64, weights, dp + 8 * i, ds + 4 * i);
      }
      if constexpr (!C.owned_dq) {
        mbarrier_wait(bar.ds_empty + 8 * math.ds().stage, math.ds().phase ^ 1);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          store_transposed_x4(ds_to + math.ds().stage * C.kPanel + i * (16 * 128), ds[4 * i], ds[4 * i + 1], ds[4 * i + 2],
                              ds[4 * i + 3]);
        fence_shared_for_async();
        math.arrive_after_warp(bar.ds_full + 8 * math.ds().stage);
        math.arrive(bar.p_empty);
        math.arrive(bar.o_empty + 8 * math.o().stage);
      }
      wgmma_fence();
      multiply_gradient<C, T>(math.sum, ds, q_columns + math.q().stage * (C.q_bytes() / 16));
      wgmma_commit();
      // P is not given back before dS was stored or multiplied: an arrival overtakes loads from shared memory whose values
      // nothing has used yet, and the other warpgroup, when it is ahead, would write the next P under them.
      if constexpr (C.owned_dq) {
        math.arrive_after_warp(bar.p_empty);
        math.arrive(bar.o_empty + 8 * math.o().stage);
        wgmma_wait<0>(math.sum);
        math.arrive(bar.q_empty + 8 * math.q().stage);
      } else {
        wgmma_wait<1>(math.dq);
        if (real) math.hand_over_dq();
        if constexpr (C.dq_panels(1) > 1) {
          math.issue_dq(before, 1);
          wgmma_wait<1>(math.sum);
          math.arrive(bar.q_empty + 8 * math.q().stage);
          wgmma_wait<0>(math.dq);
          if (real) math.hand_over_dq();
        } else {
          wgmma_wait<0>(math.sum);
          math.arrive(bar.q_empty + 8 * math.q().stage);
        }
        if (real) math.arrive(bar.ds_empty + 8 * before);
      }
      real = true;
      ++math.block_count;
      step.next();
    }
    math.arrive(bar.v_empty);
    math.template finish_dq<C.dq_panels(1)>();
    math.arrive(bar.k_empty + 8 * math.turn().stage);
    pin(math.sum);
    const BackwardParams& params = math.params;
    math.template store<true>({params.dk, params.dk_steps, p.d, p.scale});
  }
}

template <HopperWideBackwardConfig C>
HEED_DEVICE void hopper_backward_wide(const TensorMap& map_q, const TensorMap& map_do, const TensorMap& map_k,
                                      const TensorMap& map_v, const BackwardParams& params) {
  static_assert(C.impossible() == nullptr);
  extern __shared__ __align__(1024) u8 heed_shared[];
  const u32 base = shared_address(heed_shared);
  const WideBarriers<C> bar(base + C.barriers_at());
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
    if (int(role) <= C.adders()) {
      if (!elect_one()) return;
      if (role == 0) {
        copy_key_tiles<C>(map_q, map_do, map_k, map_v, params, bar, works, base);
      } else {
        add_wide_dq<C>(params, bar, works, base, role - 1);
      }
    } else if constexpr (C.zeroes_ahead()) {
      zero_sums_ahead<C>(params, bar, works, base);
    }
    return;
  }
  begin_computing<C>();
  WideMath<C> math(params, bar, works, base, warpgroup - 1);
  if (warpgroup == 1) {
    wide_weights_and_dv<C>(math);
  } else {
    wide_gradients_and_dk<C>(math);
  }
}

}  // namespace heed::kernels
