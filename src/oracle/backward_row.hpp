#pragma once

#include <heed/philox.hpp>

#include "oracle/backward_head.hpp"
#include "oracle/measure.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

namespace heed::oracle {

/// The weights of one query row over the keys of a KeySet, in the arithmetic of Real: docs/semantics.md, "Backward",
/// line by line.
template <class Real>
class RowGradients {
 public:
  /// `weight_type`: P and dS are rounded to it, if it has 16 bits.
  RowGradients(const BackwardArgs& args, const Problem& problem, DataType weight_type, Measure measure)
      : args_(args.forward),
        weight_type_(weight_type),
        measure_(measure),
        heads_(problem.heads_q()),
        scale_(static_cast<Real>(problem.scale())) {}

  /// P after dropout, [keys]: what dV sums up.
  std::vector<Real> weights;
  /// The gradient of the scores after soft cap and bias, [keys]: what dBias and dSlopes sum up.
  std::vector<Real> d_scores;
  /// The gradient of scale * Q K^T, [keys]: what dQ and dK sum up, times the scale.
  std::vector<Real> d_logits;
  /// Minus P * D of the sink.
  Real d_sink = 0;

  void compute(const QueryRow<Real>& row, const core::Sequence& sequence, const MaskBounds& bounds,
               const KeySet<Real>& head) {
    const std::size_t n = head.keys.size();
    weights.assign(n, Real{0});
    d_scores.assign(n, Real{0});
    d_logits.assign(n, Real{0});
    d_sink = sink_gradient(row);
    if (row.lse == -std::numeric_limits<Real>::infinity()) return;  // nothing is visible: every gradient is 0
    compute_products(row, head);

    const Real cap = static_cast<Real>(args_.soft_cap);
    const core::ScoreStrides bias = core::broadcast_strides(args_.bias);
    const Real slope = slope_of(row);
    const Real growth = static_cast<Real>(1 / (1 - args_.dropout.p));
    for (std::size_t at = 0; at < n; ++at) {
      const std::int64_t j = head.keys[at];
      if (!bounds.visible(row.i, j) || !is_kept(row, j)) continue;
      Real score = scores_[at], cap_slope = 1;
      if (cap > 0) {
        const Real t = std::tanh(score / cap);
        score = cap * t;
        cap_slope = 1 - t * t;
      }
      if (args_.bias.given()) score += read_real<Real>(args_.bias, bias.at(row.b, row.h, row.i, j));
      if (args_.alibi_slopes.given())
        score -= slope * static_cast<Real>(std::abs(row.i + sequence.s_k - sequence.s_q - j));

      const Real p = std::exp(score - row.lse);
      const bool dropped = args_.dropout.p > 0 && random_word(row, j) < dropout_threshold(args_.dropout.p);
      const Real factor = args_.dropout.p == 0 ? Real{1} : dropped ? Real{0} : growth;
      // A dropped key's row of V may hold anything.
      const Real d_weight =
          dropped ? Real{0} : factor * (measure_ == Measure::magnitude ? d_sizes_[at] : d_products_[at]);
      if (measure_ == Measure::magnitude) {
        // A logit is as good as the largest number on the way to it.
        const Real logit = 1 + limited(score_sizes_[at]) + limited(row.lse);
        weights[at] = logit * p * factor;
        d_scores[at] = logit * p * (d_weight + row.delta_size);
      } else {
        weights[at] = rounded(p * factor);
        d_scores[at] = p * (d_weight - row.delta);
      }
      d_logits[at] = measure_ == Measure::magnitude ? d_scores[at] : rounded(d_scores[at] * cap_slope);
    }
  }

 private:
  /// scale * Q K^T and dO V^T, and the sizes of their terms.
  void compute_products(const QueryRow<Real>& row, const KeySet<Real>& head) {
    const std::size_t n = head.keys.size();
    const auto product = [n](std::vector<Real>& sum, const std::vector<Real>& left, Real factor, auto right,
                             bool sizes) {
      sum.assign(n, Real{0});
      for (std::size_t e = 0; e < left.size(); ++e) {
        // The scale goes to q, as in most implementations.
        const Real l = sizes ? std::abs(factor * left[e]) : factor * left[e];
        const Real* const r = right(static_cast<std::int64_t>(e));
        for (std::size_t at = 0; at < n; ++at) sum[at] += l * (sizes ? std::abs(r[at]) : r[at]);
      }
    };
    const auto k_dim = [&](std::int64_t e) { return head.k_dim(e); };
    const auto v_dim = [&](std::int64_t e) { return head.v_dim(e); };
    product(scores_, row.q, scale_, k_dim, false);
    product(d_products_, row.d_o, Real{1}, v_dim, false);
    if (measure_ != Measure::magnitude) return;
    product(score_sizes_, row.q, scale_, k_dim, true);
    product(d_sizes_, row.d_o, Real{1}, v_dim, true);
  }

  Real sink_gradient(const QueryRow<Real>& row) const {
    if (!args_.sink.given()) return 0;
    const Real sink = read_real<Real>(args_.sink, row.h * args_.sink.stride(0));
    // A sink of -inf is none, also where it is all there is.
    if (sink == -std::numeric_limits<Real>::infinity()) return 0;
    const Real p = std::exp(sink - row.lse);
    if (measure_ == Measure::magnitude) return (1 + limited(sink) + limited(row.lse)) * p * row.delta_size;
    return -p * row.delta;
  }

  Real slope_of(const QueryRow<Real>& row) const {
    if (!args_.alibi_slopes.given()) return 0;
    const core::SlopeStrides steps = core::alibi_strides(args_.alibi_slopes);
    return read_real<Real>(args_.alibi_slopes, row.b * steps.batch + row.h * steps.head);
  }

  /// What the boolean mask and the block mask say of key j.
  bool is_kept(const QueryRow<Real>& row, std::int64_t j) const {
    const auto kept = [&](const TensorView& mask, std::int64_t mask_i, std::int64_t mask_j) {
      return core::load_raw<std::uint8_t>(mask.data, core::broadcast_strides(mask).at(row.b, row.h, mask_i, mask_j)) !=
             0;
    };
    const BlockMask& blocks = args_.block_mask;
    return (!args_.bool_mask.given() || kept(args_.bool_mask, row.i, j)) &&
           (!blocks.keep.given() || kept(blocks.keep, row.i / blocks.block_q, j / blocks.block_k));
  }

  std::uint16_t random_word(const QueryRow<Real>& row, std::int64_t j) const {
    return dropout_word(args_.dropout.seed, args_.dropout.offset, static_cast<std::uint64_t>(row.b * heads_ + row.h),
                        static_cast<std::uint64_t>(row.i), static_cast<std::uint64_t>(j));
  }

  /// Sizes beyond this make exp(S - LSE) 0 or infinite anyway.
  static Real limited(Real size) { return std::min(std::abs(size), Real{1000}); }

  Real rounded(Real weight) const {
    switch (weight_type_) {
      case DataType::f16:
        return static_cast<Real>(core::f32_from_f16(core::f16_from_f32(static_cast<float>(weight))));
      case DataType::bf16:
        return static_cast<Real>(core::f32_from_bf16(core::bf16_from_f32(static_cast<float>(weight))));
      default:
        return weight;
    }
  }

  const ForwardArgs& args_;
  DataType weight_type_;
  Measure measure_;
  std::int64_t heads_;
  Real scale_;
  std::vector<Real> scores_, d_products_, score_sizes_, d_sizes_;  ///< [keys]
};

}  // namespace heed::oracle
