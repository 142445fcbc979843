// Forward attention for sm_90a: wgmma for the products, TMA for the copies. docs/kernels/forward.md tells the schedule.
//
// Warpgroup 0 copies: one warp feeds Q, K and V tiles into rings in shared memory. Warpgroups 1.. compute 64 query rows
// each: S = Q K^T (both operands in shared memory), softmax in registers, O += P V (P in registers). Q K^T of block j and
// P V of block j - 1 are issued together; while one warpgroup exponentiates, the others have the matrix unit. Tiles are
// chained: a tile's first Q K^T is issued before the O of the one before is stored.
#pragma once

#include "forward_features.cuh"
#include "forward_scores.cuh"
#include "hopper_bias.cuh"
#include "hopper_config.h"
#include "hopper_copies.cuh"
#include "hopper_output.cuh"
#include "hopper_products.cuh"
#include "hopper_roles.cuh"
#include "hopper_rows.cuh"
#include "hopper_softmax.cuh"
#include "hopper_tiles.cuh"
#include "hopper_waiting.cuh"
#include "ptx.cuh"
#include "ring.cuh"
#include "shown_entries.cuh"

namespace heed::kernels {

template <HopperConfig C>
HEED_DEVICE void hopper_forward(const TensorMap& map_q, const TensorMap& map_k, const TensorMap& map_v,
                                const TensorMap& map_o, const ForwardParams& p) {
  static_assert(C.impossible() == nullptr, "this combination of knobs cannot be compiled");
  using T = typename TagOf<C.type>::Type;
  static constexpr ForwardFeatures F = C.features;
  static constexpr int kWgs = C.warpgroups, kN = C.tile_k;
  extern __shared__ __align__(1024) u8 heed_shared[];
  const u32 base = shared_address(heed_shared);
  const u32 warpgroup = warp_uniform(threadIdx.x / 128);
  const u32 rank = C.cluster == 1 ? 0 : cluster_rank();
  const int rank_row = int(rank) * C.tile_q();  // of the cluster's rows, the first of this block's

  // Barriers, a full and an empty one for each: Q by buffer and warpgroup, K and V by stage, biases by warpgroup and stage.
  const u32 q_full = base + C.barriers_at(), q_empty = q_full + 8 * C.q_buffers * kWgs;
  const u32 k_full = q_empty + 8 * C.q_buffers * kWgs, k_empty = k_full + 8 * C.k_stages;
  const u32 v_full = k_empty + 8 * C.k_stages, v_empty = v_full + 8 * C.v_stages;
  const u32 bias_full = v_empty + 8 * C.v_stages, bias_empty = bias_full + 8 * C.bias_tiles();
  volatile TileWork* works = reinterpret_cast<volatile TileWork*>(heed_shared + C.work_at());  // [buffer][warpgroup]
  const CopyPlaces places{&map_q, &map_k, &map_v, base, q_full, q_empty, k_full, k_empty, v_full, v_empty, works};

  if (threadIdx.x == 0) {
    tma_prefetch(&map_q);
    tma_prefetch(&map_k);
    tma_prefetch(&map_v);
    tma_prefetch(&map_o);
    for (int i = 0; i < C.q_buffers * kWgs; ++i) {
      mbarrier_init(q_full + 8 * i, 1);
      mbarrier_init(q_empty + 8 * i, 4);
    }
    for (int i = 0; i < C.k_stages; ++i) {
      mbarrier_init(k_full + 8 * i, 1);
      mbarrier_init(k_empty + 8 * i, 4 * kWgs * C.cluster);
    }
    for (int i = 0; i < C.v_stages; ++i) {
      mbarrier_init(v_full + 8 * i, 1);
      mbarrier_init(v_empty + 8 * i, 4 * kWgs * C.cluster);
    }
    for (int i = 0; i < C.bias_tiles(); ++i) {
      mbarrier_init(bias_full + 8 * i, 32);
      mbarrier_init(bias_empty + 8 * i, 4);
    }
    mbarrier_init_fence();
  }
  if constexpr (C.cluster == 1) {
    __syncthreads();
  } else {
    cluster_sync();
  }

  if (C.specialised && warpgroup == 0) {
    // ---- the copying warp ------------------------------------------------------------------------------------------
    // Which tiles and blocks are sent when. The loop is in this function and not in hopper_copies.cuh because the compiler
    // would number registers otherwise, also those of the math warpgroups (docs/kernels/log.md, "Pitfalls").
    begin_copying<C>();
    if constexpr (C.bias_copied()) {
      const u32 copying_warp = warp_uniform(threadIdx.x / 32);
      if (copying_warp != 0 && copying_warp <= kWgs)
        copy_biases<C>(p, base, copying_warp - 1, q_full, bias_full, bias_empty, works, threadIdx.x % 32);
    }
    if (threadIdx.x / 32 != 0) return;
    if (!F.own_lengths && !elect_one()) return;  // one thread is enough, but for the search
    const int lane = threadIdx.x;
    const u64 once = drop_from_l2(), again = keep_in_l2();
    Ring<C.q_buffers> q;
    Ring<C.k_stages> k;
    Ring<C.v_stages> v;
    TileSearch<C> search;
    const int same_length_tiles = p.row_tiles * heads_of_tiles<F>(p) * p.batch;
    for (int tile = blockIdx.x / C.cluster;;) {
      TileWork work{};
      bool found = tile < same_length_tiles;
      if constexpr (F.own_lengths) {
        found = search.find(p, tile, lane, work);
      } else if (found) {
        work = tile_number<C>(p, tile);
      }
      u32 ticket = 0;
      if (!F.own_lengths || elect_one()) {
        const int kv_head = kv_head_of<F>(p, work);
        const Sequence sequence = sequence_of_tile<C>(p, work);

        auto load_q = [&]() { send_q<C>(places, p, q, sequence, work, found, rank, once); };
        // In a cluster each block copies half of the rows, for both.
        auto load_half = [&](u32 to, const TensorMap* map, u32 full, int panels, int block, const MapSteps& steps)
            __attribute__((always_inline)) {
#pragma unroll
          for (int i = 0; i < panels; ++i)
            tma_load_to_all(to + i * (kN * 128) + rank * (kN / 2 * 128), map, full, i * 64,
                            sequence.k_row + block * kN + rank * (kN / 2), kv_head * steps.head,
                            work.batch * steps.batch, 3, again);
        };
        auto load_k = [&](int block) {
          if constexpr (C.cluster == 1) {
            send_k<C>(places, p, k, sequence, kv_head, work, block, again);
          } else {
            load_half(claim_k<C>(places, k), places.k, places.k_full + 8 * k.stage, C.panels(), block, p.k_map);
            k.next();
          }
        };
        auto load_v = [&](int block) {
          if constexpr (C.cluster == 1) {
            send_v<C>(places, p, v, sequence, kv_head, work, block, again);
          } else {
            load_half(claim_v<C>(places, v), places.v, places.v_full + 8 * v.stage, C.v_panels(), block, p.v_map);
            v.next();
          }
        };

        // Where tiles differ, the next one is drawn beside the last copy of this one. Any sooner, and who is at a long tile
        // would hold one that others could begin.
        constexpr bool kAlike = F.mask == MaskShape::none && !F.own_lengths && !F.blocks;
        auto draw = [&]() __attribute__((always_inline)) {
          if (C.persistence == Persistence::dynamic) ticket = atomicAdd(p.counter, 1u);
        };
        if (!found) {
          load_q();
        } else {
          if (kAlike) draw();
          const KeyBlocks blocks =
              blocks_of<C>(sequence, work.row_tile * C.tile_rows(), (work.row_tile + 1) * C.tile_rows());
          int n = first_block<C>(p, blocks, work, sequence);
          if (C.q_buffers == 1) {  // Q's buffer is free last
            load_k(n);
            load_q();
          } else {
            load_q();
            load_k(n);
          }
#pragma unroll 1
          for (int next = next_block<C>(p, blocks, work, sequence, n); next >= 0;
               n = next, next = next_block<C>(p, blocks, work, sequence, next)) {
            load_k(next);
            load_v(n);
          }
          if (!kAlike) draw();
          load_v(n);
        }
      }
      if (!found) {
        // A launch draws one ticket for every tile, so that whoever is sent behind the end by the last one knows that
        // all have been drawn: it leaves the counter at zero.
        const int tiles = F.own_lengths ? search.tiles_before : same_length_tiles;
        if (C.persistence == Persistence::dynamic && tile == int(gridDim.x) + tiles - 1)
          *static_cast<volatile u32*>(p.counter) = 0;
        break;
      }
      tile = C.persistence == Persistence::one_tile ? 0x7fffffff
             : C.persistence == Persistence::fixed  ? tile + gridDim.x / C.cluster
                                                    : gridDim.x + (F.own_lengths ? __reduce_max_sync(0xffffffffu, ticket) : ticket);
    }
    if (C.cluster > 1) cluster_sync();  // nobody leaves while the other block may still write to it
    return;
  }

  // ---- the math warpgroups -----------------------------------------------------------------------------------------
  if constexpr (C.specialised) begin_computing<C>();
  const u32 w = C.specialised ? warpgroup - 1 : warpgroup, lane = threadIdx.x % 32, warp = warp_uniform((threadIdx.x / 32) % 4);
  const float c = F.changes_scores() ? 1.0f : p.scale_log2;
  const u32 my_turn = 1 + w, next_turn = 1 + (w + 1 == kWgs ? 0 : w + 1), together = 1 + kWgs + w;
  if (C.turns != Turns::free && w == kWgs - 1) barrier_arrive(next_turn, 256);  // the first one begins

  // Without a copying warp a thread of the first warp copies, whenever that warp has to wait.
  Waiting<C> waiting(p, places, w == 0 && warp == 0);
  const u64 k_operand = swizzled_operand(base + C.k_at(), 16);
  const u64 v_operand = swizzled_operand(base + C.v_at(), C.v_by_columns ? 16 : kN * 128);
  const u32 p_at = base + C.p_at() + w * C.p_bytes();
  const u32 matrix_row = (lane & 15) * 128;  // row of this lane's address in a 16-row slice

  Ring<C.q_buffers> q;
  Ring<C.k_stages> k;
  Ring<C.v_stages> v;
  Ring<C.bias_stages> b;
  typename Sums<C, T>::Element o[Sums<C, T>::kRegisters];  // [64 x d_v] of the warpgroup
  float s[kN / 2];          // [64 x tile_k]: scores, then weights
  u32 half_s[C.scores_in_f16 ? kN / 4 : 1];  // the scores as the product leaves them
  u32 weights[kN / 4];      // the same as 16-bit operands
  Softmax<C> softmax{};
  float factor[2];          // what O is multiplied by in the end
  u32 slot = 0;             // Q slot of the current tile
  KeyBlocks blocks{};
  int n = 0, skipped = 0;   // current key block; V blocks to hand on
  bool draining = false;    // the store of the previous O may still be reading its Q slot
  bool still_pinned = false;
  u32 q_registers[C.q_in_registers ? C.d / 4 : 1];

  // Every warp gives a stage back for itself. One arrival per warpgroup is not enough: where blocks are handed on there
  // is no wgmma to keep its warps together, and a warp that looks at a full barrier two turns late waits for ever.
  auto give_back = [&](u32 barrier) __attribute__((always_inline)) {
    if constexpr (C.cluster == 1) {
      if (lane == 0) mbarrier_arrive(barrier);
    } else {
      if (lane < C.cluster) mbarrier_arrive_at(barrier, lane);
    }
  };
  auto release_k = [&]() {
    give_back(k_empty + 8 * k.stage);
    k.next();
  };
  auto release_v = [&](u32 stage) { give_back(v_empty + 8 * stage); };
  auto hand_on_v = [&]() {
    waiting.wait(v_full + 8 * v.stage, v.phase);
    release_v(v.stage);
    v.next();
  };
  auto other = [&](u32 at) { return C.q_buffers == 1 ? at : at < kWgs ? at + kWgs : at - kWgs; };
  auto work_in = [&](u32 at) __attribute__((always_inline)) { return work_at<C>(works[at]); };

  auto issue_qk = [&]() {
    const u64 k_at = k_operand + k.stage * (C.k_bytes() / 16);
    wgmma_fence();
    if constexpr (C.q_in_registers && C.scores_in_f16) {
      issue_scores_from_registers<C, T>(half_s, q_registers, k_at);
    } else if constexpr (C.q_in_registers) {
      issue_scores_from_registers<C, T>(s, q_registers, k_at);
    } else if constexpr (C.scores_in_f16) {
      issue_scores<C, T>(half_s, swizzled_operand(base + slot * C.q_bytes(), 16), k_at);
    } else {
      issue_scores<C, T>(s, swizzled_operand(base + slot * C.q_bytes(), 16), k_at);
    }
    wgmma_commit();
  };
  auto issue_pv = [&]() {
    wgmma_fence();
    if constexpr (C.p_in_shared) {
      issue_values_from_shared<C, T>(o, swizzled_operand(p_at, 16), v_operand + v.stage * (C.v_bytes() / 16));
    } else {
      issue_values<C, T>(o, weights, v_operand + v.stage * (C.v_bytes() / 16));
    }
    wgmma_commit();
  };
  // After the wait for a product of scores.
  auto pin_scores = [&]() __attribute__((always_inline)) {
    if constexpr (C.scores_in_f16) {
      pin(half_s);
    } else {
      pin(s);
    }
  };
  auto take_scores = [&]() __attribute__((always_inline)) {
    if constexpr (C.scores_in_f16) {
      pin(half_s);
      widen(s, half_s);
    }
  };
  // P in shared memory: panels of 64 keys, as Q lies. All four warps must have written before the product reads.
  auto publish_weights = [&]() __attribute__((always_inline)) {
    if constexpr (C.p_in_shared) {
#pragma unroll
      for (int i = 0; i < kN / 16; ++i)
        store_matrix_x4(p_at + (i / 4) * (64 * 128) + warp * 16 * 128 + matrix_row +
                            (((i % 4 * 2 + (lane >> 4)) ^ (lane & 7)) * 16),
                        weights[4 * i], weights[4 * i + 1], weights[4 * i + 2], weights[4 * i + 3]);
      fence_shared_for_async();
      barrier_sync(together, 128);
    }
  };
  // V rows behind the end of a sequence belong to somebody else and may hold NaN, which a weight of 0 does not silence:
  // they are zeroed before the product. Other warpgroups may do the same at the same time.
  auto zero_v_rows = [&](int first) {
    waiting.wait(v_full + 8 * v.stage, v.phase);
    const u32 at = base + C.v_at() + v.stage * C.v_bytes();
#pragma unroll 1
    for (int i = threadIdx.x % 128; i < (kN - first) * 8 * C.v_panels(); i += 128)
      store_shared_zero_16(at + (i % C.v_panels()) * (kN * 128) + first * 128 + i / C.v_panels() * 16);
    fence_shared_for_async();
    barrier_sync(together, 128);
  };

  // Waits for the next tile and issues its first Q K^T. O may still belong to the tile before: this touches s, slot, n,
  // blocks and skipped only. Without more work the product is issued all the same, on stale memory, and ignored: ptxas
  // serialises every wgmma of the kernel if the issue of one depends on control flow.
  auto begin_tile = [&](bool v_pinned, u32 pinned_stage) __attribute__((always_inline)) {
    slot = q.stage * kWgs + w;
    waiting.wait(q_full + 8 * slot, q.phase);
    q.next();
    const TileWork work = work_in(slot);
    const bool more = work.row_tile >= 0;
    const Sequence sequence = sequence_of_tile<C>(p, work);
    const int tile_row = work.row_tile * C.tile_rows(), first_row = tile_row + rank_row + w * 64;
    blocks = blocks_of<C>(sequence, tile_row, tile_row + C.tile_rows());
    n = first_block<C>(p, blocks, work, sequence);
    if (kWgs * C.cluster > 1 && !F.blocks && more) {  // blocks that only other warpgroups need are handed on
      const int mine = first_block_of_rows<C>(sequence, blocks, first_row, n);
      const bool many = F.mask == MaskShape::none || n - mine + skipped > C.most_skipped();
      if (many && n > mine) {  // the ring must turn, so that the V stage of the pending P V has to go first
        if (v_pinned) {
          wgmma_wait_all();
          release_v(pinned_stage);
          v_pinned = false;
        }
#pragma unroll 1
        for (; F.mask == MaskShape::window && skipped > 0; --skipped) hand_on_v();
      }
#pragma unroll 1
      for (; n > mine; n = blocks.next(n)) {
        waiting.wait(k_full + 8 * k.stage, k.phase);
        release_k();
        if (C.turns != Turns::free) {
          barrier_sync(my_turn, 256);
          barrier_arrive(next_turn, 256);
        }
        if (many) {
          hand_on_v();
        } else {
          ++skipped;
        }
      }
    }
    if constexpr (C.q_in_registers)
      load_q_registers<C>(q_registers, base + slot * C.q_bytes() + warp * 16 * 128 + matrix_row, lane);
    if (more) waiting.wait(k_full + 8 * k.stage, k.phase);
    pin_scores();
    issue_qk();
    still_pinned = v_pinned;
    return more;
  };

  auto spoilt_sums = [&](bool counts) __attribute__((always_inline)) {
    if constexpr (C.sums_in_f16) {
      float wide[C.d_v / 2];
      widen(wide, o);
      return spoilt(wide, counts);
    } else {
      return spoilt(o, counts);
    }
  };
  // O of a finished tile, times `factor` -> 16-bit -> shared memory -> global memory, warp by warp.
  auto store_o = [&](u32 from, const TileWork& work) __attribute__((always_inline)) {
    const Sequence sequence = sequence_of_tile<C>(p, work);
    const int first_row = work.row_tile * C.tile_rows() + rank_row + w * 64 + warp * 16;  // of this warp
    // In a Q tile's memory all four warps must be past their last read of Q. Each has waited for its last Q K^T.
    if (!C.own_o_memory) barrier_sync(together, 128);
    if (F.hides() && spoilt_sums(first_row + int(lane) / 4 < sequence.rows())) {
      float top[2];
#pragma unroll
      for (int r = 0; r < 2; ++r)
        top[r] = in_log2_units(softmax.top[r], c);
      careful_rows<F, T, T, (C.d_v + 31) / 32 * 32>(p, sequence, work.batch, work.head, first_row, top, lane);
      return;
    }
    const u32 at =
        (C.own_o_memory ? base + C.o_at() + w * (2 * 64 * 128) : base + from * C.q_bytes()) + warp * 16 * 128;
    store_o_of_warp<C, T>(o, factor, &map_o, p, sequence, work, first_row, at, matrix_row, lane);
  };
  auto finish_sums = [&](const TileWork& work) __attribute__((always_inline)) {
    const Sequence sequence = sequence_of_tile<C>(p, work);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      // Where registers are short a row's number is not kept from tile to tile.
      const int row = work.row_tile * C.tile_rows() + rank_row + w * 64 + warp * 16 + (kWgs == 4 ? fresh(lane) : lane) / 4 + 8 * r;
      float total = softmax.total[r];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const float top = in_log2_units(softmax.top[r], c);
      const int head = sequence.head(work.head, row);
      const RowEnd end = end_row<F>(p, head, top, total);
      factor[r] = end.factor;
      if (p.lse && lane % 4 == 0 && row < sequence.rows())
        p.lse[work.batch * p.lse_steps.batch + head * p.lse_steps.head +
              (sequence.q_row + sequence.query(row)) * p.lse_steps.row] = end.lse;
    }
  };

