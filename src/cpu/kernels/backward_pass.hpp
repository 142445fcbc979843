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
      lse[r] = given == kMinusInfinity ? -kMinusInfinity : in_log2_units(given);
      delta[r] = there ? job.delta[first_row + r] : 0.f;
    }
  }
};

/// Keys of a block that the same vectors of queries see something of: all that is computed for them.
struct KeyRun {
  int key, keys;       // counted from the block's first key; the last ones may be behind the last key there is
  int low, high;       // vectors of the strip
  bool whole = false;  // every query sees every key
};

/// Where every key is visible and nothing is done to the scores. s [keys][kStrip] becomes P, dp becomes dS.
HEED_NOINLINE void plain_gradients(float* s, float* dp, const StripSums& sums, float factor, int keys) {
  for (int v = 0; v < kVectors; ++v) {
    const F lse = load(sums.lse + v * kLanes), delta = load(sums.delta + v * kLanes), scale = broadcast(factor);
    for (int key = 0; key < keys; ++key) {
      const long at = static_cast<long>(key) * kStrip + v * kLanes;
      const F d_weight = load(dp + at);  // before the store below: both arrays lie alike in their pages
      const F p = exp2(sub(mul(load(s + at), scale), lse));
      store(s + at, p);
      store(dp + at, mul(p, sub(d_weight, delta)));
    }
  }
}

struct GradientPass {
  const ForwardJob* job;
  const StripWindows* windows;  // null: every key of the block is visible
  const BlockBits* visible;     // of the block; null: no boolean or block mask
  const BlockBits* kept;        // likewise; null: no dropout
  const LaneFeatures* lanes;    // null: scores are in log2 units but for `factor`
  const float* bias;            // [keys of the block][kStrip] or null
  const StripSums* sums;
  float factor;
  bool before_cap;  // dS is the gradient of the scores behind the soft cap, not before it
};

/// plain_gradients() with all that can be done to a score, for a run of the block that begins with key `first`. A pair
/// that is hidden gets 0 in both, whatever its score.
HEED_NOINLINE void gradients(const GradientPass& pass, int first, const KeyRun& run, float* s, float* dp) {
  const ForwardJob& job = *pass.job;
  const float cap = job.soft_cap, inverse_cap = cap > 0 ? 1.f / cap : 0.f;
  for (int v = run.low; v < run.high; ++v) {
    const F lse = load(pass.sums->lse + v * kLanes), delta = load(pass.sums->delta + v * kLanes);
    for (int key = run.key; key < run.key + run.keys; ++key) {
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
/// P and dS of a run as the products in bf16 take them.
struct PairedGradients {
  float *p_rows, *ds_rows;  // [keys][kStrip / 2] words: two queries each
  float* ds_pairs;          // [keys / 2][kStrip] words: two keys each

  /// Two vectors of queries, of this key and the next.
  HEED_INLINE_MEMBER void store_squares(int key, int v, const F (&p)[2][2], const F (&ds)[2][2]) const {
    HEED_UNROLL for (int i = 0; i < 2; ++i) {
      const long at = static_cast<long>(key + i) * (kStrip / 2) + v / 2 * kLanes;
      store(p_rows + at, (F)_mm512_cvtne2ps_pbh(p[i][1], p[i][0]));
      store(ds_rows + at, (F)_mm512_cvtne2ps_pbh(ds[i][1], ds[i][0]));
      store(ds_pairs + static_cast<long>(key / 2) * kStrip + (v + i) * kLanes, pair_to_bf16(ds[0][i], ds[1][i]));
    }
  }
};

/// Likewise from P and dS [keys][kStrip] of f32.
HEED_NOINLINE void pair_up(const float* p, const float* ds, int keys, const PairedGradients& to) {
  for (int key = 0; key < keys; key += 2, p += 2 * kStrip, ds += 2 * kStrip)
    for (int v = 0; v < kVectors; v += 2) {
      F p_square[2][2], ds_square[2][2];
      HEED_UNROLL for (int i = 0; i < 2; ++i) HEED_UNROLL for (int j = 0; j < 2; ++j) {
        p_square[i][j] = load(p + i * kStrip + (v + j) * kLanes);
        ds_square[i][j] = load(ds + i * kStrip + (v + j) * kLanes);
      }
      to.store_squares(key, v, p_square, ds_square);
    }
}

/// plain_gradients() and pair_up() at once, without a way through memory.
HEED_NOINLINE void plain_gradients_paired(const float* s, const float* dp, const StripSums& sums, float factor,
                                          int keys, const PairedGradients& to) {
  const F scale = broadcast(factor);
  for (int v = 0; v < kVectors; v += 2) {
    const F lse[2] = {load(sums.lse + v * kLanes), load(sums.lse + (v + 1) * kLanes)};
    const F delta[2] = {load(sums.delta + v * kLanes), load(sums.delta + (v + 1) * kLanes)};
    for (int key = 0; key < keys; key += 2) {
      F p[2][2], ds[2][2];
      HEED_UNROLL for (int i = 0; i < 2; ++i) HEED_UNROLL for (int j = 0; j < 2; ++j) {
        const long at = static_cast<long>(key + i) * kStrip + (v + j) * kLanes;
        const F x = sub(mul(load(s + at), scale), lse[j]);
        p[i][j] = exp2_polynomial<4>(x, kExp2Coefficients + kDegree4);
        ds[i][j] = mul(p[i][j], sub(load(dp + at), delta[j]));
      }
      to.store_squares(key, v, p, ds);
    }
  }
}
#endif

}  // namespace heed::cpu::HEED_ISA
