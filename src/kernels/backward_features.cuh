// The features of attention as the backward pass of the Hopper family meets them: on S^T, whose rows are keys.
//
// The thread with this lane holds keys r and r + 8 of a warp's 16 (r = lane / 4), and of every 8 queries the two from
// 2 * (lane % 4) on:
//   s[4 * n + 2 * half + e]  =  entry of key first_key + r + 8 * half and query first_query + 8 * n + 2 * (lane % 4) + e
#pragma once

#include "backward_entries.cuh"
#include "forward_features.cuh"

namespace heed::kernels {

/// What a thread knows of its two keys under one head.
template <ForwardFeatures F, class T>
struct KeyFeatures {
  int key;  ///< the first; the other is 8 behind
  float slope;
  const u8* blocks;  ///< query 0, key 0

  __device__ __forceinline__ void set(const ForwardParams& p, int b, int head, int first) {
    key = first;
    if constexpr (F.alibi) slope = p.slopes[b * p.slope_steps.batch + head * p.slope_steps.head] * kLog2e;
    if constexpr (F.blocks) blocks = p.blocks + b * p.block_steps.batch + head * p.block_steps.head;
  }

  /// By the block mask.
  __device__ __forceinline__ bool kept(const ForwardParams& p, int i, int j) const {
    return blocks[i / p.block_q * p.block_steps.row + j / p.block_k * p.block_steps.column] != 0;
  }
};

/// The blocks of kM queries that see some of the keys [first_key, end_key): [first, end), at least one, so that dK and
/// dV of keys that nobody sees are written, too.
struct QueryBlocks {
  int first, end;
};
template <ForwardFeatures F, int kM>
HEED_DEVICE QueryBlocks query_blocks(const Sequence& q, int first_key, int end_key) {
  int first = 0, end = q.s_q;
  if constexpr (F.mask != MaskShape::none) first = max(first_key - q.x + 1, 0);
  if constexpr (F.mask == MaskShape::window)
    if (first_key >= q.sink) end = min(end, min(end_key, q.s_k) + q.y - 1);
  const int last = max((q.s_q + kM - 1) / kM - 1, 0);
  QueryBlocks blocks;
  blocks.first = min(first / kM, last);
  blocks.end = max(min((end + kM - 1) / kM, last + 1), blocks.first + 1);
  return blocks;
}

/// Whether some query of a block of kM does not see some of the 64 keys from first_key on.
template <ForwardFeatures F, int kM>
HEED_DEVICE bool hides_some(const Sequence& q, int first_query, int first_key) {
  bool hides = first_key + 64 > q.s_k;
  if constexpr (F.mask != MaskShape::none) hides = hides || first_key + 63 >= first_query + q.x;
  if constexpr (F.mask == MaskShape::window) hides = hides || first_query + kM - q.y > first_key;
  return hides;
}

/// The queries that see a key by the window: [begin, end), counted from some first one.
struct SeeingQueries {
  int begin, end;

  template <ForwardFeatures F>
  __device__ __forceinline__ bool hidden(int query) const {
    return query < begin || (F.mask == MaskShape::window && query >= end);
  }
};
template <ForwardFeatures F>
HEED_DEVICE SeeingQueries seeing_queries(const Sequence& q, int key, int first_query) {
  constexpr int kAll = 1 << 30;
  SeeingQueries seeing{key >= q.s_k ? kAll : -kAll, kAll};
  if constexpr (F.mask != MaskShape::none)
    if (key < q.s_k) seeing.begin = key - q.x + 1 - first_query;
  if constexpr (F.mask == MaskShape::window)
    if (key >= q.sink) seeing.end = key + q.y - first_query;
  return seeing;
}

/// -inf where a key is hidden from a query by the window or by a block mask: a mark, no score yet. Rows behind the end of
/// the sequence need none: their LSE is +inf.
template <ForwardFeatures F, class T, int R>
HEED_DEVICE void hide(const ForwardParams& p, const Sequence& q, const KeyFeatures<F, T>& keys, float (&s)[R],
                      int first_query, int lane) {
  const int query0 = first_query + lane % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const SeeingQueries seeing = seeing_queries<F>(q, keys.key + 8 * half, query0);
#pragma unroll
    for (int n = 0; n < R / 4; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (seeing.hidden<F>(8 * n + e)) s[4 * n + 2 * half + e] = -HEED_INFINITY;
  }
  if constexpr (F.blocks) {
    const int first_key = keys.key - lane / 4, last_query = min(first_query + 2 * R, q.s_q) - 1;
    const bool one_block = first_query / p.block_q == last_query / p.block_q && first_key / p.block_k == (first_key + 15) / p.block_k;
    if (one_block && first_query <= last_query && first_key < q.s_k) {  // one look for the whole warp
      if (!keys.kept(p, first_query, first_key)) {
#pragma unroll
        for (int i = 0; i < R; ++i) s[i] = -HEED_INFINITY;
      }
      return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int j = keys.key + 8 * half;
      if (j >= q.s_k) continue;
#pragma unroll
      for (int n = 0; n < R / 4; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int i = query0 + 8 * n + e;
          if (i < q.s_q && !keys.kept(p, i, j)) s[4 * n + 2 * half + e] = -HEED_INFINITY;
        }
    }
  }
}

/// Zeros in dS where a key is hidden from a query by the window, whatever was computed of the two: 0 * NaN is no
/// gradient of a bias. `key`: the first of the thread's two. ds: pairs of queries, as s has them, in 16 bits.
template <ForwardFeatures F, int R>
HEED_DEVICE void hide_gradients(const Sequence& q, int key, int first_query, int lane, u32 (&ds)[R]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const SeeingQueries seeing = seeing_queries<F>(q, key + 8 * half, first_query + lane % 4 * 2);
#pragma unroll
    for (int n = 0; n < R / 2; ++n) {
      if (seeing.hidden<F>(8 * n)) ds[2 * n + half] &= 0xffff0000u;
      if (seeing.hidden<F>(8 * n + 1)) ds[2 * n + half] &= 0x0000ffffu;
    }
  }
}

