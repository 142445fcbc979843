// Gradients pair by pair, where an operand of a hidden pair is no number: its weight is 0, but 0 * NaN is NaN in every
// row of the tile. Hidden pairs are not touched here. Slow, and taken only then.
#pragma once

#include "mma.cuh"
#include "portable_backward_features.cuh"
#include "portable_tiles.cuh"

namespace heed::kernels {

/// True in the whole warp when x holds something that is no number: perhaps 0 * NaN of a hidden pair, or NaN of a key
/// that only rows behind the sequence's end see.
template <int R>
HEED_DEVICE bool holds_no_number(const float (&x)[R]) {
  float zero[2] = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < R; ++i) zero[i % 2] = __fmaf_rn(x[i], 0.0f, zero[i % 2]);
  return __any_sync(0xffffffffu, zero[0] + zero[1] != 0.0f);
}

/// The rows of the four operands that a pair has, column steps beside them.
template <class Input, class Output>
struct PairRows {
  const typename Input::Raw *q, *k, *v;
  const typename Output::Raw* d_o;
};

/// The pair's P with dropout's factor, and dS, by a warp; in every lane.
struct PairGradients {
  float weight, d_score;
};
template <ForwardFeatures F, class Input, class Output>
HEED_DEVICE PairGradients pair_gradients(const BackwardParams& bp, const RowFeatures<F, Input>& row,
                                         const PairRows<Input, Output>& at, float lse, float dot, u32 head_index,
                                         int key, int lane) {
  const ForwardParams& p = bp.forward;
  float x = 0.0f, dp = 0.0f;
#pragma unroll 1
  for (int e = lane; e < p.d; e += 32)
    x = __fmaf_rn(to_float<Input>(at.q[e * p.q_steps.column]), to_float<Input>(at.k[e * p.k_steps.column]), x);
#pragma unroll 1
  for (int e = lane; e < p.d_v; e += 32)
    dp = __fmaf_rn(to_float<Output>(at.d_o[e * bp.d_o_steps.column]), to_float<Input>(at.v[e * p.v_steps.column]), dp);
#pragma unroll
  for (int over = 16; over > 0; over /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, over);
    dp += __shfl_xor_sync(0xffffffffu, dp, over);
  }
  float through = 1.0f;
  if constexpr (F.soft_cap) {
    const float capped = tanh_anywhere(x * (p.scale / p.soft_cap));
    through = __fmaf_rn(-capped, capped, 1.0f);
    x = capped * (p.soft_cap * kLog2e);
  } else {
    x = __fmul_rn(x, p.scale_log2);
  }
  float added = 0.0f;
  if constexpr (F.bias != BiasType::none) added = row.bias_at(key * p.bias_steps.column);
  x = row.with_terms(x, key, added);
  const float weight = exp2_approx(x - lse);
  float kept = 1.0f;
  if constexpr (F.dropout)
    kept = drop_word(drop_key(p), head_index, row.row, key) < p.drop_threshold ? 0.0f : p.drop_scale;
  if (x == -HEED_INFINITY) return {0.0f, 0.0f};  // hidden by the bias
  return {weight * kept, weight * ((kept == 0.0f ? 0.0f : dp * kept) - dot) * through};
}

template <class T>
HEED_DEVICE float rounded(float x) {
  return to_float<T>(from_float<T>(x));
}

/// Columns [first_column, first_column + kColumns) of one row of a gradient, from a warp's sums.
template <class Output, int kColumns>
HEED_DEVICE void store_row(const Rows<Output>& to, int row, int first_column, const float (&sums)[kColumns / 32],
                           float factor, int lane) {
#pragma unroll
  for (int c = 0; c < kColumns / 32; ++c) {
    const int e = first_column + c * 32 + lane;
    if (e < to.columns) to.data[row * to.row_step + e * to.column_step] = from_float<Output>(sums[c] * factor);
  }
}

/// Where row `row` of a sequence's tensor begins.
template <class T>
HEED_DEVICE const typename T::Raw* row_at(const void* data, const Steps& steps, int batch, int head, i64 row) {
  return static_cast<const typename T::Raw*>(data) + batch * steps.batch + head * steps.head + row * steps.row;
}

/// Where the portable family keeps the LSE and D of rows of batch entry `batch`.
template <ForwardFeatures F>
struct PackedRows {
  const BackwardParams& bp;
  const int batch;
  __device__ __forceinline__ i64 operator()(int head, int i) const {
    return head * bp.row_space + row_start(bp.forward, sequence_of<F>(bp.forward, batch), batch) + i;
  }
};

