// The features of forward attention, one place for each, the same code in every family of kernels.
//
// Scores arrive in the accumulator layout of mma.m16n8 and wgmma.m64: the thread with this lane holds rows r and r + 8
// of a warp's 16 (r = lane / 4), and of every 8 keys the two from 2 * (lane % 4) on:
//   s[4 * n + 2 * half + e]  =  score of row r + 8 * half and key first_key + 8 * n + 2 * (lane % 4) + e
#pragma once

#include "forward_features.h"
#include "forward_params.h"
#include "numbers.cuh"

namespace heed::kernels {

/// The tag of an element type.
template <Element E>
struct TagOf {
  using Type = f32;
};
template <>
struct TagOf<Element::f16> {
  using Type = f16;
};
template <>
struct TagOf<Element::bf16> {
  using Type = bf16;
};

HEED_DEVICE int index_at(const Indices& list, int i) {
  if (list.wide) {
    const i64 value = static_cast<const i64*>(list.data)[i * list.step];
    return value > 0x7fffffff ? 0x7fffffff : value < 0 ? 0 : int(value);
  }
  const int value = static_cast<const int*>(list.data)[i * list.step];
  return value < 0 ? 0 : value;
}

/// One entry of the batch: where its rows are, how many count, and its mask.
///   visible(i, j)  <=>  i - y + 1 <= j < min(i + x, s_k),  or  (j < sink and j < i + x)
struct Sequence {
  int q_row, k_row;  ///< first physical row; 0 in batch mode
  int s_q, s_k;
  int y, x, sink;
  int shift;  ///< 2^shift query heads share the rows of a tile; else 0

  /// Rows of tiles, and the query and the query head of one of them. `head`: of all query heads, or of those of K and V.
  __device__ __forceinline__ int rows() const { return s_q << shift; }
  __device__ __forceinline__ int query(int row) const { return row >> shift; }
  __device__ __forceinline__ int head(int head, int row) const { return (head << shift) + (row & ((1 << shift) - 1)); }

