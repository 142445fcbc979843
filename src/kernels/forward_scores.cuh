// From the products Q K^T of one block of keys to scores: soft cap, ALiBi and bias for the entries that a thread holds,
// which lie as forward_features.cuh says. One entry by itself is RowFeatures::score(), and must come to the same.
#pragma once

#include "forward_features.cuh"
#include "lanes.cuh"

namespace heed::kernels {

/// On which side of the keys of a block the diagonal of ALiBi lies, for all rows of a warp: there |i - j| is linear.
enum class Diagonal { after, before, among };

/// The bias of one row for the keys that a thread holds of a block, two neighbours in each entry. Fetched early, so that
/// the loads are under way while something else is waited for; to be read after settle(). The whole warp does both.
template <ForwardFeatures F, class T, int kPairs>
struct BiasRow {
  static constexpr bool kWide = F.bias == BiasType::f32 || sizeof(typename T::Raw) == 4;
  static constexpr int kBytes = kWide ? 4 : 2;
  static constexpr bool kByFours = !kWide && kPairs % 4 == 0;
  u32 raw[kWide ? 2 * kPairs : kPairs];
  bool by_fours;  ///< each lane has sixteen bytes at a time: eight keys, of which it needs two

  /// first_key: of the block, which is whole when all its keys are of the sequence.
  __device__ __forceinline__ void fetch(const ForwardParams& p, const RowFeatures<F, T>& row, int first_key, int lane,
                                        int s_k) {
    const bool whole = first_key + 8 * kPairs <= s_k;
    const i64 step = p.bias_steps.column;
    by_fours = false;
    if constexpr (kByFours) {
      const char* chunk = row.bias + (first_key + lane % 4 * 8) * kBytes;
      by_fours = __all_sync(0xffffffffu, whole && step == 1 && reinterpret_cast<u64>(chunk) % 16 == 0);
      if (by_fours) {
#pragma unroll
        for (int n = 0; n < kPairs; n += 4) {
          const uint4 eight = *reinterpret_cast<const uint4*>(chunk + 8 * n * kBytes);
          raw[n] = eight.x;
          raw[n + 1] = eight.y;
          raw[n + 2] = eight.z;
          raw[n + 3] = eight.w;
        }
        return;
      }
    }
    const int key0 = first_key + lane % 4 * 2;
    const char* at = row.bias + key0 * step * kBytes;
    // Keys begin at even numbers: where neighbours lie side by side from an even address on, one load brings both.
    if (whole && step == 1 && reinterpret_cast<u64>(at) % (2 * kBytes) == 0) {
#pragma unroll
      for (int n = 0; n < kPairs; ++n) {
        if constexpr (kWide) {
          const uint2 two = *reinterpret_cast<const uint2*>(at + 8 * n * kBytes);
          raw[2 * n] = two.x;
          raw[2 * n + 1] = two.y;
        } else {
          raw[n] = *reinterpret_cast<const u32*>(at + 8 * n * kBytes);
        }
      }
    } else {
#pragma unroll
      for (int n = 0; n < kPairs; ++n) {
        u32 two[2] = {0, 0};
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (key0 + 8 * n + e >= s_k) continue;
          const char* one = at + (8 * n + e) * step * kBytes;
          if constexpr (kWide) {
            two[e] = *reinterpret_cast<const u32*>(one);
          } else {
            two[e] = *reinterpret_cast<const u16*>(one);
          }
        }
        if constexpr (kWide) {
          raw[2 * n] = two[0];
          raw[2 * n + 1] = two[1];
        } else {
          raw[n] = two[0] | two[1] << 16;
        }
      }
    }
  }
  __device__ __forceinline__ void settle(int lane) {
    if constexpr (kByFours) {
      if (!by_fours) return;
#pragma unroll
      for (int n = 0; n < kPairs; n += 4) {  // the four lanes of a row give each other what they need
        u32 words[4] = {raw[n], raw[n + 1], raw[n + 2], raw[n + 3]};
        transpose_in_fours(words, lane);
#pragma unroll
        for (int i = 0; i < 4; ++i) raw[n + i] = words[i];
      }
    }
  }
  __device__ __forceinline__ float at(int n, int e) const {
    if constexpr (kWide) {
      return __int_as_float(raw[2 * n + e]);
    } else {
      return to_float<T>(u16(raw[n] >> (16 * e)));
    }
  }
};

