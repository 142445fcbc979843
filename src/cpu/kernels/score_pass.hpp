// The one place where scores are changed before the softmax: scale, soft cap, bias, ALiBi, masks, in the contract's
// order. Absent features cost a predicted branch per vector; problems with none of them never come here for unmasked
// blocks.
#pragma once

#include "cpu/kernels/lanes.hpp"

namespace heed::cpu::HEED_ISA {

constexpr float kLog2e = 1.44269504088896340736f;
constexpr float kMinusInfinity = -__builtin_inff();
constexpr int kKeyGroup = 16;  // keys that share one range of active vectors

/// x * log2(e), which stays finite: a sink of -FLT_MAX, say, is none in effect, but not by its meaning.
HEED_INLINE float in_log2_units(float x) {
  const float scaled = x * kLog2e;
  if (x - x != 0.f) return scaled;  // infinite, or no number
  return at_least(-__FLT_MAX__, at_most(__FLT_MAX__, scaled));
}

/// tanh: an odd polynomial near 0, where 1 - 2 / (e^2x + 1) would lose its digits, that formula elsewhere.
HEED_INLINE F tanh(F x) {
  const F z = mul(x, x), size = abs(x);
  F p = fma(broadcast(-5.70498872745e-3f), z, broadcast(2.06390887954e-2f));
  p = fma(p, z, broadcast(-5.37397155531e-2f));
  p = fma(p, z, broadcast(1.33314422036e-1f));
  p = fma(p, z, broadcast(-3.33332819422e-1f));
  const F near = fma(mul(p, z), x, x);
  const F bounded = select(greater(size, broadcast(10.f)), broadcast(10.f), size);  // tanh(10) rounds to 1
  const F e = exp2(mul(bounded, broadcast(2.f * kLog2e)));
  const F far = sub(broadcast(1.f), div(broadcast(2.f), add(e, broadcast(1.f))));
  const I sign = and_int(as_int(x), broadcast_int(static_cast<int>(0x80000000u)));
  const F result = select(greater(broadcast(0.625f), size), near, as_float(or_int(as_int(far), sign)));
  return select(equal(x, x), result, x);
}

/// Bias of a strip for keys [first, first + keys) as [keys][kStrip] of f32.
HEED_NOINLINE void gather_bias(const ForwardJob& job, int64_t first_row, int rows, int first, int keys, float* bias) {
  for (int r = 0; r < kStrip; r += kLanes) {
    for (int key = 0; key < keys; key += kLanes) {
      F x[kLanes];
      const int n = smaller(keys - key, kLanes);
      for (int i = 0; i < kLanes; ++i) {
        const int64_t row = first_row + smaller(r + i, rows - 1);
        const char* from = address(job.bias, row % job.heads, row / job.heads, first + key);
        if (job.bias.column == 1) {
          x[i] = load_elements(from, job.bias.type, n);
        } else {
          alignas(64) float t[kLanes] = {};
          for (int c = 0; c < n; ++c)
            t[c] = load_element(from + c * job.bias.column * size_of(job.bias.type), job.bias.type);
          x[i] = load(t);
        }
      }
      transpose(x);
      for (int i = 0; i < n; ++i) store(bias + static_cast<long>(key + i) * kStrip + r, x[i]);
    }
  }
}

/// What differs from lane to lane, besides the windows.
struct LaneFeatures {
  alignas(64) int32_t diagonal[kStrip];  // i + s_k - s_q: the key under the query, for ALiBi
  alignas(64) float slope[kStrip];

  void set(const ForwardJob& job, int64_t first_row, int rows) {
    for (int r = 0; r < kStrip; ++r) {
      const int64_t n = first_row + smaller(r, rows - 1);
      diagonal[r] = static_cast<int32_t>(n / job.heads + job.s_k - job.s_q);
      slope[r] = 0;
      if (job.slopes != nullptr)
        __builtin_memcpy(&slope[r], static_cast<const char*>(job.slopes) + n % job.heads * job.slope_head * 4, 4);
    }
  }
};

struct ScorePass {
  const ForwardJob* job;
  const StripWindows* windows;  // null: every key of the block is visible
  const BlockBits* bits;        // null: no boolean or block mask
  const LaneFeatures* lanes;    // null: scores stay in the units of the product
  const float* bias;            // [keys][kStrip] or null
  const int8_t (*active)[2];    // per group of keys, the vectors that hold scores; the others become -inf
};

/// s [keys][kStrip] in place; highest [kStrip] becomes the largest score of each lane.
HEED_NOINLINE void change_scores(const ScorePass& pass, int first, int keys, float* s, float* highest) {
  const ForwardJob& job = *pass.job;
  const F minus_infinity = broadcast(kMinusInfinity);
  const float cap = job.soft_cap, inverse_cap = cap > 0 ? 1.f / cap : 0.f;
  for (int v = 0; v < kVectors; ++v) {
    F high = minus_infinity;
    for (int key = 0; key < keys; ++key) {
      float* at = s + static_cast<long>(key) * kStrip + v * kLanes;
      if (v < pass.active[key / kKeyGroup][0] || v >= pass.active[key / kKeyGroup][1]) {
        store(at, minus_infinity);
        continue;
      }
      F x = load(at);
      const I j = broadcast_int(first + key);
      if (pass.lanes != nullptr) {
        x = mul(x, broadcast(job.scale));
        if (cap > 0) x = mul(tanh(mul(x, broadcast(inverse_cap))), broadcast(cap));
        if (pass.bias != nullptr) x = add(x, load(pass.bias + static_cast<long>(key) * kStrip + v * kLanes));
        if (job.slopes != nullptr) {
          const F distance = abs(to_float(sub_int(load_int(&pass.lanes->diagonal[v * kLanes]), j)));
          x = sub(x, mul(load(&pass.lanes->slope[v * kLanes]), distance));
        }
        x = mul(x, broadcast(kLog2e));
      }
      if (pass.windows != nullptr) x = select(pass.windows->visible(j, v), x, minus_infinity);
      if (pass.bits != nullptr) x = select(pass.bits->visible(key, v), x, minus_infinity);
      store(at, x);
      high = max(high, x);
    }
    store(highest + v * kLanes, high);
  }
}

}  // namespace heed::cpu::HEED_ISA