  __device__ __forceinline__ int begin(int i) const { return max(i - y + 1, 0); }
  __device__ __forceinline__ int end(int i) const { return max(min(i + x, s_k), 0); }
  __device__ __forceinline__ int sink_end(int i) const { return min(sink, end(i)); }
};

/// Rows and lengths of batch entry b. Those that lie in GPU memory were checked by nobody: they are cut to what the
/// tensors have, and to what the caller said of the longest.
template <ForwardFeatures F>
HEED_DEVICE Sequence lengths_of(const ForwardParams& p, int b) {
  Sequence s{0, 0, p.s_q, p.s_k, MaskParams::kUnlimited, MaskParams::kUnlimited, 0, F.packed ? p.group_shift : 0};
  if constexpr (F.own_lengths) {
    if (p.start_q.data) {
      s.q_row = min(index_at(p.start_q, b), p.s_q);
      s.k_row = min(index_at(p.start_k, b), p.s_k);
      s.s_q = max(min(index_at(p.start_q, b + 1), p.s_q) - s.q_row, 0);
      s.s_k = max(min(index_at(p.start_k, b + 1), p.s_k) - s.k_row, 0);
    }
    if (p.length_q.data) s.s_q = min(index_at(p.length_q, b), s.s_q);
    if (p.length_k.data) s.s_k = min(index_at(p.length_k, b), s.s_k);
    s.s_q = min(s.s_q, p.longest_q);
    s.s_k = min(s.s_k, p.longest_k);
  }
  return s;
}

/// The mask for a sequence whose lengths are known.
template <ForwardFeatures F>
HEED_DEVICE Sequence with_mask(const ForwardParams& p, Sequence s) {
  if constexpr (F.mask != MaskShape::none) {
    const int shift = p.mask.kind == MaskParams::kBottomRight ? s.s_k - s.s_q : 0;
    const int one = p.mask.kind == MaskParams::kRaw ? 0 : 1;
    if (p.mask.left < MaskParams::kUnlimited) s.y = p.mask.left + one - shift;
    if (p.mask.right < MaskParams::kUnlimited) s.x = p.mask.right + one + shift;
    s.sink = p.mask.sink;
  }
  return s;
}

template <ForwardFeatures F>
HEED_DEVICE Sequence sequence_of(const ForwardParams& p, int b) {
  return with_mask<F>(p, lengths_of<F>(p, b));
}

/// Seed and offset of dropout as Philox takes them.
struct DropKey {
  u32 k0, k1, offset;
};
HEED_DEVICE DropKey drop_key(const ForwardParams& p) {
  const u64 seed = p.drop_state ? p.drop_state[0] : p.drop_seed, offset = p.drop_state ? p.drop_state[p.drop_state_step] : p.drop_offset;
  return {u32(seed), u32(seed >> 32) ^ u32(offset >> 32), u32(offset)};
}
/// The 16 random bits of entry (i, j) of a head: heed/philox.hpp says which.
HEED_DEVICE u32 drop_word(const DropKey& key, u32 head_index, u32 i, u32 j) {
  const Philox words = philox(j / 16 * 4 + j % 8 / 2, i / 16 * 8 + i % 8, head_index, key.offset, key.k0, key.k1);
  const u32 half = i / 8 % 2 * 4 + j / 8 % 2 * 2 + j % 2;
  const u32 word = half / 2 == 0 ? words.x : half / 2 == 1 ? words.y : half / 2 == 2 ? words.z : words.w;
  return word >> (half % 2 * 16) & 0xffff;
}

/// tanh by an odd polynomial, for |x| below kTanhNear.
HEED_DEVICE float tanh_near(float x) {
  const float z = x * x;
  float poly = kTanhTerm[kTanhTerms - 1];
#pragma unroll
  for (int i = kTanhTerms - 2; i > 0; --i) poly = __fmaf_rn(poly, z, kTanhTerm[i]);
  return __fmaf_rn(poly * z, x, x);
}
/// tanh anywhere: 1 - 2 / (e^2x + 1) loses its digits near 0.
HEED_DEVICE float tanh_anywhere(float x) {
  const float far = 1.0f - 2.0f * reciprocal(exp2_approx(x * (2.0f * kLog2e)) + 1.0f);
  return fabsf(x) < kTanhNear ? tanh_near(x) : far;
}

/// Whether all entries of a warp are smaller than this.
template <int R>
HEED_DEVICE bool all_below(const float (&s)[R], float limit) {
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < R; ++i) largest = fmaxf(largest, fabsf(s[i]));
  return __all_sync(0xffffffffu, largest < limit);
}

/// What a product is multiplied by to cap it, as an even polynomial.
template <int N>
HEED_DEVICE float cap_factor(const float (&terms)[N], float product) {
  const float z = product * product;
  float poly = terms[N - 1];
#pragma unroll
  for (int i = N - 2; i >= 0; --i) poly = __fmaf_rn(poly, z, terms[i]);
  return poly;
}
/// A product Q K^T -> a score in log2 units before anything is added to it. kNear: it is below p.cap_near.
template <ForwardFeatures F, bool kNear = false>
HEED_DEVICE float capped_score(const ForwardParams& p, float product) {
  if constexpr (!F.soft_cap) return __fmul_rn(product, p.scale_log2);  // rounded: equal products have no difference
  if constexpr (!kNear) return tanh_anywhere(product * (p.scale / p.soft_cap)) * (p.soft_cap * kLog2e);
  return product * cap_factor(p.cap_terms, product);
}

/// What one query row knows of the features. Rows behind the end of the sequence read the last row's.
template <ForwardFeatures F, class T>
struct RowFeatures {
  int row;          ///< i, inside the sequence
  int begin, end;   ///< its window of keys
  int sink_end;
  float diagonal;   ///< i + s_k - s_q: the key under the query
  float slope;
  const char* bias;  ///< row i of the bias, key 0
  const u8* keep;
  const u8* blocks;