/// Products -> capped scores in log2 units, in place. Those that hide() has marked stay -inf. The whole warp.
template <ForwardFeatures F, int R>
HEED_DEVICE void cap_scores(const ForwardParams& p, float (&s)[R]) {
  if (all_below(s, p.cap_small)) {
#pragma unroll
    for (int i = 0; i < R; ++i) s[i] *= cap_factor(p.cap_small_terms, s[i]);
  } else {
#pragma unroll
    for (int i = 0; i < R; ++i) s[i] = s[i] == -HEED_INFINITY ? s[i] : capped_score<F>(p, s[i]);
  }
}

/// What is between a product of a query and a key and its score, for one of a thread's entries: the score in log2 units,
/// and how fast it grows with scale * product.
struct Score {
  float value, slope;
};
/// `distance`: of the query from the key whose diagonal it is on. With a soft cap `product` went through cap_scores().
template <ForwardFeatures F, class T>
HEED_DEVICE Score score_of(const ForwardParams& p, const KeyFeatures<F, T>& keys, float product, float bias,
                           float distance) {
  Score score{0.0f, 1.0f};
  if constexpr (F.soft_cap) {
    const float t = fmaxf(product * (1.0f / (p.soft_cap * kLog2e)), -1.0f);  // tanh; that of hidden ones has no slope
    score.value = product;
    score.slope = __fmaf_rn(-t, t, 1.0f);
  } else {
    score.value = __fmul_rn(product, p.scale_log2);
  }
  if constexpr (F.bias != BiasType::none) score.value = __fmaf_rn(bias, kLog2e, score.value);
  if constexpr (F.alibi) score.value = __fmaf_rn(-keys.slope, fabsf(distance), score.value);
  // A negative scale makes +inf of the mark, also of the keys behind the last, which no mask hides.
  if (F.hides() || F.negative_scale) score.value = product == -HEED_INFINITY ? -HEED_INFINITY : score.value;
  return score;
}

/// The random words of a thread's eight entries of 16 queries by 16 keys, word 2 * (query half) + (key half) in the
/// place e: of the queries 2 * (lane % 4) + e. Lanes with neighbouring keys share two calls of Philox.
struct DropWords {
  u32 word[2][2];  ///< [e][query half]: the key halves in the low and the high 16 bits

  __device__ __forceinline__ void draw(const DropKey& key, u32 head_index, u32 first_query, u32 first_key, u32 lane) {
    const u32 odd = lane / 4 % 2;  // the parity of this thread's keys
    const Philox mine = philox(first_key / 16 * 4 + lane / 8, first_query / 16 * 8 + lane % 4 * 2 + odd, head_index,
                               key.offset, key.k0, key.k1);
    // Mine are the words of query 2 * (lane % 4) + odd for an even key (low halves) and its odd neighbour (high halves).
    const u32 even_keys[2] = {__byte_perm(mine.x, mine.y, 0x5410), __byte_perm(mine.z, mine.w, 0x5410)};
    const u32 odd_keys[2] = {__byte_perm(mine.x, mine.y, 0x7632), __byte_perm(mine.z, mine.w, 0x7632)};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u32 kept = odd ? odd_keys[i] : even_keys[i];
      const u32 other = __shfl_xor_sync(0xffffffffu, odd ? even_keys[i] : odd_keys[i], 4);
      word[0][i] = odd ? other : kept;
      word[1][i] = odd ? kept : other;
    }
  }
  /// Whether the entry s[8 * t + 4 * query_half + 2 * key_half + e] is lost.
  __device__ __forceinline__ bool lost(int query_half, int key_half, int e, u32 threshold) const {
    return (word[e][query_half] >> (16 * key_half) & 0xffff) < threshold;
  }
};

}  // namespace heed::kernels