/// The bias of a thread's two rows in a block of 2 * R keys. One of 16 bits can be fetched early; one of f32 has no room
/// in registers, and is fetched row by row where it is used.
template <ForwardFeatures F, class T, int R>
struct BlockBias {
  static constexpr bool kSome = F.bias != BiasType::none;
  using Row = BiasRow<F, T, kSome ? R / 4 : 1>;
  static constexpr bool kEarly = kSome && !Row::kWide;
  Row rows[2];

  __device__ __forceinline__ void fetch(const ForwardParams& p, const RowFeatures<F, T> (&features)[2], int first_key,
                                        int s_k, int lane) {
    if constexpr (kEarly) {
      rows[0].fetch(p, features[0], first_key, lane, s_k);
      rows[1].fetch(p, features[1], first_key, lane, s_k);
    }
  }
  /// Before a row is read.
  __device__ __forceinline__ void settle(const ForwardParams& p, const RowFeatures<F, T>& features, int half,
                                         int first_key, int s_k, int lane) {
    if constexpr (kSome && !kEarly) rows[half].fetch(p, features, first_key, lane, s_k);
    if constexpr (kSome) rows[half].settle(lane);
  }
};

template <bool kNear, Diagonal kDiagonal, ForwardFeatures F, class T, int R>
HEED_DEVICE void change_each_score(const ForwardParams& p, const RowFeatures<F, T> (&rows)[2],
                                   BlockBias<F, T, R>& bias, float (&s)[R], int first_key, int s_k, int lane) {
  const float key0 = float(first_key + lane % 4 * 2);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const RowFeatures<F, T>& row = rows[half];
    bias.settle(p, row, half, first_key, s_k, lane);
    float slope = 0.0f, term0 = 0.0f;  // of the linear ALiBi
    if constexpr (F.alibi) {
      slope = kDiagonal == Diagonal::after ? row.slope : -row.slope;
      term0 = slope * (key0 - row.diagonal);
    }
#pragma unroll
    for (int n = 0; n < R / 4; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s[4 * n + 2 * half + e];
        if constexpr (F.alibi && kDiagonal != Diagonal::among) {
          const float term = __fmaf_rn(slope, float(8 * n + e), term0);
          x = F.soft_cap ? capped_score<F, kNear>(p, x) + term : __fmaf_rn(x, p.scale_log2, term);
        } else {
          x = capped_score<F, kNear>(p, x);
          if constexpr (F.alibi) x = __fmaf_rn(-row.slope, fabsf(row.diagonal - key0 - float(8 * n + e)), x);
        }
        if constexpr (F.bias != BiasType::none) x = __fmaf_rn(bias.rows[half].at(n, e), kLog2e, x);
      }
  }
}
template <bool kNear, ForwardFeatures F, class T, int R>
HEED_DEVICE void change_near_or_far_scores(const ForwardParams& p, const RowFeatures<F, T> (&rows)[2],
                                           BlockBias<F, T, R>& bias, float (&s)[R], int first_key, int s_k, int lane) {
  if constexpr (F.alibi) {
    if (__all_sync(0xffffffffu, float(first_key + 2 * R - 1) <= rows[0].diagonal)) {
      change_each_score<kNear, Diagonal::after, F, T>(p, rows, bias, s, first_key, s_k, lane);
      return;
    }
    if (__all_sync(0xffffffffu, float(first_key) >= rows[1].diagonal)) {
      change_each_score<kNear, Diagonal::before, F, T>(p, rows, bias, s, first_key, s_k, lane);
      return;
    }
  }
  change_each_score<kNear, Diagonal::among, F, T>(p, rows, bias, s, first_key, s_k, lane);
}

