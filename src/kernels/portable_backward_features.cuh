// The features of attention on their way back, the same code in every kernel of the portable family: from the products
// Q K^T and dO V^T of a 16 x 16 tile to P and dS. The tile lies in the accumulators as forward_features.cuh says.
#pragma once

#include "backward_params.h"
#include "forward_scores.cuh"
#include "portable_backward_config.h"
#include "portable_tiles.cuh"

namespace heed::kernels {

/// The first place of a sequence's rows in row_lse, row_dot, row_part and dq_sum, a multiple of 16. Group mode: each
/// has up to 16 more than its rows fill.
HEED_DEVICE i64 row_start(const ForwardParams& p, const Sequence& q, int b) {
  return 16 * (p.start_q.data ? i64(q.q_row) / 16 + b : i64(b) * ((p.s_q + 15) / 16));
}

/// The matrix of a gradient that belongs to one head of a sequence, which begins at physical row first_row.
template <class T>
HEED_DEVICE Rows<T> rows_to(void* data, const Steps& steps, int batch, int head, int first_row, int rows, int columns) {
  return {static_cast<typename T::Raw*>(data) + batch * steps.batch + head * steps.head + first_row * steps.row,
          steps.row, steps.column, rows, columns};
}
/// The same of an operand.
template <class T>
HEED_DEVICE Matrix<T> matrix_of(const void* data, const Steps& steps, int batch, int head, int first_row, int rows,
                                int columns) {
  return {static_cast<const typename T::Raw*>(data) + batch * steps.batch + head * steps.head + first_row * steps.row,
          steps.row, steps.column, rows, columns};
}

/// Where a 16 x 16 tile is.
struct ScoreTile {
  int first_row, first_key;
  int s_k;
  bool edge;  ///< some row does not see some key, by the window or the lengths
  u32 head_index;
  DropKey drop_key;
};

/// What is known of the thread's two rows.
struct RowStates {
  float lse[2];  ///< in log2 units, +inf where the row has no probability
  float dot[2];  ///< D
};

/// The bias of one of the thread's two rows in a 16 x 16 tile, from where the caller has it: global memory. The whole
/// warp asks for it.
struct BiasInMemory {
  template <ForwardFeatures F, class T>
  __device__ __forceinline__ void read(BiasRow<F, T, 2>& bias, int half, const ForwardParams& p,
                                       const RowFeatures<F, T> (&rows)[2], const ScoreTile& tile, int lane) const {
    bias.fetch(p, rows[half], tile.first_key, lane, tile.s_k);
    bias.settle(lane);
  }
};

/// s: products Q K^T -> P, with dropout's factor in it. dp: dO V^T -> dS = P * (dP - D); through the soft cap, except
/// for dBias. Entries that are hidden become 0 whatever their operands were. A part that needs one of the two leaves
/// the other undefined. slope_sums: what the rows add to dSlopes, for dQ.
template <BackwardPart kPart, ForwardFeatures F, class T, class BiasSource = BiasInMemory>
HEED_DEVICE void differentiate(const ForwardParams& p, const RowFeatures<F, T> (&rows)[2], const RowStates& states,
                               const ScoreTile& tile, float (&s)[8], float (&dp)[8], float (&slope_sums)[2], int lane,
                               const BiasSource& bias_source = {}) {
  constexpr bool kScores = kPart != BackwardPart::values;
  constexpr bool kThroughCap = F.soft_cap && kScores && kPart != BackwardPart::bias;
  constexpr bool kSlopes = F.alibi && kPart == BackwardPart::queries;
  const int key0 = tile.first_key + lane % 4 * 2;

  float through[8];  // 1 - tanh^2
  if constexpr (F.changes_scores()) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      BiasRow<F, T, 2> bias;
      if constexpr (F.bias != BiasType::none) bias_source.read(bias, half, p, rows, tile, lane);
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int i = 4 * n + 2 * half + e;
          float added = 0.0f;
          if constexpr (F.bias != BiasType::none) added = bias.at(n, e);
          if constexpr (F.soft_cap) {
            const float capped = tanh_anywhere(s[i] * (p.scale / p.soft_cap));
            if constexpr (kThroughCap) through[i] = __fmaf_rn(-capped, capped, 1.0f);
            s[i] = capped * (p.soft_cap * kLog2e);
          } else {
            s[i] = __fmul_rn(s[i], p.scale_log2);
          }
          s[i] = rows[half].with_terms(s[i], key0 + 8 * n + e, added);
        }
    }
  }
  const bool masked = F.bit_masks() || F.bias != BiasType::none || tile.edge;
  u32 hidden = 0;
  if (masked) {
    if constexpr (F.bit_masks()) {
      hide_by_bits<F, T>(p, rows, s, tile.first_key, tile.s_k, lane);
    } else if (tile.edge) {
      hide_outside_window<F, T>(rows, s, tile.first_key, lane);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) hidden |= s[i] == -HEED_INFINITY ? 1u << i : 0u;
  }

  float kept[8];
  if constexpr (F.dropout) {
#pragma unroll
    for (int i = 0; i < 8; ++i) kept[i] = p.drop_scale;
    drop(p, tile.drop_key, tile.head_index, kept, tile.first_row, tile.first_key, lane);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int half = i / 2 % 2;
    const float weight =
        exp2_approx(F.changes_scores() ? s[i] - states.lse[half] : __fmaf_rn(s[i], p.scale_log2, -states.lse[half]));
    s[i] = F.dropout ? weight * kept[i] : weight;
    if constexpr (kScores) {
      float d_weight = dp[i];
      if constexpr (F.dropout) d_weight = kept[i] == 0.0f ? 0.0f : d_weight * kept[i];  // whatever V was
      dp[i] = weight * (d_weight - states.dot[half]);
    }
  }
  if (masked) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (hidden >> i & 1) s[i] = dp[i] = through[i] = 0.0f;  // the cap may have seen what is no number
  }
  if constexpr (kSlopes) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int half = i / 2 % 2, key = key0 + i / 4 * 8 + i % 2;
      slope_sums[half] = __fmaf_rn(-fabsf(rows[half].diagonal - float(key)), dp[i], slope_sums[half]);
    }
  }
  if constexpr (kThroughCap) {
#pragma unroll
    for (int i = 0; i < 8; ++i) dp[i] *= through[i];
  }
}

}  // namespace heed::kernels
