// From S and dP to P and dS, one strip of queries against one block of keys: the elementwise part of the backward pass.
#pragma once

#include "cpu/backward_job.hpp"
#include "cpu/kernels/dropout.hpp"
#include "cpu/kernels/score_pass.hpp"

namespace heed::cpu::HEED_ISA {

/// A row of a strip that is not there, or sees nothing, has an LSE of +inf: its P is 0.
struct StripSums {
  alignas(64) float lse[kStrip];    // times log2(e)
  alignas(64) float delta[kStrip];  // D = rowsum(dO * O) - dLSE

  void set(const BackwardJob& job, int64_t first_row, int rows) {
    for (int r = 0; r < kStrip; ++r) {
      const bool there = r < rows;
      const float given = there ? job.forward.lse[(first_row + r) * job.forward.lse_row] : kMinusInfinity;
      lse[r] = given == kMinusInfinity ? -kMinusInfinity : given * kLog2e;
      delta[r] = there ? job.delta[first_row + r] : 0.f;
    }
  }
};

/// Where every key is visible and nothing is done to the scores. s [keys][kStrip] becomes P, dp becomes dS.
HEED_NOINLINE void plain_gradients(float* s, float* dp, const StripSums& sums, float factor, int keys) {
  for (int v = 0; v < kVectors; ++v) {
    const F lse = load(sums.lse + v * kLanes), delta = load(sums.delta + v * kLanes), scale = broadcast(factor);
    for (int key = 0; key < keys; ++key) {
      const long at = static_cast<long>(key) * kStrip + v * kLanes;
      const F p = exp2(sub(mul(load(s + at), scale), lse));
      store(s + at, p);
      store(dp + at, mul(p, sub(load(dp + at), delta)));
    }
  }
}

struct GradientPass {
  const ForwardJob* job;
  const StripWindows* windows;  // null: every key of the block is visible
  const BlockBits* visible;     // null: no boolean or block mask
  const BlockBits* kept;        // null: no dropout
  const LaneFeatures* lanes;    // null: scores are in log2 units but for `factor`
  const float* bias;            // [keys][kStrip] or null
  const StripSums* sums;
  float factor;
  bool before_cap;  // dS is the gradient of the scores behind the soft cap, not before it
};

/// plain_gradients() with all that can be done to a score. A pair that is hidden gets 0 in both, whatever its score.
HEED_NOINLINE void gradients(const GradientPass& pass, int first, int keys, float* s, float* dp) {
  const ForwardJob& job = *pass.job;
  const float cap = job.soft_cap, inverse_cap = cap > 0 ? 1.f / cap : 0.f;
  for (int v = 0; v < kVectors; ++v) {
    const F lse = load(pass.sums->lse + v * kLanes), delta = load(pass.sums->delta + v * kLanes);
    for (int key = 0; key < keys; ++key) {
      const long at = static_cast<long>(key) * kStrip + v * kLanes;
      const I j = broadcast_int(first + key);
      F x = load(s + at), slope = broadcast(1.f);  // of the soft cap
      if (pass.lanes != nullptr) {
        x = mul(x, broadcast(job.scale));
        if (cap > 0) {
          const F t = tanh(mul(x, broadcast(inverse_cap)));
          x = mul(t, broadcast(cap));
          if (!pass.before_cap) slope = sub(broadcast(1.f), mul(t, t));
        }
        if (pass.bias != nullptr) x = add(x, load(pass.bias + at));
        if (job.slopes != nullptr) {
          const F distance = abs(to_float(sub_int(load_int(&pass.lanes->diagonal[v * kLanes]), j)));
          x = sub(x, mul(load(&pass.lanes->slope[v * kLanes]), distance));
        }
        x = mul(x, broadcast(kLog2e));
      } else {
        x = mul(x, broadcast(pass.factor));
      }
      F p = exp2(sub(x, lse)), weight = p, d_weight = load(dp + at);
      if (pass.kept != nullptr) {
        const M kept = pass.kept->visible(key, v);
        weight = select(kept, mul(p, broadcast(job.drop_scale)), zero());
        d_weight = select(kept, mul(d_weight, broadcast(job.drop_scale)), zero());
      }
      F d_logit = mul(mul(p, sub(d_weight, delta)), slope);
      if (pass.windows != nullptr) {
        const M seen = pass.windows->visible(j, v);
        weight = select(seen, weight, zero());
        d_logit = select(seen, d_logit, zero());
      }
      if (pass.visible != nullptr) {
        const M seen = pass.visible->visible(key, v);
        weight = select(seen, weight, zero());
        d_logit = select(seen, d_logit, zero());
      }
      store(s + at, weight);
      store(dp + at, d_logit);
    }
  }
}

#ifdef __AVX512BF16__
/// x [keys][kStrip] of f32 as rows of bf16, [keys][kStrip / 2] words.
HEED_NOINLINE void rows_to_bf16(const float* x, float* rows, int keys) {
  for (int key = 0; key < keys; ++key, x += kStrip, rows += kStrip / 2)
    for (int v = 0; v < kVectors; v += 2)
      _mm512_store_si512(rows + v / 2 * kLanes, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(
                                                    load(x + (v + 1) * kLanes), load(x + v * kLanes))));
}

/// Likewise as pairs of keys, [keys / 2][kStrip] words.
HEED_NOINLINE void key_pairs_to_bf16(const float* x, float* pairs, int keys) {
  for (int key = 0; key < keys; key += 2, x += 2 * kStrip, pairs += kStrip)
    for (int v = 0; v < kVectors; ++v)
      store(pairs + v * kLanes, pair_to_bf16(load(x + v * kLanes), load(x + kStrip + v * kLanes)));
}
#endif

}  // namespace heed::cpu::HEED_ISA