/// dQ of rows first_row to first_row + 15. It finds its sequence anew, so that nothing of it is kept for this.
/// `place` of (head, i) tells where the row's LSE and D are.
template <ForwardFeatures F, class T, class Input, class Output, int kColumns, class Place>
HEED_DEVICE void careful_queries(const BackwardParams& bp, int batch, int head, int first_row, int first_column,
                                 int lane, const Place& place) {
  const ForwardParams& p = bp.forward;
  const Sequence q = sequence_of<F>(p, batch);
  const Rows<Input> to = rows_to<Input>(bp.dq, bp.dq_steps, batch, head, q.q_row, q.s_q, p.d);
  const int kv_head = head / p.group;
#pragma unroll 1
  for (int i = first_row; i < min(first_row + 16, q.s_q); ++i) {
    RowFeatures<F, Input> row;
    row.set(p, q, batch, head, i);
    const i64 where = place(head, i);
    const float lse = bp.row_lse[where], dot = bp.row_dot[where];
    PairRows<Input, Output> at;
    at.q = row_at<Input>(p.q, p.q_steps, batch, head, i64(q.q_row) + i);
    at.d_o = row_at<Output>(bp.d_o, bp.d_o_steps, batch, head, i64(q.q_row) + i);
    float sums[kColumns / 32] = {};
#pragma unroll 1
    for (int j = 0; j < q.s_k; ++j) {
      if (!row.visible(p, j)) continue;
      at.k = row_at<Input>(p.k, p.k_steps, batch, kv_head, i64(q.k_row) + j);
      at.v = row_at<Input>(p.v, p.v_steps, batch, kv_head, i64(q.k_row) + j);
      const float ds = rounded<T>(pair_gradients(bp, row, at, lse, dot, u32(batch) * p.heads + head, j, lane).d_score);
#pragma unroll
      for (int c = 0; c < kColumns / 32; ++c) {
        const int e = first_column + c * 32 + lane;
        if (e < p.d) sums[c] = __fmaf_rn(ds, to_float<Input>(at.k[e * p.k_steps.column]), sums[c]);
      }
    }
    store_row<Input, kColumns>(to, i, first_column, sums, p.scale, lane);
  }
}

/// dK (kKeys) or dV of keys first_key to first_key + 15.
template <bool kKeys, ForwardFeatures F, class T, class Input, class Output, int kColumns, class Place>
HEED_DEVICE void careful_keys(const BackwardParams& bp, int batch, int kv_head, int first_key, int first_column,
                              int lane, const Place& place) {
  const ForwardParams& p = bp.forward;
  const Sequence q = sequence_of<F>(p, batch);
  const Rows<Input> to = kKeys ? rows_to<Input>(bp.dk, bp.dk_steps, batch, kv_head, q.k_row, q.s_k, p.d)
                               : rows_to<Input>(bp.dv, bp.dv_steps, batch, kv_head, q.k_row, q.s_k, p.d_v);
#pragma unroll 1
  for (int j = first_key; j < min(first_key + 16, q.s_k); ++j) {
    PairRows<Input, Output> at;
    at.k = row_at<Input>(p.k, p.k_steps, batch, kv_head, i64(q.k_row) + j);
    at.v = row_at<Input>(p.v, p.v_steps, batch, kv_head, i64(q.k_row) + j);
    float sums[kColumns / 32] = {};
#pragma unroll 1
    for (int head = kv_head * p.group; head < (kv_head + 1) * p.group; ++head)
#pragma unroll 1
      for (int i = 0; i < q.s_q; ++i) {
        RowFeatures<F, Input> row;
        row.set(p, q, batch, head, i);
        if (!row.visible(p, j)) continue;
        const i64 where = place(head, i);
        at.q = row_at<Input>(p.q, p.q_steps, batch, head, i64(q.q_row) + i);
        at.d_o = row_at<Output>(bp.d_o, bp.d_o_steps, batch, head, i64(q.q_row) + i);
        const PairGradients pair =
            pair_gradients(bp, row, at, bp.row_lse[where], bp.row_dot[where], u32(batch) * p.heads + head, j, lane);
        const float weight = rounded<T>(kKeys ? pair.d_score : pair.weight);
#pragma unroll
        for (int c = 0; c < kColumns / 32; ++c) {
          const int e = first_column + c * 32 + lane;
          if (e >= to.columns) continue;
          float x;
          if constexpr (kKeys) {
            x = to_float<Input>(at.q[e * p.q_steps.column]);
          } else {
            x = to_float<Output>(at.d_o[e * bp.d_o_steps.column]);
          }
          sums[c] = __fmaf_rn(weight, x, sums[c]);
        }
      }
    store_row<Input, kColumns>(to, j, first_column, sums, kKeys ? p.scale : 1.0f, lane);
  }
}

}  // namespace heed::kernels
