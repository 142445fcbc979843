// dQ for sm_90a and head dims of 192 and 256 by thread blocks that own its rows: nothing is added up in global memory, so that
// every run gives the same bits. Tiles of keys that add to dQ in a fixed order (hopper_backward.cuh) wait for each other at
// every block; at these head dims that costs more than to compute S and dP once more.
//
// A tile is 128 query rows of one head, 64 for each of two math warpgroups. Their Q and dO stay in shared memory; one thread
// of warpgroup 0 copies K and V of 64 keys after 64 keys into two rings, the last ones first.
//   S = Q K^T,  dP = dO V^T,  dS = P (dP - D),  dQ += dS K  (dS from registers)
// While one warpgroup is at its exponentials the other has the tensor unit.
#pragma once

#include "hopper_backward_config.h"
#include "hopper_backward_tiles.cuh"
#include "hopper_roles.cuh"
#include "portable_backward_features.cuh"
#include "portable_backward_tiles.cuh"
#include "portable_schedule.cuh"
#include "ptx.cuh"
#include "ring.cuh"
#include "wgmma.cuh"

namespace heed::kernels {

// x [64 rows, 64 keys] = rows [64, d] keys [64, d]^T
template <HopperQueriesConfig C, class T>
HEED_DEVICE void multiply_by_keys(float (&x)[C.kKeys / 2], u64 rows, u64 keys) {
  WgmmaMajor<T, C.kKeys>::template first<false, false>(x, rows, keys);
#pragma unroll
  for (int i = 1; i < C.d / 16; ++i)
    WgmmaMajor<T, C.kKeys>::template add<false, false>(x, rows + (i % 4) * 2 + i / 4 * (C.kRowsPanel / 16),
                                                       keys + (i % 4) * 2 + i / 4 * (C.kKeysPanel / 16));
}

template <HopperQueriesConfig C>
HEED_DEVICE void hopper_backward_queries(const TensorMap& map_q, const TensorMap& map_do, const TensorMap& map_k,
                                         const TensorMap& map_v, const BackwardParams& params) {
  using T = typename TagOf<C.type>::Type;
  constexpr ForwardFeatures F = C.features;
  constexpr int kN = C.kKeys;
  const ForwardParams& p = params.forward;
  const PortableTile tile = portable_tile<F.mask>(p, blockIdx.x);
  const Sequence q = sequence_of<F>(p, tile.batch);
  const int first_row = tile.row_tile * C.kRows;
  if (first_row >= q.s_q) return;
  KeyBlocks blocks;
  blocks.template set<F, kN>(q, first_row, min(first_row + C.kRows, q.s_q) - 1);

  extern __shared__ __align__(1024) u8 heed_shared[];
  const u32 base = shared_address(heed_shared);
  const u32 rows_full = base + C.barriers_at();
  const u32 k_full = rows_full + 8, k_empty = k_full + 8 * C.k_stages();
  const u32 v_full = k_empty + 8 * C.k_stages(), v_empty = v_full + 8 * C.v_stages();
  const u32 warpgroup = warp_uniform(threadIdx.x / 128);
  if (threadIdx.x == 0) {
    constexpr int kMathWarps = 4 * C.kWarpgroups;
    mbarrier_init(rows_full, 1);
    for (int i = 0; i < C.k_stages(); ++i) {
      mbarrier_init(k_full + 8 * i, 1);
      mbarrier_init(k_empty + 8 * i, kMathWarps);
    }
    for (int i = 0; i < C.v_stages(); ++i) {
      mbarrier_init(v_full + 8 * i, 1);
      mbarrier_init(v_empty + 8 * i, kMathWarps);
    }
    mbarrier_init_fence();
  }
  __syncthreads();

  Ring<C.k_stages()> k;
  Ring<C.v_stages()> v;
  if (warpgroup == 0) {
    begin_copying<C>();
    if (warp_uniform(threadIdx.x / 32) != 0 || !elect_one()) return;
    const u64 once = drop_from_l2(), keep = keep_in_l2();
    const auto load = [&](u32 to, u32 panel_bytes, const TensorMap* map, const MapSteps& steps, u32 barrier, int row,
                          int head, u64 policy) {
#pragma unroll
      for (int i = 0; i < C.panels(); ++i)
        tma_load(to + i * panel_bytes, map, barrier, i * 64, row, head * steps.head, tile.batch * steps.batch, policy);
    };
    mbarrier_arrive_expect(rows_full, 2 * C.rows_bytes());
#pragma unroll 1
    for (int w = 0; w < C.kWarpgroups; ++w) {
      const int row = q.q_row + first_row + 64 * w;
      load(base + w * (64 * 128), C.kRowsPanel, &map_q, params.q_map, rows_full, row, tile.head, once);
      load(base + C.o_at() + w * (64 * 128), C.kRowsPanel, &map_do, params.d_o_map, rows_full, row, tile.head, once);
    }
#pragma unroll 1
    for (int i = 0; i < blocks.count; ++i, k.next(), v.next()) {
      const int row = q.k_row + blocks.at(i) * kN, head = tile.head / p.group;
      mbarrier_wait(k_empty + 8 * k.stage, k.phase ^ 1);
      mbarrier_arrive_expect(k_full + 8 * k.stage, C.block_bytes());
      load(base + C.k_at() + k.stage * C.block_bytes(), C.kKeysPanel, &map_k, params.k_map, k_full + 8 * k.stage, row, head,
           keep);
      mbarrier_wait(v_empty + 8 * v.stage, v.phase ^ 1);
      mbarrier_arrive_expect(v_full + 8 * v.stage, C.block_bytes());
      load(base + C.v_at() + v.stage * C.block_bytes(), C.kKeysPanel, &map_v, params.v_map, v_full + 8 * v.stage, row, head,
           keep);
    }
    return;
  }

  begin_computing<C>();
  const u32 thread = threadIdx.x - 128;
  const int lane = int(thread % 32), warp = int(warp_uniform(thread / 32)), warp_row = first_row + warp * 16;
  const u32 my_rows = base + (warpgroup - 1) * (64 * 128);
  const u64 q_rows = swizzled_operand(my_rows, 16), o_rows = swizzled_operand(my_rows + C.o_at(), 16);
  const u64 k_rows = swizzled_operand(base + C.k_at(), 16), v_rows = swizzled_operand(base + C.v_at(), 16);
  const u64 k_columns = swizzled_operand(base + C.k_at(), C.kKeysPanel);
  const auto arrive = [&](u32 barrier) __attribute__((always_inline)) {
    if (lane == 0) mbarrier_arrive(barrier);
  };
  const BlockRows<C> places{params, row_block_of<F, C.tile_q>(params, tile.batch)};
  RowStates states;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp_row + 8 * half + lane / 4;
    const bool inside = row < q.s_q;
    states.lse[half] = inside ? params.row_lse[places(tile.head, row)] : HEED_INFINITY;
    states.dot[half] = inside ? params.row_dot[places(tile.head, row)] : 0.0f;
  }
  // Keys that all of the warp's rows see.
  const int clear_end = F.mask == MaskShape::none ? q.s_k : q.end(warp_row);
  const int clear_begin = F.mask == MaskShape::window ? q.begin(warp_row + 15) : 0;
  const DropKey drop_words = F.dropout ? drop_key(p) : DropKey{};

