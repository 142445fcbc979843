// dK, dV and dQ in one pass over the scores, as portable_backward_together.cuh, for head dims up to 64 without features
// but masks and lengths: there a warp's registers have room for whole rows of dK and dV, and of K and V beside them.
//
// A CTA owns 128 keys of one key/value head. Each 32 of them have two warps, which take turns with the queries, sixteen
// at a time; everything but dQ stays in the warp:
//   S^T = K Q^T, dP^T = V dO^T  [32, 16]   K and V: fragments in registers from the first block to the last
//   P^T, dS^T                              accumulators are left operands as they lie
//   dV += P^T dO, dK += dS^T Q  [32, d]    in registers; what the two warps have is added at the end
//   dQ = dS K                   [block, d] dS through shared memory; C.row_warps() x C.dq_column_warps()
// So nobody waits for anybody but once a block: behind that barrier dS of the block has come and its Q and dO may go.
// There half of the warps first compute its dQ, the others their part of the next block.
#pragma once

#include "portable_backward_together.cuh"

namespace heed::kernels {

/// P^T and dS^T of 32 keys and 16 queries from the products. lse, dot: of the thread's queries, two neighbours in each
/// eight.
template <bool edge, ForwardFeatures F, int kM>
HEED_DEVICE void differentiate_keys(const ForwardParams& p, const TileState& t, float (&s)[kM][8], float (&dp)[kM][8],
                                    const float (&lse)[4], const float (&dot)[4], int first_row, int first_key,
                                    int lane) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int n = j / 2, e = j % 2;
    int begin = 0, end = 0, sink = 0;
    if constexpr (edge) {
      const int row = first_row + 8 * n + lane % 4 * 2 + e;
      end = F.mask == MaskShape::none ? t.q.s_k : t.q.end(row);
      begin = F.mask == MaskShape::window ? t.q.begin(row) : 0;
      sink = F.mask == MaskShape::window ? t.q.sink_end(row) : 0;
    }
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = 4 * n + 2 * half + e;
        const float weight = exp2_approx(__fmaf_rn(s[m][i], p.scale_log2, -lse[j]));
        s[m][i] = weight;
        dp[m][i] = weight * (dp[m][i] - dot[j]);
        if constexpr (edge) {
          const int key = first_key + 16 * m + 8 * half + lane / 4;
          if (key >= end || (key < begin && key >= sink)) s[m][i] = dp[m][i] = 0.0f;
        }
      }
  }
}

/// Sums of a warp to the same lanes of another, through shared memory: `at` is a lane's.
template <int kM, int R>
HEED_DEVICE void give(const float (&sums)[kM][R], u32 at) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < R / 4; ++n) {
      const float four[4] = {sums[m][4 * n], sums[m][4 * n + 1], sums[m][4 * n + 2], sums[m][4 * n + 3]};
      store_shared(at + (m * (R / 4) + n) * 512, four);
    }
}
template <int kM, int R>
HEED_DEVICE void take(float (&sums)[kM][R], u32 at) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < R / 4; ++n) {
      float four[4];
      load_shared(four, at + (m * (R / 4) + n) * 512);
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[m][4 * n + e] += four[e];
    }
}