  __device__ __forceinline__ void set(const ForwardParams& p, const Sequence& q, int b, int head, int i) {
    row = i;
    begin = F.mask == MaskShape::window ? q.begin(i) : 0;
    end = F.mask == MaskShape::none ? q.s_k : q.end(i);
    sink_end = F.mask == MaskShape::window ? q.sink_end(i) : 0;
    const int safe = min(i, q.s_q - 1);
    if constexpr (F.alibi) {
      diagonal = float(i + q.s_k - q.s_q);
      slope = p.slopes[b * p.slope_steps.batch + head * p.slope_steps.head] * kLog2e;
    }
    if constexpr (F.bias != BiasType::none) {
      constexpr int kBytes = F.bias == BiasType::f32 ? 4 : sizeof(typename T::Raw);
      bias = static_cast<const char*>(p.bias) +
             (b * p.bias_steps.batch + head * p.bias_steps.head + safe * p.bias_steps.row) * kBytes;
    }
    if constexpr (F.keep) keep = p.keep + b * p.keep_steps.batch + head * p.keep_steps.head + safe * p.keep_steps.row;
    if constexpr (F.blocks)
      blocks = p.blocks + b * p.block_steps.batch + head * p.block_steps.head + safe / p.block_q * p.block_steps.row;
  }

  /// By the window alone.
  __device__ __forceinline__ bool in_window(int key) const {
    return F.mask == MaskShape::window ? (key >= begin && key < end) || key < sink_end : key < end;
  }
  /// By all masks. `key` is one of the sequence's.
  __device__ __forceinline__ bool visible(const ForwardParams& p, int key) const {
    bool seen = in_window(key);
    if constexpr (F.keep) seen = seen && keep[key * p.keep_steps.column] != 0;
    if constexpr (F.blocks) seen = seen && blocks[key / p.block_k * p.block_steps.column] != 0;
    return seen;
  }
  __device__ __forceinline__ float bias_at(i64 offset) const {
    if constexpr (F.bias == BiasType::f32) return load<f32>(bias, offset);
    return load<T>(bias, offset);
  }
  /// A product Q K^T -> a score in log2 units; only where F.changes_scores(). `added` is the bias.
  __device__ __forceinline__ float score(const ForwardParams& p, float product, int key, float added) const {
    return with_terms(capped_score<F>(p, product), key, added);
  }
  /// What is added to a score in log2 units behind the soft cap.
  __device__ __forceinline__ float with_terms(float x, int key, float added) const {
    if constexpr (F.bias != BiasType::none) x = __fmaf_rn(added, kLog2e, x);
    if constexpr (F.alibi) x = __fmaf_rn(-slope, fabsf(diagonal - float(key)), x);
    return x;
  }
};

/// -inf where the window hides the key: behind its end, and (for a window) before its beginning, sink columns aside.
template <ForwardFeatures F, class T, int R>
HEED_DEVICE void hide_outside_window(const RowFeatures<F, T> (&rows)[2], float (&s)[R], int first_key, int lane) {
  const int key0 = first_key + lane % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int end = rows[half].end - key0;
#pragma unroll
    for (int n = 0; n < R / 4; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (8 * n + e >= end) s[4 * n + 2 * half + e] = -HEED_INFINITY;
  }
  if constexpr (F.mask == MaskShape::window) {
    // The same for all rows of a block far from the left side: nothing to do.
    if (!__any_sync(0xffffffffu, rows[1].begin > first_key || rows[0].begin > first_key)) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int begin = rows[half].begin - key0, sink = rows[half].sink_end - key0;
#pragma unroll
      for (int n = 0; n < R / 4; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (8 * n + e < begin && 8 * n + e >= sink) s[4 * n + 2 * half + e] = -HEED_INFINITY;
    }
  }
}