  begin_tile(false, 0);
  if (works[slot].row_tile < 0) {  // fewer tiles than blocks
    wgmma_wait_all();
    pin_scores();
    waiting.finish();
    if (C.cluster > 1) cluster_sync();
    return;
  }
  while (true) {
#pragma unroll 1
    for (; F.mask != MaskShape::none && skipped > 0; --skipped) hand_on_v();
    const TileWork work = work_in(slot);
    const Sequence sequence = sequence_of_tile<C>(p, work);
    const int row0 = work.row_tile * C.tile_rows() + rank_row + w * 64;  // first row of this warpgroup
    const int warp_row = row0 + int(warp) * 16;
    RowFeatures<F, T> rows[2];
    auto set_rows = [&](u32 lane) __attribute__((always_inline)) {
      rows[0].set(p, sequence, work.batch, work.head, sequence.query(warp_row + lane / 4));
      rows[1].set(p, sequence, work.batch, work.head, sequence.query(warp_row + lane / 4 + 8));
    };
    set_rows(lane);
    const DropKey key = F.dropout ? drop_key(p) : DropKey{};

    // Boolean and block masks come as bits, a block ahead, or are read entry by entry: then every block is masked.
    constexpr bool kAhead = F.bit_masks() && C.masks_ahead(), kByEntries = F.bit_masks() && !kAhead;
    // Blocks from `clear_low` to below `clear_high` are inside the window of every row of this warpgroup.
    const int clear_high = kByEntries ? -1 : (F.mask == MaskShape::none ? sequence.s_k : sequence.end(sequence.query(row0))) / kN;
    const int clear_low = F.mask == MaskShape::window ? (sequence.begin(sequence.query(row0 + 63)) + kN - 1) / kN : 0;

    // What a block needs beside its scores, brought while those are waited for.
    BlockBias<F, T, kN / 2> bias;
    ShownEntries<F, T, kN / 2> shown;
    int block_behind = 0;  // the one that is computed next
    auto fetch_features = [&](int block) __attribute__((always_inline)) {
      if constexpr (C.bias_copied()) {
        waiting.wait(bias_full + 8 * (w * C.bias_stages + b.stage), b.phase);
      } else {
        bias.fetch(p, rows, block * kN, sequence.s_k, lane);
      }
      if constexpr (kAhead) {
        shown.settle(p, rows, block * kN, sequence.s_k, lane);
        block_behind = next_block<C>(p, blocks, work, sequence, block);
        shown.fetch(p, rows, block_behind * kN, sequence.s_k, lane);
      }
    };
    auto next = [&](int block) __attribute__((always_inline)) {
      return kAhead ? block_behind : next_block<C>(p, blocks, work, sequence, block);
    };
    // A bias that was copied is read where it is needed, and given back when nobody can need it again.
    auto read_copied_bias = [&]() __attribute__((always_inline)) {
      if constexpr (C.bias_copied())
        read_bias<C>(bias, base + C.bias_at() + (w * C.bias_stages + b.stage) * C.bias_bytes(), warp,
                     kWgs == 4 ? fresh(lane) : lane);  // where registers are short addresses are made anew
    };
    auto done_with_bias = [&]() __attribute__((always_inline)) {
      if constexpr (C.bias_copied()) {
        give_back(bias_empty + 8 * (w * C.bias_stages + b.stage));
        b.next();
      }
    };
    auto prepare_scores = [&](int block, bool masked) __attribute__((always_inline)) {
      read_copied_bias();
      if constexpr (F.changes_scores()) change_scores<F, T>(p, rows, bias, s, block * kN, sequence.s_k, lane);
      if constexpr (kByEntries) {
        hide_by_bits<F, T>(p, rows, s, block * kN, sequence.s_k, lane);
      } else if (masked) {
        if (kWgs == 4) set_rows(fresh(lane));  // where registers are short they are made anew
        hide_outside_window<F, T>(rows, s, block * kN, lane);
      }
      if (kAhead) shown.hide_others(s);
    };
    auto round_weights = [&](int block) __attribute__((always_inline)) {
      if constexpr (F.dropout) drop(p, key, work.batch * p.heads + work.head, s, warp_row, block * kN, lane);
#pragma unroll
      for (int i = 0; i < kN / 4; ++i) weights[i] = pack<T>(s[2 * i], s[2 * i + 1]);
    };

    // Scores -> 16-bit weights. Each branch is one interleaved stream of its own.
    auto make_weights = [&](int block) __attribute__((always_inline)) {
      if (!F.changes_scores() && __builtin_expect(softmax.huge, 0)) {
        softmax.exponentiate_differences(s, c);
        round_weights(block);
      } else {
        softmax.exponentiate(s, c);
        round_weights(block);
      }
    };
    // The same from products.
    using Direct = DirectExponents<F, T, kN / 2>;
    Direct direct;
    auto make_weights_directly = [&](int block) __attribute__((always_inline)) {
      if constexpr (Direct::kPossible) {
        read_copied_bias();
#pragma unroll
        for (int half = 0; half < 2; ++half) bias.settle(p, rows[half], half, block * kN, sequence.s_k, lane);
        softmax.exponentiate_directly(s, [&](float product, int i) __attribute__((always_inline)) {
          return direct.of(p, bias, product, i);
        });
        round_weights(block);
      }
    };

    // First block: no older product of this tile to overlap with.
#pragma unroll
    for (int i = 0; i < Sums<C, T>::kRegisters; ++i) o[i] = 0;
    if (kAhead) shown.fetch(p, rows, n * kN, sequence.s_k, lane);
    fetch_features(n);
    wgmma_wait<0>(s);
    take_scores();
    release_k();
    const int first_hidden = sequence.s_k - n * kN;  // V rows of this block from here on are not the sequence's
    bool foreign_rows = F.own_lengths && first_hidden < kN;
    prepare_scores(n, n >= clear_high || n < clear_low);
    softmax.look(s, c, true, true);
    make_weights(n);
    done_with_bias();
    publish_weights();
    softmax.add_sums();
    if (!C.own_o_memory && C.q_buffers > 1) {  // the Q buffer before this one, once its O has left through it
      if (draining && lane == 0) {
        tma_store_wait_read<0>();
        mbarrier_arrive(q_empty + 8 * other(slot));
      }
      draining = false;
    }
    int careful = 0;  // lazy maximum: a recent block needed a new reference, so look first for this many blocks more
    const bool hands_on = kernels::hands_on<C>(blocks);
    const int last_block = hands_on ? min(blocks_of<C>(sequence, row0, row0 + 64).low, n)
                                    : last_block_of<C>(p, blocks, work, sequence, n);
    const bool only_block = n == last_block;

    auto step = [&](int block, bool masked) __attribute__((always_inline)) {
      if (F.own_lengths && foreign_rows) {
        zero_v_rows(max(first_hidden, 0));
        foreign_rows = false;
      }
      waiting.wait(k_full + 8 * k.stage, k.phase);
      if (C.turns == Turns::products) barrier_sync(my_turn, 256);
      pin_scores();
      pin(o);
      issue_qk();
      waiting.wait(v_full + 8 * v.stage, v.phase);
      issue_pv();
      if (C.turns == Turns::products) barrier_arrive(next_turn, 256);
      fetch_features(block);
      wgmma_wait<1>(s);
      take_scores();
      if (C.own_o_memory && block == last_block) {  // Q was read for the last time: there is no second try, so look first
        if (lane == 0) mbarrier_arrive(q_empty + 8 * slot);
        careful = 1;
      }
      if (C.turns == Turns::softmax) barrier_sync(my_turn, 256);
      const bool lazy = C.lazy_maximum && !masked && careful == 0;
      if (!C.lazy_maximum) release_k();
      if (lazy) softmax.keep_reference(c);
      const bool directly = Direct::kPossible && lazy && !softmax.huge &&
                            direct.suits(p, rows, s, block * kN, lane, softmax.top_c);
      if (!directly) prepare_scores(block, masked);
      if (!lazy) {
        softmax.look(s, c, false, masked || F.changes_scores() || F.bit_masks());  // these may hide every key so far
        if (C.lazy_maximum && !masked) careful = softmax.rescale ? 8 : careful - 1;
      }
      // P V has had the time of the maximum (or of another warpgroup) to end. Waiting here frees the registers of P, so
      // that exponentials, sums and conversions become one interleaved stream.
      wgmma_wait<0>(o);
      release_v(v.stage);
      v.next();
      if (directly) {
        make_weights_directly(block);
      } else {
        make_weights(block);
      }
      if (C.turns == Turns::softmax) barrier_arrive(next_turn, 256);
      if (C.lazy_maximum) {
        if (lazy && __builtin_expect(softmax.stale(), 0)) {
          // Where registers are short the address of Q is not kept through the loop.
          const u32 q_at = base + (kWgs == 4 && F.own_lengths ? fresh(slot) : slot) * C.q_bytes();
          scores_of_warp<C, T>(s, q_at + warp * 16 * 128, base + C.k_at() + k.stage * C.k_bytes(), lane);
          if constexpr (!C.bias_copied()) bias.fetch(p, rows, block * kN, sequence.s_k, lane);
          prepare_scores(block, false);
          softmax.look(s, c, false, true);
          make_weights(block);
          careful = 8;
        }
        release_k();
      }
      done_with_bias();
      publish_weights();
      softmax.add_sums();
      if (softmax.rescale) rescale<C>(o, softmax.shrink);
    };
    n = next(n);
    if (F.mask != MaskShape::none || kByEntries) {
#pragma unroll 1
      for (; n >= (hands_on ? last_block : 0) && n >= clear_high; n = next(n)) step(n, true);
    }
    if (!kByEntries) {
#pragma unroll 1
      for (; n >= (hands_on ? max(clear_low, last_block) : clear_low);
           n = F.mask == MaskShape::window || F.blocks ? next(n) : n - 1)
        step(n, false);
    }
    if (F.mask == MaskShape::window) {
#pragma unroll 1
      for (; n >= (hands_on ? last_block : 0); n = next(n)) step(n, true);
#pragma unroll 1
      for (; n >= 0; n = next_block<C>(p, blocks, work, sequence, n)) {
        waiting.wait(k_full + 8 * k.stage, k.phase);
        release_k();
        if (C.turns != Turns::free) {
          barrier_sync(my_turn, 256);
          barrier_arrive(next_turn, 256);
        }
        ++skipped;
      }
    }

    // The end: the last P V is issued first, then the next tile's first Q K^T; O is stored under that.
    if (F.own_lengths && foreign_rows) zero_v_rows(max(first_hidden, 0));
    waiting.wait(v_full + 8 * v.stage, v.phase);
    pin(o);
    issue_pv();
    const u32 last_stage = v.stage;
    v.next();
    if (C.own_o_memory && only_block && lane == 0) mbarrier_arrive(q_empty + 8 * slot);
    // Read again rather than kept in registers, where the slot is still this tile's.
    finish_sums(C.own_o_memory ? work : work_in(slot));
    bool more;
    if (C.q_buffers == 1 && !C.own_o_memory) {  // the next Q waits for this O to leave: no overlap
      wgmma_wait<0>(o);
      release_v(last_stage);
      store_o(slot, work);
      if (lane == 0) {
        tma_store_wait_read<0>();
        mbarrier_arrive(q_empty + 8 * slot);
      }
      __syncwarp();
      more = begin_tile(false, 0);
    } else {
      more = begin_tile(true, last_stage);
      wgmma_wait<1>(o);
      if (still_pinned) release_v(last_stage);
      store_o(other(slot), C.own_o_memory ? work : work_in(other(slot)));
      if (!C.own_o_memory) draining = true;
    }
    if (!more) break;
  }
  wgmma_wait_all();
  pin_scores();
  waiting.finish();
  if (lane == 0) tma_store_wait_read<0>();
  if (C.cluster > 1) cluster_sync();
}

}  // namespace heed::kernels