template <PortableBackwardConfig C>
__device__ __forceinline__ void portable_backward_narrow(const BackwardParams& bp) {
  static_assert(C.impossible() == nullptr && C.is_narrow());
  using T = typename TagOf<C.type>::Type;
  constexpr ForwardFeatures F = C.features;
  constexpr int kD = C.d, kDv = C.d_v, kTile = C.tile(), kBlock = C.block;
  constexpr u32 kBytes = sizeof(typename T::Raw);
  constexpr int kM = 2, kKeys = 16 * kM, kPairs = kTile / kKeys;  // two warps for 32 keys
  constexpr int kStride = 2 * C.step, kSteps = kBlock / kStride;  // of a warp's rows
  constexpr bool kHides = F.hides();                              // NVRTC takes it for no constant inside of a lambda
  constexpr bool kAlike = kD == kDv;  // so that a lane's places in dO are those in Q, kFromQ behind them
  constexpr u32 kFromQ = kBlock * kD * kBytes;
  constexpr int kKSteps = kD / 16, kVSteps = C.held_v / 16;

  const ForwardParams& p = bp.forward;
  extern __shared__ __align__(128) u8 heed_shared[];
  const TogetherMemory<C> memory{shared_address(heed_shared)};  // weights: dS^T [tile, block] of two blocks
  const u32 state_at = memory.state();
  TileState* const state = reinterpret_cast<TileState*>(heed_shared + (state_at - memory.k));
  const auto lane_anew = [] { return int(thread_anew() % 32); };
  const auto warp_anew = [] { return int(__shfl_sync(0xffffffffu, thread_anew() / 32, 0)); };

  i64 tile = blockIdx.x;
#pragma unroll 1
  while (tile < i64(p.row_tiles) * (p.heads / p.group) * p.batch) {
    set_tile<C>(bp, tile, state, threadIdx.x);
    __syncthreads();
    const auto rows_of = [&](int block) { return block_rows<kBlock>(memory.order(), block); };
    const auto count = [&] { return memory.order().of_head * p.group; };
    const auto load = [&](u32 slot, int block) {
      load_rows<C>(bp, rows_of(block), memory, slot, thread_anew());
    };
    u32 k_held[kM][kKSteps][4], v_held[kM][kVSteps][4];
    if (count() > 0) {
      load_keys<C>(bp, tile_state_at(state_at), memory, thread_anew());
#pragma unroll 1
      for (int block = 0; block < 2; ++block) {
        if (block < count()) load(block, block);
        close_copies();
      }
      wait_copies<1>();
      __syncthreads();
      const u32 lane = thread_anew() % 32;
      const int my_key = warp_anew() % kPairs * kKeys;
      const u32 k_first = matrices_down<kD / 8>(memory.k + my_key * kD * kBytes, lane),
                v_first = matrices_down<kDv / 8>(memory.v() + my_key * kDv * kBytes, lane);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int step = 0; step < kKSteps; ++step)
          load_matrices(k_held[m][step], moved<kD / 8>(k_first, 16 * m, 2 * step));
#pragma unroll
        for (int step = 0; step < kVSteps; ++step)
          load_matrices(v_held[m][step], moved<kDv / 8>(v_first, 16 * m, 2 * step));
      }
    }

    float dk[kM][kD / 2], dv[kM][kDv / 2];  // [keys, columns], of this warp's queries
    clear(dk);
    clear(dv);

    const auto ds_of = [&](u32 slot) { return memory.weights() + slot * memory.kWeightBytes; };
    const auto add_dq_of = [&](int block) __attribute__((always_inline)) {
      const HeadRows here = rows_of(block);
      const int lane = lane_anew(), warp = warp_anew();
      if (memory.sees_all(here.row) || sees<F>(tile_state_at(state_at), here.row + first_dq_row<C>(warp),
                                               kBlock / C.row_warps(), 0, kTile))
        add_dq<C, Stored::by_depth>(bp, here, memory, ds_of(u32(block) % 2), warp, lane);
    };
    const auto add_to_keys = [&](int block) __attribute__((always_inline)) {
      const u32 slot = u32(block) % 2;
      // Where a lane points in a block: the warp's first 16 rows of Q, for S and for dK, their LSE, and so on; in dO as
      // far as in Q, where both are alike.
      struct Places {
        u32 q_across, q_down, do_across, do_down, v, stats, ds;
        int lane, row, key;

        __device__ __forceinline__ u32 d_o_across() const { return kAlike ? q_across + kFromQ : do_across; }
        __device__ __forceinline__ u32 d_o_down() const { return kAlike ? q_down + kFromQ : do_down; }
      };
      const auto places = [&](int first_row) {
        const u32 lane = lane_anew(), warp = warp_anew(), turn = warp / kPairs % 2, key = warp % kPairs * kKeys;
        const u32 q = memory.q(slot) + turn * (16 * kD * kBytes), d_o = memory.d_o(slot) + turn * (16 * kDv * kBytes);
        return Places{
            .q_across = matrices_across<kD / 8>(q, lane),
            .q_down = matrices_down<kD / 8>(q, lane),
            .do_across = matrices_across<kDv / 8>(d_o, lane),
            .do_down = matrices_down<kDv / 8>(d_o, lane),
            .v = matrices_down<kDv / 8>(memory.v() + key * (kDv * kBytes), lane),
            .stats = memory.stats(slot) + (16 * turn + lane % 4 * 2) * 4,
            .ds = moved<kBlock / 8>(weights_place<kBlock>(ds_of(slot) + key * (kBlock * kBytes), lane), 0, 2 * turn),
            .lane = int(lane),
            .row = first_row + int(16 * turn),
            .key = int(key)};
      };
      const auto step = [&]<bool edge>(const Places& at, int j) __attribute__((always_inline)) {
        float s[kM][8], dp[kM][8];
        clear(s);
        clear(dp);
        float lse[4], dot[4];
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          float two[2];
          load_shared(two, at.stats + (kStride * j + 8 * n) * 4);
          lse[2 * n] = two[0], lse[2 * n + 1] = two[1];
          load_shared(two, at.stats + (kBlock + kStride * j + 8 * n) * 4);
          dot[2 * n] = two[0], dot[2 * n + 1] = two[1];
        }
        multiply_held<T, kD>(s, k_held, 0, at.q_across + j * (kStride * kD * kBytes));
        multiply_held<T, kDv>(dp, v_held, at.v, at.d_o_across() + j * (kStride * kDv * kBytes));
        TileState t;
        if constexpr (edge) t = tile_state_at(state_at);
        differentiate_keys<edge, F>(p, t, s, dp, lse, dot, at.row + kStride * j, edge ? t.first_key + at.key : 0,
                                    at.lane);
        u32 a[kM][4];
        pack_weights<T, 16, kM>(a, s, 0);
        multiply_values_of_step<T, kDv, kDv, kM>(dv, a, at.d_o_down() + j * (kStride * kDv * kBytes), 0);
        pack_weights<T, 16, kM>(a, dp, 0);
#pragma unroll
        for (int m = 0; m < kM; ++m) store_fragment<kBlock>(moved<kBlock / 8>(at.ds, 0, kStride / 8 * j), m, a[m]);
        multiply_values_of_step<T, kD, kD, kM>(dk, a, at.q_down + j * (kStride * kD * kBytes), 0);
      };
      const auto seen = [&](int row, int rows, int key) {
        return pairs_seen<F>(tile_state_at(state_at), row, rows, key, kKeys);
      };
      const int row = rows_of(block).row;
      if (memory.sees_all(row) || seen(row, kBlock, warp_anew() % kPairs * kKeys) == PairsSeen::all) {
        const Places at = places(0);
#pragma unroll
        for (int j = 0; j < kSteps; ++j) step.template operator()<false>(at, j);
      } else {
#pragma unroll 1
        for (int j = 0; j < kSteps; ++j) {
          const Places at = places(rows_of(int(fresh(block))).row);
          const PairsSeen pairs = seen(at.row + kStride * j, 16, at.key);
          if (pairs == PairsSeen::none) {
            const u32 zeros[4] = {0, 0, 0, 0};
#pragma unroll
            for (int m = 0; m < kM; ++m)
              store_fragment<kBlock>(moved<kBlock / 8>(at.ds, 0, kStride / 8 * j), m, zeros);
          } else if (pairs == PairsSeen::all) {
            step.template operator()<false>(at, j);
          } else {
            step.template operator()<true>(at, j);
          }
        }
      }
    };

    // Between two barriers come dQ of block i and all else of block i + 1: for half of the warps the one first, for
    // half the other, so that one of the two warps of a scheduler is at products while the other prepares its own.
