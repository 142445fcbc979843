// From sums to results: sink logits, normalisation, LSE; and the merge of partial results.
#pragma once

#include "cpu/kernels/score_pass.hpp"

#include <math.h>

namespace heed::cpu::HEED_ISA {

/// What a row needs at the end. `maximum` is in log2 units, -inf when no key was visible.
struct RowEnd {
  float factor;  // multiplies the unnormalised O
  float lse;
};

HEED_INLINE RowEnd end_of_row(const ForwardJob& job, int head, float maximum, float sum) {
  float top = maximum, weight = 1.f;  // weight: what the top's move does to the sum and to O
  if (job.sinks != nullptr) {
    float sink;
    __builtin_memcpy(&sink, static_cast<const char*>(job.sinks) + head * job.sink_head * 4, 4);
    sink *= kLog2e;
    if (!(maximum > sink)) {
      top = sink;
      weight = maximum == kMinusInfinity ? (sum == sum ? 0.f : sum) : exp2f(maximum - sink);
    }
    sum = sum * weight + (top == kMinusInfinity ? 0.f : exp2f(sink - top));
  }
  if (sum == 0.f) return {0.f, kMinusInfinity};
  constexpr float kLn2 = 0.693147180559945309417f;
  return {weight / sum * job.drop_scale, job.lse == nullptr ? 0.f : (top + log2f(sum)) * kLn2};
}

HEED_INLINE void store_lse(const ForwardJob& job, int64_t row, float lse) {
  if (job.lse != nullptr) job.lse[row % job.heads * job.lse_head + row / job.heads * job.lse_row] = lse;
}

/// See ForwardKernels::combine. The maximum of each part is replaced by its weight.
HEED_NOINLINE void combine(const ForwardJob& job, int64_t first_row, int32_t rows, float* partial, int64_t part_stride,
                           int32_t parts) {
  const long row_floats = job.d_v + 2;
  for (int r = 0; r < rows; ++r) {
    float* first = partial + r * row_floats;
    float maximum = kMinusInfinity, sum = 0.f;
    for (int p = 0; p < parts; ++p) {
      const float m = first[p * part_stride + job.d_v];
      if (m > maximum) maximum = m;
    }
    for (int p = 0; p < parts; ++p) {
      float& weight = first[p * part_stride + job.d_v];
      const float l = first[p * part_stride + job.d_v + 1];
      // A part without visible keys has O = 0, or NaN (and a NaN sum) when a score was NaN.
      weight = weight == kMinusInfinity ? (l == l ? 0.f : l) : exp2f(weight - maximum);
      sum += l * weight;
    }
    const int64_t row = first_row + r;
    const RowEnd end = end_of_row(job, static_cast<int>(row % job.heads), maximum, sum);
    store_lse(job, row, end.lse);
    for (int c = 0; c < job.d_v; c += kLanes) {
      const int n = smaller(job.d_v - c, kLanes);
      F x = zero();
      for (int p = 0; p < parts; ++p) {
        const float* part = first + p * part_stride;
        if (part[job.d_v] != 0.f) x = fma(load_f32(part + c, n), broadcast(part[job.d_v]), x);
      }
      x = mul(x, broadcast(end.factor));
      store_elements(const_cast<char*>(address(job.o, row % job.heads, row / job.heads, c)), job.o.type, x, n);
    }
  }
}

}  // namespace heed::cpu::HEED_ISA
