// The softmax of the Hopper forward kernel: references, weights, row sums. docs/kernels/forward.md, "Lazy maximum".
#pragma once

#include "hopper_config.h"
#include "numbers.cuh"

namespace heed::kernels {

/// The running softmax of a thread's two rows. Scores times `c` are in log2 units.
template <HopperConfig C>
struct Softmax {
  static constexpr int R = C.tile_k / 2;
  static constexpr float kHuge = 1024.0f;  // log2 units: above it the rounding of top * c is more than 2^-15
  float top[2];    ///< reference: the maximum, or a little less
  float total[2];  ///< this thread's share of the row sums
  float shrink[2];
  bool rescale;    ///< O changes scale by `shrink`, in the whole warp
  bool huge;       ///< a reference of the warp is so large that rounding top * c alone would show in the weights
  float top_c[2], sum[2];

  /// Maxima of a block; moves the reference and says whether O changes scale.
  __device__ __forceinline__ void look(float (&s)[R], float c, bool first, bool masked) {
    float part[2][2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      part[r][0] = fmaxf(s[2 * r], s[2 * r + 1]);
      part[r][1] = fmaxf(s[4 + 2 * r], s[4 + 2 * r + 1]);
    }
#pragma unroll
    for (int n = 2; n < R / 4; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        part[r][n & 1] = fmaxf(part[r][n & 1], fmaxf(s[4 * n + 2 * r], s[4 * n + 2 * r + 1]));
    float highest[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float x = fmaxf(part[r][0], part[r][1]);
      x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
      x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
      highest[r] = first ? x : fmaxf(top[r], x);
    }
    if (first) {
      top[0] = highest[0];
      top[1] = highest[1];
      total[0] = total[1] = 0.0f;
      rescale = false;
    } else {
      rescale = true;
      if (C.rescale_threshold > 0)
        rescale = __any_sync(0xffffffffu, (highest[0] - top[0]) * c > float(C.rescale_threshold) ||
                                              (highest[1] - top[1]) * c > float(C.rescale_threshold));
      if (rescale) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float safe = masked && highest[r] == -HEED_INFINITY ? 0.0f : highest[r];
          shrink[r] = exp2_approx((top[r] - safe) * c);
          top[r] = highest[r];
          total[r] *= shrink[r];
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) top_c[r] = masked && top[r] == -HEED_INFINITY ? 0.0f : top[r] * c;
    if (first || rescale)
      huge = __any_sync(0xffffffffu, fabsf(top_c[0]) > kHuge || fabsf(top_c[1]) > kHuge);
  }
  /// Lazy maximum: the next block is exponentiated against the reference as it is. That of a row which has seen no key
  /// yet is -inf: the first key that it sees is far above it, and makes it stale. Where masks or biases hide keys it is
  /// a finite number instead, so that keys which are hidden, too, have weights of 0 and not NaN.
  __device__ __forceinline__ void keep_reference(float c) {
    constexpr float kLowest = -3.402823466e38f;
    rescale = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top_c[r] = top[r] * c;
      if (C.features.bit_masks() || C.features.bias != BiasType::none) top_c[r] = fmaxf(top_c[r], kLowest);
    }
  }
  /// Scores -> weights, in place; `sum` = the thread's share of the block's row sums.
  __device__ __forceinline__ void exponentiate(float (&s)[R], float c) {
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int r = (i >> 1) & 1;
      s[i] = exp2_approx(__fmaf_rn(s[i], c, -top_c[r]));
      sum[r] = i == 0 || i == 2 ? s[i] : sum[r] + s[i];
    }
  }
  /// The same from products: `exponent(product, i)` is what 2 is raised to.
  template <class Exponent>
  __device__ __forceinline__ void exponentiate_directly(float (&s)[R], const Exponent& exponent) {
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int r = (i >> 1) & 1;
      s[i] = exp2_approx(exponent(s[i], i));
      sum[r] = i == 0 || i == 2 ? s[i] : sum[r] + s[i];
    }
  }
  /// The same for huge references: the difference first, then the factor.
  __device__ __forceinline__ void exponentiate_differences(float (&s)[R], float c) {
    sum[0] = sum[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int r = (i >> 1) & 1;
      const bool hidden = top_c[r] == 0.0f && top[r] == -HEED_INFINITY;
      s[i] = exp2_approx((s[i] - (hidden ? 0.0f : top[r])) * c);
      sum[r] += s[i];
    }
  }
  __device__ __forceinline__ void add_sums() {
    total[0] += sum[0];
    total[1] += sum[1];
  }
  /// Lazy maximum: the block was exponentiated against an old reference. That is sound as long as no weight is huge,
  /// and a weight is at most its row sum: P stays far from overflow in f16, the sums and O in f32. NaN is looked at
  /// again: it may have come of -inf less a reference of -inf.
  __device__ __forceinline__ bool stale() const {
    return __any_sync(0xffffffffu, !(sum[0] + sum[1] <= 4096.0f));
  }
};

}  // namespace heed::kernels