/// -inf where the window, the boolean or the block mask hides the key.
template <ForwardFeatures F, class T, int R>
HEED_DEVICE void hide_by_bits(const ForwardParams& p, const RowFeatures<F, T> (&rows)[2], float (&s)[R], int first_key,
                              int s_k, int lane) {
  hide_outside_window<F, T>(rows, s, first_key, lane);
  const int key0 = first_key + lane % 4 * 2;
  if constexpr (F.keep) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u8* at = rows[half].keep + key0 * p.keep_steps.column;
      if (p.keep_steps.column == 1 && first_key + 8 * (R / 4) <= s_k && reinterpret_cast<u64>(at) % 2 == 0) {
#pragma unroll
        for (int n = 0; n < R / 4; ++n) {  // two keys by one load
          const u32 two = *reinterpret_cast<const u16*>(at + 8 * n);
          if ((two & 0xff) == 0) s[4 * n + 2 * half] = -HEED_INFINITY;
          if ((two >> 8) == 0) s[4 * n + 2 * half + 1] = -HEED_INFINITY;
        }
      } else {
#pragma unroll
        for (int n = 0; n < R / 4; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int key = 8 * n + e;
            if (key0 + key < s_k && at[key * p.keep_steps.column] == 0) s[4 * n + 2 * half + e] = -HEED_INFINITY;
          }
      }
    }
  }
  if constexpr (F.blocks) {
#pragma unroll
    for (int n = 0; n < R / 4; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int key = key0 + 8 * n + e;
        if (key >= s_k) continue;
        const i64 column = key / p.block_k * p.block_steps.column;
#pragma unroll
        for (int half = 0; half < 2; ++half)
          if (rows[half].blocks[column] == 0) s[4 * n + 2 * half + e] = -HEED_INFINITY;
      }
  }
}

/// Zero where dropout takes the weight. One Philox call serves a thread's eight entries of a 16 x 16 tile.
template <int R>
HEED_DEVICE void drop(const ForwardParams& p, const DropKey& key, u32 head_index, float (&weights)[R], int warp_row,
                      int first_key, int lane) {
  const u32 row_group = u32(warp_row) / 16 * 8 + lane / 4;
  // The highest word whose upper half is below the threshold, which is from 0 to 65536.
  const u32 last = (p.drop_threshold << 16) - 1;
  const bool some = p.drop_threshold > 0;
  constexpr int kAtOnce = R % 16 == 0 ? 2 : 1;   // calls that share the rounds' keys
#pragma unroll
  for (int t = 0; t < R / 8; t += kAtOnce) {
    u32 counters[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) counters[i] = (u32(first_key) / 16 + t + i) * 4 + lane % 4;
    Philox words[kAtOnce];
    philox(words, counters, row_group, head_index, key.offset, key.k0, key.k1);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      float* w = weights + 8 * (t + i);
      const u32 pairs[4] = {words[i].x, words[i].z, words[i].y, words[i].w};  // of w[0], w[2], w[4] and w[6] on
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (some && pairs[e] << 16 <= last) w[2 * e] = 0.0f;
        if (some && pairs[e] <= last) w[2 * e + 1] = 0.0f;
      }
    }
  }
}

/// A reference times `unit`, finite where the reference is.
HEED_DEVICE float in_log2_units(float top, float unit) {
  constexpr float kLargest = 3.402823466e38f;
  return fabsf(top) == HEED_INFINITY ? top : fminf(fmaxf(__fmul_rn(top, unit), -kLargest), kLargest);
}

/// From a row's sums to what O is multiplied by and its log-sum-exp. `top` is the reference of the sums, in log2 units.
struct RowEnd {
  float factor, lse;
};
template <ForwardFeatures F>
HEED_DEVICE RowEnd end_row(const ForwardParams& p, int head, float top, float sum) {
  float shrink = 1.0f;
  if constexpr (F.sink) {
    const float sink = __fmul_rn(p.sink[head * p.sink_step], kLog2e);
    if (!(top > sink)) {  // the sink is above every score; a NaN sum stays NaN
      shrink = top == -HEED_INFINITY ? (sum == sum ? 0.0f : sum) : exp2_approx(top - sink);
      top = sink;
    }
    sum = sum * shrink + (top == -HEED_INFINITY ? 0.0f : exp2_approx(sink - top));
  }
  RowEnd end;
  end.factor = sum == 0.0f ? 0.0f : shrink * reciprocal(sum);
  if constexpr (F.dropout) end.factor *= p.drop_scale;
  end.lse = sum == 0.0f ? -HEED_INFINITY : (top + log2_approx(sum)) * kLn2;
  return end;
}

/// True in the whole warp when O holds something that is no number. A hidden key has weight 0, but 0 * NaN and
/// 0 * infinity are NaN, in every row of the tile alike: so one of a thread's two rows tells. `counts`: that row is one
/// of the sequence's.
template <int R>
HEED_DEVICE bool spoilt(const float (&o)[R], bool counts) {
  float zero = 0.0f;
#pragma unroll
  for (int i = 0; i < R / 4; ++i) zero = __fmaf_rn(o[4 * i + 1], 0.0f, __fmaf_rn(o[4 * i], 0.0f, zero));
  return __any_sync(0xffffffffu, counts && zero != 0.0f);
}

