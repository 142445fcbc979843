#pragma once

#include <heed/forward.hpp>
#include <heed/philox.hpp>
#include <heed/problem.hpp>

#include "core/float_bits.hpp"
#include "core/sequences.hpp"
#include "oracle/head.hpp"
#include "oracle/noise.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>

namespace heed::oracle {

/// One query row of one sequence.
struct RowIndex {
  std::int64_t b = 0, h = 0, i = 0;
};

/// The keys that a mask lets a row see: the window, and the sink columns before it.
struct VisibleKeys {
  struct Run {
    std::int64_t from = 0, to = 0;
  };
  std::array<Run, 2> runs;

  VisibleKeys(const MaskBounds& bounds, std::int64_t i) {
    const std::int64_t begin = bounds.begin(i), end = std::max(bounds.end(i), begin);
    runs = {Run{0, std::min(bounds.sink_end(i), begin)}, Run{begin, end}};
  }
};

/// Computes rows in the arithmetic of Real, one at a time: the lines of docs/semantics.md in their order.
template <class Real>
class RowComputer {
 public:
  /// `weight_type`: P is rounded to it before P V, if it has 16 bits. `report_noise` may be null.
  RowComputer(const ForwardArgs& args, const Problem& problem, DataType weight_type, const NoiseReport* report_noise)
      : args_(args),
        weight_type_(weight_type),
        report_noise_(report_noise),
        d_(problem.d()),
        d_v_(problem.d_v()),
        heads_(problem.heads_q()),
        scale_(static_cast<Real>(problem.scale())) {}

  void compute(const RowIndex& row, const core::Sequence& sequence, const MaskBounds& bounds,
               const KeyValueHead<Real>& head) {
    const VisibleKeys keys(bounds, row.i);
    if (args_.dropout.randval.given()) write_random_words(row, sequence);
    compute_scores(row, sequence, keys, head);
    compute_weights(row, keys, head);
    drop_weights(row, keys, head);
    write_output(row, sequence, keys, head);
    if (report_noise_ != nullptr) (*report_noise_)(row.b, row.h, row.i, noise(keys, head));
  }

 private:
  static constexpr Real kInfinity = std::numeric_limits<Real>::infinity();

  /// S = scale * (Q K^T), and all that is done to a score, down to -inf where the key is not visible.
  void compute_scores(const RowIndex& row, const core::Sequence& sequence, const VisibleKeys& keys,
                      const KeyValueHead<Real>& head) {
    const auto [b, h, i] = row;
    scores_.assign(static_cast<std::size_t>(head.last - head.first), Real{0});
    Real* const s = scores_.data() - head.first;

    const Strides q = core::strides_of(args_.q);
    const std::int64_t q_at = b * q.batch + (sequence.q_row + i) * q.sequence + h * q.head;
    // The scale goes to q, as in most implementations: the yardstick must not gain from sums of whole numbers being
    // exact.
    Real squares = 0;
    for (std::int64_t e = 0; e < d_; ++e) {
      const Real q_e = scale_ * read(args_.q, q_at + e * q.dim);
      squares += q_e * q_e;
      const Real* const k_e = head.k_dim(e) - head.first;
      for (const auto [from, to] : keys.runs)
        for (std::int64_t j = from; j < to; ++j) s[j] += q_e * k_e[j];
    }

    q_norm_ = std::sqrt(squares);

    const Real cap = static_cast<Real>(args_.soft_cap);
    const core::ScoreStrides bias = core::broadcast_strides(args_.bias);
    const core::SlopeStrides alibi = core::alibi_strides(args_.alibi_slopes);
    const Real slope =
        args_.alibi_slopes.given() ? read(args_.alibi_slopes, b * alibi.batch + h * alibi.head) : Real{0};
    for (const auto [from, to] : keys.runs)
      for (std::int64_t j = from; j < to; ++j) {
        if (cap > 0) s[j] = cap * std::tanh(s[j] / cap);
        if (args_.bias.given()) s[j] += read(args_.bias, bias.at(b, h, i, j));
        if (args_.alibi_slopes.given())
          s[j] -= slope * static_cast<Real>(std::abs(i + sequence.s_k - sequence.s_q - j));
        if (!is_kept(row, j)) s[j] = -kInfinity;
      }
  }

