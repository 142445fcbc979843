// The gradient of the bias for sm_90a: tiles of 128 queries by 128 keys, each the sum over all that share it.
//
// Warpgroup 0: one thread copies by TMA, two tiles at a time through one ring: Q and K of a head, then dO and V of it.
// Warpgroups 1 and 2 compute 64 queries each:
//   S = Q K^T,  P = 2^(S + bias - LSE) under dP = dO V^T,  sum += P (dP - D)
// and while one is at its exponentials the other has the tensor unit. Nothing is used twice: the copies, 64 FLOP for each
// byte from the second-level cache, are what limits it. What is summed, and in which order, backward_bias.cuh tells.
#pragma once

#include "backward_bias.cuh"
#include "ptx.cuh"
#include "ring.cuh"
#include "wgmma.cuh"

namespace heed::kernels {

/// 64 rows [64, d] times keys [block, d]^T; both in panels of 64 columns.
template <PortableBackwardConfig C, class T, int R>
HEED_DEVICE void multiply_pairs(float (&x)[R], u64 rows, u64 keys) {
#pragma unroll
  for (int i = 0; i < C.d / 16; ++i) {
    const u32 in = (i % 4) * 2, panel = i / 4 * (C.block * 128 / 16);
    Wgmma<T, C.block>::shared_shared(x, rows + in + panel, keys + in + panel, i > 0);
  }
}

template <PortableBackwardConfig C>
HEED_DEVICE void hopper_backward_bias(const TensorMap& map_q, const TensorMap& map_do, const TensorMap& map_k,
                                      const TensorMap& map_v, const BackwardParams& bp) {
  static_assert(C.impossible() == nullptr && C.part == BackwardPart::bias && C.by_wgmma);
  using T = typename TagOf<C.type>::Type;
  constexpr ForwardFeatures F = C.features;
  constexpr int kN = C.block, kStages = C.stages, kPanel = C.block * 128;
  constexpr u32 kRowsBytes = C.d / 64 * kPanel, kStageBytes = 2 * kRowsBytes;  // the tile has as many rows as keys
  static_assert(C.tile() == C.block && kStageBytes == C.owned_bytes() + C.block_bytes());
  const ForwardParams& p = bp.forward;

  extern __shared__ __align__(1024) u8 heed_shared[];
  const u32 base = shared_address(heed_shared);     // [stages] of [tile, d], [block, d]
  const u32 bias_at = base + kStages * kStageBytes;  // [tile, block] of the bias, in the threads' order
  float* const over_rows = reinterpret_cast<float*>(heed_shared + kStages * kStageBytes);  // in the bias' place
  const u32 full = bias_at + C.kept_bytes(), empty = full + 8 * kStages;
  const u32 warpgroup = warp_uniform(threadIdx.x / 128);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(full + 8 * i, 1);
      mbarrier_init(empty + 8 * i, C.warps);
    }
    mbarrier_init_fence();
  }
  zero_unreached_dbias<C, C.launched_threads()>(bp);
  __syncthreads();

  Ring<kStages> ring;
  DBiasSteps<C> step;
  if (warpgroup == 0) {
    fewer_registers<40>();
    if (warp_uniform(threadIdx.x / 32) != 0 || !elect_one()) return;
    const DBiasTiles<C> tiles(bp);
    const u64 keep = keep_in_l2();
    const auto copy = [&](const TensorMap* rows, const MapSteps& row_steps, const TensorMap* keys,
                          const MapSteps& key_steps) {
      mbarrier_wait(empty + 8 * ring.stage, ring.phase ^ 1);
      const u32 barrier = full + 8 * ring.stage, to = base + ring.stage * kStageBytes;
      mbarrier_arrive_expect(barrier, kStageBytes);
#pragma unroll
      for (int i = 0; i < C.d / 64; ++i) {
        tma_load(to + i * kPanel, rows, barrier, i * 64, step.q.q_row + step.row, step.head * row_steps.head,
                 step.batch * row_steps.batch, keep);
        tma_load(to + kRowsBytes + i * kPanel, keys, barrier, i * 64, step.q.k_row + step.first_key,
                 step.head / p.group * key_steps.head, step.batch * key_steps.batch, keep);
      }
      ring.next();
    };
#pragma unroll 1
    for (i64 index = blockIdx.x; index < tiles.count * bp.d_bias_parts; index += gridDim.x)
#pragma unroll 1
      for (step.begin(bp, tiles, tiles.at(bp, index)); !step.done(); step.next(bp, tiles)) {
        copy(&map_q, bp.q_map, &map_k, bp.k_map);
        copy(&map_do, bp.d_o_map, &map_v, bp.v_map);
      }
    return;
  }

  more_registers<232>();
  const DBiasTiles<C> tiles(bp);
  const u32 thread = threadIdx.x - 128;
  const int lane = int(thread % 32), warp = int(warp_uniform(thread / 32));
  KeptBias<C> bias{bias_at + thread * KeptBias<C>::kChunkBytes, 0};
  float sum[1][kN / 2], s[kN / 2], dp[kN / 2];  // [16 of 64 rows, block]
  const auto multiply = [&](float(&x)[kN / 2], const Ring<kStages>& at) {
    mbarrier_wait(full + 8 * at.stage, at.phase);
    wgmma_fence();
    const u32 stage = fresh(base) + at.stage * kStageBytes;  // or its operands would be kept for all stages
    multiply_pairs<C, T>(x, swizzled_operand(stage + (warpgroup - 1) * (64 * 128), 16),
                         swizzled_operand(stage + kRowsBytes, 16));
    wgmma_commit();
  };
  const auto free_stage = [&] {
    __syncwarp();
    if (lane == 0) mbarrier_arrive(empty + 8 * ring.stage);
    ring.next();
  };