/// O of 16 rows of a tile by one warp, key by key, where a hidden key's V is no number: hidden keys are not touched. Slow, and
/// taken only then. The thread brings its two rows' references (log2 units). Weights are rounded to Weight; their sum is
/// taken anew, for what rounding does to all scores alike must cancel here too.
template <ForwardFeatures F, class T, class Output, int kMaxDv, class Weight = T>
HEED_DEVICE void careful_rows(const ForwardParams& p, const Sequence& q, int b, int head, int first_row,
                              const float (&top)[2], int lane) {
  const int kv_head = F.packed ? head : head / p.group;
  const typename T::Raw* keys = static_cast<const typename T::Raw*>(p.k) + b * p.k_steps.batch +
                                kv_head * p.k_steps.head + q.k_row * p.k_steps.row;
  const typename T::Raw* values = static_cast<const typename T::Raw*>(p.v) + b * p.v_steps.batch +
                                  kv_head * p.v_steps.head + q.k_row * p.v_steps.row;
  const DropKey key = F.dropout ? drop_key(p) : DropKey{};
#pragma unroll 1
  for (int r = 0; r < 16; ++r) {
    const int i = q.query(first_row + r), own_head = q.head(head, first_row + r);
    const float row_top = __shfl_sync(0xffffffffu, r < 8 ? top[0] : top[1], r % 8 * 4);
    if (i >= q.s_q) break;
    RowFeatures<F, T> features;
    features.set(p, q, b, own_head, i);
    const typename T::Raw* query = static_cast<const typename T::Raw*>(p.q) + b * p.q_steps.batch +
                                   own_head * p.q_steps.head + (q.q_row + i) * p.q_steps.row;
    float weights = 0.0f, sums[kMaxDv / 32];
#pragma unroll
    for (int c = 0; c < kMaxDv / 32; ++c) sums[c] = 0.0f;
#pragma unroll 1
    for (int j = 0; j < q.s_k; ++j) {
      if (!features.visible(p, j)) continue;
      float x = 0.0f;
#pragma unroll 1
      for (int e = lane; e < p.d; e += 32)
        x = __fmaf_rn(to_float<T>(query[e * p.q_steps.column]), to_float<T>(keys[j * p.k_steps.row + e * p.k_steps.column]), x);
#pragma unroll
      for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
      if constexpr (F.changes_scores()) {
        float added = 0.0f;
        if constexpr (F.bias != BiasType::none) added = features.bias_at(j * p.bias_steps.column);
        x = features.score(p, x, j, added);
      } else {
        x = __fmul_rn(x, p.scale_log2);
      }
      float weight = row_top == -HEED_INFINITY ? exp2_approx(x) * 0.0f : exp2_approx(x - row_top);
      weights += weight;
      if constexpr (F.dropout) {
        if (drop_word(key, b * p.heads + own_head, i, j) < p.drop_threshold) weight = 0.0f;
      }
      weight = to_float<Weight>(from_float<Weight>(weight));
#pragma unroll
      for (int c = 0; c < kMaxDv / 32; ++c) {
        const int e = c * 32 + lane;
        if (e < p.d_v)
          sums[c] = __fmaf_rn(weight, to_float<T>(values[j * p.v_steps.row + e * p.v_steps.column]), sums[c]);
      }
    }
    typename Output::Raw* out = static_cast<typename Output::Raw*>(p.o) + b * p.o_steps.batch +
                                own_head * p.o_steps.head + (q.q_row + i) * p.o_steps.row;
    const float factor = end_row<F>(p, own_head, row_top, weights).factor;
#pragma unroll
    for (int c = 0; c < kMaxDv / 32; ++c) {
      const int e = c * 32 + lane;
      if (e < p.d_v) out[e * p.o_steps.column] = from_float<Output>(sums[c] * factor);
    }
  }
}

}  // namespace heed::kernels