/// Turns the products of one block of keys into scores in log2 units, with its bias, which was fetched before. Needed
/// only where F.changes_scores().
template <ForwardFeatures F, class T, int R>
HEED_DEVICE void change_scores(const ForwardParams& p, const RowFeatures<F, T> (&rows)[2], BlockBias<F, T, R>& bias,
                               float (&s)[R], int first_key, int s_k, int lane) {
  if constexpr (F.soft_cap) {
    // Far from the cap tanh is a polynomial, without the special-function unit, which the exponentials need.
    if (all_below(s, p.cap_near)) {
      change_near_or_far_scores<true, F, T>(p, rows, bias, s, first_key, s_k, lane);
      return;
    }
  }
  change_near_or_far_scores<false, F, T>(p, rows, bias, s, first_key, s_k, lane);
}
/// The same where there was nothing to fetch it during.
template <ForwardFeatures F, class T, int R>
HEED_DEVICE void change_scores(const ForwardParams& p, const RowFeatures<F, T> (&rows)[2], float (&s)[R], int first_key,
                               int s_k, int lane) {
  BlockBias<F, T, R> bias;
  bias.fetch(p, rows, first_key, s_k, lane);
  change_scores<F, T>(p, rows, bias, s, first_key, s_k, lane);
}

/// From products to exponents in one step, for where a maximum is not looked for between them: what soft cap, ALiBi and
/// bias do, less the row's reference. Blocks that it does not suit (a diagonal among the keys, products near the cap) take
/// the way through scores.
template <ForwardFeatures F, class T, int R>
struct DirectExponents {
  /// A bias of f32 is fetched row by row; masks by bits put -inf among the products.
  static constexpr bool kPossible =
      F.changes_scores() && !F.bit_masks() && (F.bias == BiasType::none || BlockBias<F, T, R>::kEarly);
  float start[2];  ///< what is added to the score of a row's first key
  float slope;     ///< and for every key behind it

  /// False: not in this block. `reference`: of the two rows, in log2 units.
  __device__ __forceinline__ bool suits(const ForwardParams& p, const RowFeatures<F, T> (&rows)[2], const float (&s)[R],
                                        int first_key, int lane, const float (&reference)[2]) {
    start[0] = -reference[0];
    start[1] = -reference[1];
    if constexpr (F.alibi) {
      const bool after = __all_sync(0xffffffffu, float(first_key + 2 * R - 1) <= rows[0].diagonal);
      if (!after && !__all_sync(0xffffffffu, float(first_key) >= rows[1].diagonal)) return false;
      slope = after ? rows[0].slope : -rows[0].slope;
      const float key0 = float(first_key + lane % 4 * 2);
#pragma unroll
      for (int half = 0; half < 2; ++half) start[half] = __fmaf_rn(slope, key0 - rows[half].diagonal, start[half]);
    }
    return !F.soft_cap || all_below(s, p.cap_small);
  }
  /// Of entry i.
  __device__ __forceinline__ float of(const ForwardParams& p, const BlockBias<F, T, R>& bias, float product, int i) const {
    const int n = i / 4, half = i / 2 % 2, e = i % 2;
    float added = start[half];
    if constexpr (F.alibi) added = __fmaf_rn(slope, float(8 * n + e), added);
    if constexpr (F.bias != BiasType::none) added = __fmaf_rn(bias.rows[half].at(n, e), kLog2e, added);
    if constexpr (!F.soft_cap) return __fmaf_rn(product, p.scale_log2, added);
    return __fmaf_rn(product, cap_factor(p.cap_small_terms, product), added);
  }
};

}  // namespace heed::kernels