  /// What the boolean mask and the block mask say of key j.
  bool is_kept(const RowIndex& row, std::int64_t j) const {
    const auto kept = [&](const TensorView& mask, std::int64_t mask_i, std::int64_t mask_j) {
      const std::int64_t at = core::broadcast_strides(mask).at(row.b, row.h, mask_i, mask_j);
      return !mask.given() || core::load_raw<std::uint8_t>(mask.data, at) != 0;
    };
    const BlockMask& blocks = args_.block_mask;
    return kept(args_.bool_mask, row.i, j) &&
           (!blocks.keep.given() || kept(blocks.keep, row.i / blocks.block_q, j / blocks.block_k));
  }

  /// P = exp(S - maximum), not yet divided by its sum, and the LSE = maximum + log(sum). A row of which nothing is
  /// visible has no maximum, no weights, and an LSE of -inf.
  void compute_weights(const RowIndex& row, const VisibleKeys& keys, const KeyValueHead<Real>& head) {
    const Real* const s = scores_.data() - head.first;
    weights_.assign(scores_.size(), Real{0});
    Real* const p = weights_.data() - head.first;

    Real sink = -kInfinity;
    if (args_.sink.given()) sink = read(args_.sink, row.h * args_.sink.stride(0));
    Real maximum = sink;
    for (const auto [from, to] : keys.runs)
      for (std::int64_t j = from; j < to; ++j)
        if (s[j] > maximum || std::isnan(s[j])) maximum = s[j];  // a NaN stays

    sum_ = 0;
    lse_ = -kInfinity;
    if (maximum == -kInfinity) return;
    for (const auto [from, to] : keys.runs)
      for (std::int64_t j = from; j < to; ++j) {
        p[j] = std::exp(s[j] - maximum);
        sum_ += p[j];
      }
    if (args_.sink.given()) sum_ += std::exp(sink - maximum);
    lse_ = maximum + std::log(sum_);
  }

  /// P = dropout(P): the entries whose random word is below the threshold are lost, the others grow by 1 / (1 - p).
  void drop_weights(const RowIndex& row, const VisibleKeys& keys, const KeyValueHead<Real>& head) {
    const Dropout& dropout = args_.dropout;
    if (dropout.p == 0) return;
    Real* const p = weights_.data() - head.first;
    const Real growth = static_cast<Real>(1 / (1 - dropout.p));
    for (const auto [from, to] : keys.runs)
      for (std::int64_t j = from; j < to; ++j)
        p[j] = random_word(row, j) >= dropout_threshold(dropout.p) ? p[j] * growth : Real{0};
  }

  std::uint16_t random_word(const RowIndex& row, std::int64_t j) const {
    return dropout_word(args_.dropout.seed, args_.dropout.offset, static_cast<std::uint64_t>(row.b * heads_ + row.h),
                        static_cast<std::uint64_t>(row.i), static_cast<std::uint64_t>(j));
  }

  /// Of every entry of the row, visible or not.
  void write_random_words(const RowIndex& row, const core::Sequence& sequence) const {
    const OutputView& view = args_.dropout.randval;
    const core::ScoreStrides steps = core::broadcast_strides(view);
    for (std::int64_t j = 0; j < sequence.s_k; ++j)
      core::store_raw(view.data, steps.at(row.b, row.h, row.i, j), random_word(row, j));
  }

