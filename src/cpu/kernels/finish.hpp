// From sums to results: sink logits, normalisation, LSE; and the merge of partial results.
#pragma once

#include "cpu/kernels/score_pass.hpp"

#include <math.h>

namespace heed::cpu::HEED_ISA {

/// What is known of a row besides its O. The maximum is in log2 units, -inf when no key was visible.
struct RowSums {
  float maximum;
  float sum;      // of 2^(s - maximum): goes into the LSE
  float weights;  // the same as O was summed with it (rounded for 16-bit products): divides O
};

HEED_INLINE void store_sums(float* partial, const ForwardJob& job, const RowSums& sums) {
  partial[job.d_v] = sums.maximum;
  partial[job.d_v + 1] = sums.sum;
  partial[job.d_v + 2] = sums.weights;
}

/// Adds the sink logit, writes the LSE, and returns what O is to be multiplied by.
HEED_INLINE float end_row(const ForwardJob& job, int64_t row, RowSums sums) {
  const int64_t head = row % job.heads;
  float top = sums.maximum, shrink = 1.f;  // shrink: what a sink above every score does to the sums and to O
  float given = 0.f;                       // the sink, in nats
  bool sink_on_top = false;
  if (job.sinks != nullptr) {
    __builtin_memcpy(&given, static_cast<const char*>(job.sinks) + head * job.sink_head * 4, 4);
    const float sink = in_log2_units(given);
    if (!(top > sink)) {
      shrink = top == kMinusInfinity ? (sums.sum == sums.sum ? 0.f : sums.sum) : exp2f(top - sink);
      top = sink;
      sink_on_top = true;
    }
    const float share = top == kMinusInfinity ? 0.f : exp2f(sink - top);
    sums.sum = sums.sum * shrink + share;
    sums.weights = sums.weights * shrink + share;
  }
  constexpr float kLn2 = 0.693147180559945309417f;
  if (job.lse != nullptr) {
    const float lse = sink_on_top ? given + log2f(sums.sum) * kLn2 : (top + log2f(sums.sum)) * kLn2;
    job.lse[head * job.lse_head + row / job.heads * job.lse_row] = sums.sum == 0.f ? kMinusInfinity : lse;
  }
  return sums.sum == 0.f ? 0.f : shrink / sums.weights * job.drop_scale;
}

/// See ForwardKernels::combine. The maximum of each part is replaced by its weight.
HEED_NOINLINE void combine(const ForwardJob& job, int64_t first_row, int32_t rows, float* partial, int64_t part_stride,
                           int32_t parts) {
  for (int r = 0; r < rows; ++r) {
    float* first = partial_row(partial, job, r);
    RowSums sums{kMinusInfinity, 0.f, 0.f};
    for (int p = 0; p < parts; ++p) {
      const float m = first[p * part_stride + job.d_v];
      if (m > sums.maximum) sums.maximum = m;
    }
    for (int p = 0; p < parts; ++p) {
      float* part = first + p * part_stride + job.d_v;
      // A part without visible keys has O = 0, or NaN (and a NaN sum) when a score was NaN.
      part[0] = part[0] == kMinusInfinity ? (part[1] == part[1] ? 0.f : part[1]) : exp2f(part[0] - sums.maximum);
      sums.sum += part[1] * part[0];
      sums.weights += part[2] * part[0];
    }
    const int64_t row = first_row + r;
    const float factor = end_row(job, row, sums);
    for (int c = 0; c < job.d_v; c += kLanes) {
      const int n = smaller(job.d_v - c, kLanes);
      F x = zero();
      for (int p = 0; p < parts; ++p) {
        const float* part = first + p * part_stride;
        // Also of a part without a weight: what is infinite or no number in its O, a visible key has made.
        x = fma(load_f32(part + c, n), broadcast(part[job.d_v]), x);
      }
      x = mul(x, broadcast(factor));
      store_elements(const_cast<char*>(address(job.o, row % job.heads, row / job.heads, c)), job.o.type, x, n);
    }
  }
}

}  // namespace heed::cpu::HEED_ISA