#pragma unroll 1
    for (int i = -1; i < count(); ++i) {
      // So block i + 1 has come, dS of block i is there, and nobody reads its Q and dO any more, nor the dS before.
      if (i >= 0) {
        wait_copies<0>();
        __syncthreads();
      }
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
        if ((warp_anew() < 4) == (half == 0)) {
          if (i >= 0) add_dq_of(i);
        } else if (i + 1 < count()) {
          if (i >= 0 && i + 2 < count()) load(u32(i) % 2, i + 2);
          close_copies();
          add_to_keys(i + 1);
        }
      }
    }

    // The first of two warps gets the other's dK and gives its dV.
    __syncthreads();
    const int lane = lane_anew(), warp = warp_anew(), my_key = warp % kPairs * kKeys, turn = warp / kPairs;
    const u32 change_at = memory.q(0) + (my_key * (kD + kDv) + lane * 4) * 4;  // over the ring: dV, dK of 32 keys
    const u32 dk_change_at = change_at + kKeys * kDv * 4;
    static_assert(kTile * (kD + kDv) * 4 <= C.stages * C.block_bytes() + C.weight_bytes());
    if (turn == 0) {
      give(dv, change_at);
    } else {
      give(dk, dk_change_at);
    }
    __syncthreads();
    const TileState t = tile_state_at(state_at);
    const int own_key = t.first_key + my_key;
    const auto finish = [&]<bool keys, int kColumns>(auto& sums, u32 at) __attribute__((always_inline)) {
      take(sums, at);
      const Rows<T> rows = keys ? rows_to<T>(bp.dk, bp.dk_steps, t.batch, t.kv_head, t.q.k_row, t.q.s_k, p.d)
                                : rows_to<T>(bp.dv, bp.dv_steps, t.batch, t.kv_head, t.q.k_row, t.q.s_k, p.d_v);
      const float factor = keys ? p.scale : 1.0f, factors[2] = {factor, factor};
      u32 careful = 0;
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        if (kHides && holds_no_number(sums[m])) {
          careful |= 1u << m;
        } else {
          store_rows<T, T, kColumns>(rows, own_key + 16 * m, 0, sums[m], factors, lane);
        }
      }
      if constexpr (kHides) {
#pragma unroll 1
        for (int m = 0; m < kM; ++m, careful >>= 1)
          if (careful % 2 != 0)
            careful_keys<keys, F, T, T, T, kColumns>(bp, fresh(t.batch), fresh(t.kv_head), own_key + 16 * m, 0,
                                                     fresh(lane), PackedRows<F>{bp, t.batch});
      }
    };
    if (turn == 0) {
      finish.template operator()<true, kD>(dk, dk_change_at);
    } else {
      finish.template operator()<false, kDv>(dv, change_at);
    }
    tile = t.tile + gridDim.x;
    __syncthreads();  // all are done with the tiles, before the next ones are loaded over them
  }
}

}  // namespace heed::kernels