  /// O = P V, and the LSE. A key that is hidden is skipped, not multiplied by zero: its row of V may hold anything.
  void write_output(const RowIndex& row, const core::Sequence& sequence, const VisibleKeys& keys,
                    const KeyValueHead<Real>& head) {
    const auto [b, h, i] = row;
    const Real* const p = weights_.data() - head.first;
    output_.assign(static_cast<std::size_t>(d_v_), Real{0});
    for (const auto [from, to] : keys.runs)
      for (std::int64_t j = from; j < to; ++j) {
        if (!is_kept(row, j)) continue;
        const Real weight = rounded(p[j]);
        const Real* const v = head.v_row(j);
        for (std::int64_t e = 0; e < d_v_; ++e) output_[static_cast<std::size_t>(e)] += weight * v[e];
      }

    const Strides o = core::strides_of(args_.o);
    const std::int64_t o_at = b * o.batch + (sequence.q_row + i) * o.sequence + h * o.head;
    for (std::int64_t e = 0; e < d_v_; ++e) {
      const Real value = output_[static_cast<std::size_t>(e)];
      core::store(args_.o.data, args_.o.type, o_at + e * o.dim, sum_ == 0 ? value : value / sum_);
    }
    if (args_.lse.given()) {
      const core::LseStrides lse = core::lse_strides(args_.lse);
      const std::int64_t lse_at = b * lse.batch + h * lse.head + (sequence.q_row + i) * lse.row;
      core::store(args_.lse.data, args_.lse.type, lse_at, lse_);
    }
  }

  /// See noise.hpp. Needs the row's output, which is still to be divided by the sum.
  Noise noise(const VisibleKeys& keys, const KeyValueHead<Real>& head) {
    if (!(sum_ > 0)) return {};
    const Real* const s = scores_.data() - head.first;
    const Real* const p = weights_.data() - head.first;
    const auto size = [](Real logit) { return std::min(std::abs(logit), Real{200}); };
    // A weight beside a sink is as good as the sink's logit and its own.
    const Real beside = args_.sink.given() ? size(lse_) : 0;
    // A logit near 0 may be the sum of products that are not: of the size that they have by themselves.
    const Real per_norm = q_norm_ / std::sqrt(static_cast<Real>(d_));
    const auto least_of = [&](std::int64_t j) {
      return beside + std::max(Real{1}, size(per_norm * head.k_norms[static_cast<std::size_t>(j - head.first)]));
    };
    // Below the smallest normal number of f16 (the largest weight is 1) what is lost of a weight grows no smaller.
    const Real smallest =
        args_.q.type == DataType::f16 ? static_cast<Real>(0x1p-14 / (1 - args_.dropout.p)) / sum_ : Real{0};
    const auto elements = static_cast<std::size_t>(d_v_);
    squares_.assign(elements, Real{0});
    distances_.assign(elements, Real{0});
    Real largest = 1 + beside;
    for (const auto [from, to] : keys.runs)
      for (std::int64_t j = from; j < to; ++j) {
        if (s[j] == -kInfinity) continue;
        const Real of_logit = least_of(j) + size(s[j]);
        largest = std::max(largest, of_logit);
        if (p[j] == 0) continue;
        const Real weight = p[j] / sum_, error = weight * of_logit;
        const Real* const v = head.v_row(j);
        const Real common = args_.dropout.p > 0 ? 0 : 1 / sum_;  // of what is dropped there is no difference
        const Real rounded = std::max(weight, smallest);
        for (std::size_t e = 0; e < elements; ++e) squares_[e] += (rounded * v[e]) * (rounded * v[e]);
        for (std::size_t e = 0; e < elements; ++e) distances_[e] += error * std::abs(v[e] - output_[e] * common);
      }
    if (args_.dropout.p > 0)
      for (std::size_t e = 0; e < elements; ++e) distances_[e] += largest * std::abs(output_[e] / sum_);
    const auto largest_of = [](const std::vector<Real>& list) {
      Real most = 0;
      for (const Real each : list) most = each > most ? each : most;  // a column that is no number tells nothing
      return static_cast<double>(most);
    };
    return {std::sqrt(largest_of(squares_)), largest_of(distances_)};
  }

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

  static Real read(const TensorView& view, std::int64_t index) { return KeyValueHead<Real>::read_element(view, index); }

  const ForwardArgs& args_;
  DataType weight_type_;
  const NoiseReport* report_noise_;
  std::int64_t d_, d_v_, heads_;
  Real scale_;

  std::vector<Real> scores_, weights_;  ///< [last - first of the head]
  std::vector<Real> output_;            ///< [d_v]
  std::vector<Real> squares_, distances_;
  Real sum_ = 0, lse_ = 0;
  Real q_norm_ = 0;  ///< the length of the row of Q, times the scale
};

}  // namespace heed::oracle