#pragma unroll 1
  for (i64 index = blockIdx.x; index < tiles.count * bp.d_bias_parts; index += gridDim.x) {
    const DBiasTile tile = tiles.at(bp, index);
    bias.fill(bp, tile.batch, tile.head, tile.first_row + warp * 16, tile.first_key, lane);
    make_zeros(sum[0]);
#pragma unroll 1
    for (step.begin(bp, tiles, tile); !step.done(); step.next(bp, tiles)) {
      const Sequence& q = step.q;
      const int warp_row = step.row + warp * 16, my_row = warp_row + lane / 4;
      if (!some_visible<F, kN>(q, step.row + int(warpgroup - 1) * 64, 64, step.first_key)) {  // of this warpgroup
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          mbarrier_wait(full + 8 * ring.stage, ring.phase);
          free_stage();
        }
        continue;
      }
      const i64 place = step.head * bp.row_space + row_start(p, q, step.batch) + my_row;
      // An LSE that is no number becomes one that leaves hidden keys without weight; D, which is none either, still makes
      // none of the others.
      constexpr float kNoNumber = -1e38f;
      float lse[2], dot[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool inside = my_row + 8 * half < q.s_q;
        lse[half] = inside ? fmaxf(bp.row_lse[place + 8 * half], kNoNumber) : HEED_INFINITY;
        dot[half] = inside ? bp.row_dot[place + 8 * half] : 0.0f;
      }
      Ring<kStages> next = ring;
      next.next();
      multiply(s, ring);
      multiply(dp, next);
      wgmma_wait<1>(s);
      free_stage();
#pragma unroll
      for (int n = 0; n < kN / 16; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          BiasRow<F, T, 2> two;
          bias.read(two, n, half);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float& x = s[8 * n + i / 2 * 4 + 2 * half + i % 2];
            x = __fmaf_rn(two.at(i / 2, i % 2), kLog2e, __fmul_rn(x, p.scale_log2));
          }
        }
      const bool edge = warp_row + 16 > q.s_q ||
                        step.first_key + kN > (F.mask == MaskShape::none ? q.s_k : q.end(warp_row)) ||
                        (F.mask == MaskShape::window && step.first_key < q.begin(warp_row + 15));
      if (edge) {
        RowFeatures<F, T> rows[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          rows[half].set(p, q, step.batch, step.head, my_row + 8 * half);
          if (my_row + 8 * half >= q.s_q) rows[half].end = 0;
        }
        hide_outside_window<F, T>(rows, s, step.first_key, lane);
      }
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) s[i] = exp2_approx(s[i] - lse[i / 2 % 2]);

      wgmma_wait<0>(dp);
      free_stage();
#pragma unroll
      for (int i = 0; i < kN / 2; ++i)  // hidden pairs add nothing, whatever their operands were
        sum[0][i] = __fmaf_rn(s[i], s[i] == 0.0f ? 0.0f : dp[i] - dot[i / 2 % 2], sum[0][i]);
    }
    store_sums<C>(bp, index, tile, sum, over_rows, warp, thread, [] { barrier_sync(1, 32 * C.warps); });
  }
}

}  // namespace heed::kernels
