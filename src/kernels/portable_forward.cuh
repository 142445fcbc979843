// Attention forward for every GPU from sm_80 on, every type, head dim, stride and feature: O = softmax(S) V.
//
// One CTA computes C.tile_q() rows of one head, each warp its own 16 or 32. Blocks of C.tile_k keys come by cp.async
// (element by element where the memory is not aligned), the last visible block first; blocks that no row sees are not
// loaded, and only blocks at the edge of the mask are masked. S and O stay in registers: mma.sync for 16-bit types,
// FFMA for f32. With one stage K and V take turns: V(j) arrives under Q K(j)^T, K(j + 1) under the softmax and P V(j).
//
// A pair of warps that shares its rows reads less of K, V and Q from shared memory for every product. Each has the scores
// of half of a block's keys, against one reference for both, and half of the columns of O; it multiplies its own weights
// first, then those that the other has left in shared memory.
#pragma once

#include "forward_features.cuh"
#include "forward_scores.cuh"
#include "portable_config.h"
#include "portable_schedule.cuh"
#include "portable_tiles.cuh"

namespace heed::kernels {

/// Scores of one of the thread's two rows -> their distances to the row's reference.
template <int R>
HEED_DEVICE void subtract_reference(float (&s)[R], int half, float top) {
  const float reference = top == -HEED_INFINITY ? 0.0f : top;
#pragma unroll
  for (int i = 0; i < R; ++i)
    if (i / 2 % 2 == half) s[i] -= reference;
}

/// Over the four threads that have a row.
HEED_DEVICE float highest_of_four(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
HEED_DEVICE float sum_of_four(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// Of two warps that share their rows; one that has its own is part 0. Asked anew where it is used: registers are dearer.
template <PortableConfig C>
struct PairOfWarps {
  u32 words_at;  ///< [warps][warp_rows]
  u32 warp;

  __device__ __forceinline__ int part() const { return C.pairs ? int(fresh(warp) % 2) : 0; }
  __device__ __forceinline__ u32 barrier() const { return 1 + fresh(warp) / 2; }
  /// What the other warp has for each row; all four threads of a row have the same.
  template <int kM>
  __device__ __forceinline__ void exchange(float (&others)[kM][2], const float (&mine)[kM][2], u32 lane) const {
    const u32 row_at = words_at + fresh(lane) / 4 * 4, to = row_at + fresh(warp) * C.pair_word_bytes(),
              from = row_at + (fresh(warp) ^ 1) * C.pair_word_bytes();
#pragma unroll
    for (int r = 0; r < 2 * kM; ++r)
      if (lane % 4 == 0) store_shared(to + 32 * r, mine[r / 2][r % 2]);
    join_pair(barrier());
#pragma unroll
    for (int r = 0; r < 2 * kM; ++r) {
      float x[1];
      load_shared(x, from + 32 * r);
      others[r / 2][r % 2] = x[0];
    }
  }
};

template <PortableConfig C>
__device__ __forceinline__ void portable_forward(const ForwardParams& p) {
  static_assert(C.impossible() == nullptr);
  using T = typename TagOf<C.type>::Type;
  using Input = typename TagOf<C.input>::Type;
  using Output = typename TagOf<C.output>::Type;
  using Raw = typename T::Raw;
  using InputRaw = typename Input::Raw;
  constexpr ForwardFeatures F = C.features;
  constexpr int kD = C.d, kDv = C.pass_d_v(), kN = C.tile_k, kM = C.warp_rows / 16;
  constexpr int kThreads = C.threads(), kTileQ = C.tile_q(), kWarpRows = C.warp_rows, kStages = C.stages;
  constexpr int kPiece = kD / C.k_pieces, kRowBytes = C.row_bytes;
  constexpr int kHeld = C.q_held / 16;
  constexpr int kSharers = C.sharers(), kKeys = kN / kSharers, kColumns = kDv / kSharers;  // a warp's of S, and of O
  constexpr u32 kKBytes = C.k_bytes(), kVBytes = C.v_bytes();
  // Log2 units by which a maximum may pass its reference: weights up to 2^8 fit f16. A wider output would show that
  // the largest weights are rounded: there they are 1.
  constexpr bool kWideOutput = sizeof(typename Output::Raw) > sizeof(Raw);
  constexpr float kGrowth = kWideOutput ? 0.0f : 8.0f;
  constexpr float kFar = 1024.0f;
  constexpr bool kDifferences = F.changes_scores() || C.type == Element::f32 || kWideOutput;

  extern __shared__ __align__(128) u8 heed_shared[];
  const u32 q_at = shared_address(heed_shared);  // [tile_q, d]
  const u32 k_at = q_at + C.q_bytes();           // [stages][tile_k, d / k_pieces]
  const u32 v_at = k_at + kStages * kKBytes;     // [stages][tile_k, pass_d_v]
  const u32 thread = threadIdx.x;
  const int lane = thread % 32, warp = __shfl_sync(0xffffffffu, thread / 32, 0);
  const u32 warp_q_at = q_at + warp / kSharers * kWarpRows * kD * u32(sizeof(Raw));
  // [warp_rows, tile_k], f32 and pairs only
  const u32 warp_weights_at = v_at + kStages * kVBytes + warp / kSharers * kWarpRows * kN * C.element_bytes();
  const PairOfWarps<C> pair{v_at + kStages * kVBytes + kTileQ * kN * C.element_bytes(), u32(warp)};

  const i64 tiles = i64(p.row_tiles) * p.heads * p.batch;
#pragma unroll 1
  for (u32 round = 0; i64(round) * gridDim.x + blockIdx.x < tiles; ++round) {  // one register for 64 bits
    const i64 tile = i64(round) * gridDim.x + blockIdx.x;
    const PortableTile t = portable_tile<F.mask>(p, tile);
    const Sequence q = sequence_of<F>(p, t.batch);
    const int first_row = t.row_tile * kTileQ, warp_row = first_row + warp / kSharers * kWarpRows;
    if (first_row >= q.s_q) continue;

    KeyBlocks blocks, mine;  // of the CTA; of this warp, none where it has no rows
    blocks.template set<F, kN>(q, first_row, min(first_row + kTileQ, q.s_q) - 1);
    mine.template set<F, kN>(q, warp_row, min(warp_row + kWarpRows, q.s_q) - 1);
    if (warp_row >= q.s_q) mine.last = mine.sinks = 0;
    // Blocks inside [clear_begin, clear_end) are seen by every row of the warp.
    const int clear_end = F.mask == MaskShape::none ? q.s_k : q.end(warp_row);
    const int clear_begin = F.mask == MaskShape::window ? q.begin(warp_row + kWarpRows - 1) : 0;

    const int kv_head = t.head / p.group;
    const Matrix<Input> queries{static_cast<const InputRaw*>(p.q) + t.batch * p.q_steps.batch +
                                    t.head * p.q_steps.head + q.q_row * p.q_steps.row,
                                p.q_steps.row, p.q_steps.column, q.s_q, p.d};
    const Matrix<Input> keys{static_cast<const InputRaw*>(p.k) + t.batch * p.k_steps.batch + kv_head * p.k_steps.head +
                                 q.k_row * p.k_steps.row,
                             p.k_steps.row, p.k_steps.column, q.s_k, p.d};

    const DropKey drop_words = F.dropout ? drop_key(p) : DropKey{};

#pragma unroll 1
    for (int pass = 0; pass < C.passes() && (pass == 0 || pass * kDv < p.d_v); ++pass) {
      const Matrix<Input> values{static_cast<const InputRaw*>(p.v) + t.batch * p.v_steps.batch +
                                     kv_head * p.v_steps.head + q.k_row * p.v_steps.row +
                                     i64(pass) * kDv * p.v_steps.column,
                                 p.v_steps.row, p.v_steps.column, q.s_k, p.d_v - pass * kDv};
      const auto load_keys = [&](int i, int slot, int piece = 0) {
        Matrix<Input> part = keys;
        if constexpr (C.k_pieces > 1) {
          part.data += i64(piece) * kPiece * keys.column_step;
          part.columns -= piece * kPiece;
        }
        load_tile<T, Input, kN, kPiece, kThreads, kRowBytes>(k_at + slot * kKBytes, part, blocks.at(i) * kN, thread);
      };
      const auto load_values = [&](int i, int slot) {
        load_tile<T, Input, kN, kDv, kThreads, kRowBytes>(v_at + slot * kVBytes, values, blocks.at(i) * kN, thread);
      };

      if (pass == 0 && blocks.count > 0)
        load_tile<T, Input, kTileQ, kD, kThreads, kRowBytes>(q_at, queries, first_row, thread);
      if constexpr (kHeld > 0) close_copies();
      if constexpr (kStages == 1) {
        if (blocks.count > 0) load_keys(0, 0);
        close_copies();
      } else {
#pragma unroll
        for (int i = 0; i < kStages - 1; ++i) {
          if (i < blocks.count) {
            load_keys(i, i);
            load_values(i, i);
          }
          close_copies();
        }
      }

      u32 q_held[kM][kHeld > 0 ? kHeld : 1][4];
      if constexpr (kHeld > 0) {
        wait_copies<kStages == 1 ? 1 : kStages - 1>();
        __syncthreads();
#pragma unroll
        for (int m = 0; m < kM; ++m)
#pragma unroll
          for (int step = 0; step < kHeld; ++step)
            load_matrices(q_held[m][step], moved<kD / 8>(matrices_down<kD / 8>(warp_q_at, lane), 16 * m, 2 * step));
      }

      float o[kM][kColumns / 2];     // [warp_rows, columns], unnormalised
      float top[kM][2], sum[kM][2];  // references, in the units of the scores; this thread's share of the row sums
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        top[m][0] = top[m][1] = -HEED_INFINITY;
        sum[m][0] = sum[m][1] = 0.0f;
#pragma unroll
        for (int i = 0; i < kColumns / 2; ++i) o[m][i] = 0.0f;
      }

      int slot = 0;
#pragma unroll 1
      for (int i = 0; i < blocks.count; ++i) {
        const int block = blocks.at(i), first_key = block * kN + pair.part() * kKeys;
        const bool seen = (block < mine.last && block >= mine.first) || block < mine.sinks;

        wait_copies<kStages == 1 ? 0 : kStages - 2>();
        __syncthreads();  // block i is here for all, and all are done with the memory that is loaded next
        if constexpr (kStages == 1) {
          load_values(i, 0);
        } else {
          if (i + kStages - 1 < blocks.count) {
            const int next = slot == 0 ? kStages - 1 : slot - 1;
            load_keys(i + kStages - 1, next);
            load_values(i + kStages - 1, next);
          }
        }
        close_copies();

        float s[kM][kKeys / 2];  // [warp_rows, keys]: products, then scores, then weights
#pragma unroll 1
        for (int piece = 0; piece < C.k_pieces && (piece == 0 || piece * kPiece < p.d); ++piece) {
          if (piece > 0) {
            __syncthreads();  // all are done with the piece before
            load_keys(i, 0, piece);
            close_copies();
            wait_copies<0>();
            __syncthreads();
          }
          if (seen) {
            if (piece == 0) {
#pragma unroll
              for (int m = 0; m < kM; ++m)
#pragma unroll
                for (int n = 0; n < kKeys / 2; ++n) s[m][n] = 0.0f;
            }
            const u32 k_now = k_at + slot * kKBytes, q_now = warp_q_at + piece * kPiece * u32(sizeof(Raw));
            if constexpr (C.type == Element::f32) {
              multiply_keys_f32<kD, kPiece, kN, kM, (kM * kDv > 128 ? 2 : 4)>(s, q_now, k_now,
                                                                              min(p.d - piece * kPiece, kPiece), lane);
            } else {
              const u32 my_keys = k_now + pair.part() * kKeys * kPiece * u32(sizeof(Raw));
              multiply_keys<T, kD, kPiece, kKeys, kM, kHeld>(s, q_now, q_held, my_keys, lane);
            }
          }
        }
        if constexpr (kStages == 1) {
          wait_copies<0>();
          __syncthreads();  // V is here, K may go
          if (i + 1 < blocks.count) load_keys(i + 1, 0);
          close_copies();
        }

        if (seen) {
          const bool edge = first_key + kKeys > clear_end || first_key < clear_begin;
          if (F.changes_scores() || F.bit_masks() || edge) {
#pragma unroll
            for (int m = 0; m < kM; ++m) {
              RowFeatures<F, Input> rows[2];  // found anew for each block: registers are dearer
              const int row = warp_row + 16 * m + int(fresh(lane) / 4);
              rows[0].set(p, q, t.batch, t.head, row);
              rows[1].set(p, q, t.batch, t.head, row + 8);
              if constexpr (F.changes_scores()) change_scores<F, Input>(p, rows, s[m], fresh(first_key), q.s_k, lane);
              if constexpr (F.bit_masks()) {
                hide_by_bits<F, Input>(p, rows, s[m], fresh(first_key), q.s_k, lane);
              } else if (edge) {
                hide_outside_window<F, Input>(rows, s[m], first_key, lane);
              }
            }
          }

          // A row's reference follows its maximum when that has grown by more than kGrowth in some row of the warp (of
          // the pair). Each thread looks at its own keys; only then the four (eight) of a row compare theirs.
          const float unit = F.changes_scores() ? 1.0f : p.scale_log2;
          float highest[kM][2];
          bool grown = false;
#pragma unroll
          for (int r = 0; r < 2 * kM; ++r) {
            const int m = r / 2, half = r % 2;
            float x = top[m][half];
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n) x = fmaxf(x, fmaxf(s[m][4 * n + 2 * half], s[m][4 * n + 2 * half + 1]));
            highest[m][half] = x;
            grown = grown || (x - top[m][half]) * unit > kGrowth;
          }
          if constexpr (C.pairs) {
            grown = any_of_pair(pair.barrier(), grown);
          } else {
            grown = __any_sync(0xffffffffu, grown);
          }
          if (grown) {
            if constexpr (C.pairs) {
              float others[kM][2];
#pragma unroll
              for (int r = 0; r < 2 * kM; ++r) highest[r / 2][r % 2] = highest_of_four(highest[r / 2][r % 2]);
              pair.exchange(others, highest, lane);
#pragma unroll
              for (int r = 0; r < 2 * kM; ++r)
                highest[r / 2][r % 2] = fmaxf(highest[r / 2][r % 2], others[r / 2][r % 2]);
            }
#pragma unroll
            for (int r = 0; r < 2 * kM; ++r) {
              const int m = r / 2, half = r % 2;
              const float x = C.pairs ? highest[m][half] : highest_of_four(highest[m][half]);
              const float shrink = x == -HEED_INFINITY ? 1.0f : exp2_approx((top[m][half] - x) * unit);
              top[m][half] = x;
              sum[m][half] *= shrink;
#pragma unroll
              for (int n = 0; n < kColumns / 8; ++n) {
                o[m][4 * n + 2 * half] *= shrink;
                o[m][4 * n + 2 * half + 1] *= shrink;
              }
            }
          }

          // Weights against the reference; a row that has seen nothing keeps weights of 0 (or NaN) against any other.
          // Far from 0 a score times `unit` is too coarse to subtract from: there, and in f32, differences come first.
          float unit_of_top = unit;
          if constexpr (!kDifferences) {
            float farthest = 0.0f;
#pragma unroll
            for (int r = 0; r < 2 * kM; ++r) farthest = fmaxf(farthest, fabsf(top[r / 2][r % 2]));
            if (__any_sync(0xffffffffu, !(farthest * unit < kFar))) {
              unit_of_top = 0.0f;
#pragma unroll
              for (int r = 0; r < 2 * kM; ++r) subtract_reference(s[r / 2], r % 2, top[r / 2][r % 2]);
            }
          }
          float reference[kM][2], shift[kM][2];
#pragma unroll
          for (int r = 0; r < 2 * kM; ++r) {
            const float x = top[r / 2][r % 2];
            reference[r / 2][r % 2] = x == -HEED_INFINITY ? 0.0f : x;
            shift[r / 2][r % 2] = reference[r / 2][r % 2] * unit_of_top;
          }
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n)  // all rows of a key together: the product begins with the first keys
#pragma unroll
            for (int m = 0; m < kM; ++m)
#pragma unroll
              for (int i = 0; i < 4; ++i) {
                float& x = s[m][4 * n + i];
                const int half = i / 2;
                x = exp2_approx(kDifferences ? (x - reference[m][half]) * unit : __fmaf_rn(x, unit, -shift[m][half]));
                sum[m][half] += x;
              }
          if constexpr (F.dropout) {
#pragma unroll
            for (int m = 0; m < kM; ++m)
              drop(p, {fresh(drop_words.k0), fresh(drop_words.k1), drop_words.offset}, u32(t.batch) * p.heads + t.head,
                   s[m], warp_row + 16 * m, first_key, lane);
          }

          const u32 v_now = v_at + slot * kVBytes;
          if constexpr (C.type == Element::f32) {
            multiply_values_f32<kDv, kN, kM>(o, s, warp_weights_at, v_now, lane);
          } else if constexpr (C.pairs) {
            // Here the compiler would put off the sums of the weights, and keep twice as many of these, until behind the
            // products: with so many keys there are no registers for that.
            if constexpr (kKeys > 48) __syncwarp();
            multiply_values_by_pair<T, kDv, kN, kM>(o, s, warp_weights_at, v_now, pair.part(), pair.barrier(), lane);
          } else {
            multiply_values<T, kDv, kN, kM>(o, s, v_now, lane);
          }
        }
        if constexpr (kStages > 1) slot = slot == kStages - 1 ? 0 : slot + 1;
      }

      if (warp_row < q.s_q) {
        float factor[kM][2];
        u32 careful = 0;  // bit m: O of these 16 rows has met a hidden V that is no number
        if constexpr (!F.changes_scores()) {
#pragma unroll
          for (int r = 0; r < 2 * kM; ++r) top[r / 2][r % 2] = in_log2_units(top[r / 2][r % 2], p.scale_log2);
        }
        if constexpr (C.pairs) {
          float others[kM][2];
#pragma unroll
          for (int r = 0; r < 2 * kM; ++r) sum[r / 2][r % 2] = sum_of_four(sum[r / 2][r % 2]);
          pair.exchange(others, sum, lane);
#pragma unroll
          for (int r = 0; r < 2 * kM; ++r) sum[r / 2][r % 2] += others[r / 2][r % 2];
        }
#pragma unroll
        for (int m = 0; m < kM; ++m) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float total = C.pairs ? sum[m][half] : sum_of_four(sum[m][half]);
            const RowEnd end = end_row<F>(p, t.head, top[m][half], total);
            factor[m][half] = end.factor;
            const int row = warp_row + 16 * m + 8 * half + lane / 4;
            if (p.lse && pass == 0 && lane % 4 == 0 && row < q.s_q && (!C.pairs || pair.part() == 0))
              p.lse[t.batch * p.lse_steps.batch + t.head * p.lse_steps.head + (i64(q.q_row) + row) * p.lse_steps.row] =
                  end.lse;
          }
          bool no_number = F.hides() && spoilt(o[m], warp_row + 16 * m + lane / 4 < q.s_q);
          if constexpr (C.pairs && F.hides()) no_number = any_of_pair(pair.barrier(), no_number);
          if (no_number) {
            careful |= 1u << m;
          } else {
            const Rows<Output> out{static_cast<typename Output::Raw*>(p.o) + t.batch * p.o_steps.batch +
                                       t.head * p.o_steps.head + q.q_row * p.o_steps.row,
                                   p.o_steps.row, p.o_steps.column, q.s_q, p.d_v};
            store_rows<T, Output, kColumns>(out, warp_row + 16 * m, pass * kDv + pair.part() * kColumns, o[m], factor[m], lane);
          }
        }
        if constexpr (F.hides()) {
#pragma unroll 1
          for (int m = 0; careful != 0; ++m, careful >>= 1) {
            if (careful % 2 == 0 || (C.pairs && m % 2 != pair.part())) continue;  // a pair's warps take turns
            const float its_top[2] = {m == 0 ? top[0][0] : top[kM - 1][0], m == 0 ? top[0][1] : top[kM - 1][1]};
            careful_rows<F, Input, Output, C.d_v, T>(p, q, t.batch, t.head, warp_row + 16 * m, its_top, fresh(lane));
          }
        }
      }
      __syncthreads();  // all are done with the tiles, before the next pass or row tile loads over them
    }
  }
}

}  // namespace heed::kernels