  float dq[C.d / 2], s[kN / 2], dp[kN / 2];  // [16 of 64 rows, d or keys]
  u32 ds[kN / 4];
  make_zeros(dq);
  mbarrier_wait(rows_full, 0);
#pragma unroll 1
  for (int i = 0; i < blocks.count; ++i) {
    const u32 before = k.stage == 0 ? C.k_stages() - 1 : k.stage - 1;
    mbarrier_wait(k_full + 8 * k.stage, k.phase);
    wgmma_fence();
    multiply_by_keys<C, T>(s, q_rows, k_rows + k.stage * (C.block_bytes() / 16));
    wgmma_commit();
    mbarrier_wait(v_full + 8 * v.stage, v.phase);
    wgmma_fence();
    multiply_by_keys<C, T>(dp, o_rows, v_rows + v.stage * (C.block_bytes() / 16));
    wgmma_commit();
    wgmma_wait<2>(dq);
    if (i > 0) arrive(k_empty + 8 * before);
    wgmma_wait<0>(s);
    wgmma_wait<0>(dp);
    arrive(v_empty + 8 * v.stage);
    const int first_key = blocks.at(i) * kN;
    const bool edge = first_key + kN > clear_end || first_key < clear_begin;
    RowFeatures<F, T> rows[2];
    if (F.changes_scores() || edge) {
      const int row = int(fresh(warp_row + lane / 4));
      rows[0].set(p, q, tile.batch, tile.head, row);
      rows[1].set(p, q, tile.batch, tile.head, row + 8);
    }
#pragma unroll
    for (int n = 0; n < kN / 16; ++n) {
      const ScoreTile at{warp_row,
                         int(fresh(first_key)) + 16 * n,
                         q.s_k,
                         edge,
                         u32(tile.batch) * p.heads + tile.head,
                         {fresh(drop_words.k0), fresh(drop_words.k1), drop_words.offset}};
      float unused[2] = {};
      differentiate<BackwardPart::queries, F, T>(p, rows, states, at, eighth(s, n), eighth(dp, n), unused, lane);
#pragma unroll
      for (int e = 0; e < 4; ++e) ds[4 * n + e] = pack<T>(dp[8 * n + 2 * e], dp[8 * n + 2 * e + 1]);
    }
    wgmma_fence();
#pragma unroll
    for (int n = 0; n < kN / 16; ++n)
      Wgmma<T, C.d>::template registers_shared<true>(dq, ds[4 * n], ds[4 * n + 1], ds[4 * n + 2], ds[4 * n + 3],
                                                     k_columns + k.stage * (C.block_bytes() / 16) + n * (16 * 128 / 16), 1);
    wgmma_commit();
    k.next();
    v.next();
  }
  wgmma_wait<0>(dq);
  // Nobody reads the warpgroup's Q any more: dQ takes its place. All warps meet here, those too that do not come so far.
  barrier_sync(warpgroup, 128);

  if (F.hides() && holds_no_number(dq)) {  // perhaps 0 * NaN of a hidden pair
    careful_queries<F, T, T, T, C.d>(params, fresh(tile.batch), fresh(tile.head), warp_row, 0, lane, places);
    return;
  }
  const u32 matrix = my_rows + (warp % 4 * 16 + (lane & 7) + (lane & 8)) * 128;
#pragma unroll
  for (int panel = 0; panel < C.panels(); ++panel)
#pragma unroll
    for (int group = 0; group < 8; group += 2) {
      const float* four = dq + 4 * (panel * 8 + group);
      store_matrix_x4(matrix + panel * C.kRowsPanel + (((group + (lane >> 4)) ^ (lane & 7)) * 16),
                      pack<T>(four[0] * p.scale, four[1] * p.scale), pack<T>(four[2] * p.scale, four[3] * p.scale),
                      pack<T>(four[4] * p.scale, four[5] * p.scale), pack<T>(four[6] * p.scale, four[7] * p.scale));
    }
  __syncwarp();
  u16* const to = static_cast<u16*>(params.dq) + tile.batch * params.dq_steps.batch + tile.head * params.dq_steps.head;
#pragma unroll 1
  for (int row = 0; row < min(16, q.s_q - warp_row); ++row)  // a lane has eight columns
    if (lane * 8 < p.d)
      *reinterpret_cast<uint4*>(to + i64(q.q_row + warp_row + row) * params.dq_steps.row + lane * 8) = load_shared_16(
          my_rows + lane / 8 * C.kRowsPanel + (warp % 4 * 16 + row) * 128 + ((lane % 8 ^ (row & 7)) * 16));
}

}  // namespace heed::kernels
