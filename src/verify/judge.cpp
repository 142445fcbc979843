#include "verify/judge.hpp"

#include "core/dropout_state.hpp"
#include "core/float_bits.hpp"
#include "core/sequences.hpp"
#include "oracle/noise.hpp"
#include "verify/comparison.hpp"
#include "verify/rows.hpp"

#include <heed/oracle.hpp>
#include <heed/philox.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>

namespace heed::verify {
namespace {

/// With fewer rows than this the largest error of the plain computation is a matter of luck. Where all rows of V are
/// the same it always is: an error of the weights is then a whole step of the output's type, or none. Rows that
/// roundings move far less than others do not count: those that see nothing, and beside large sinks all but the head
/// with the smallest one.
constexpr std::int64_t kEnoughRows = 256;
constexpr double kFarLess = 1.0 / 16;

/// Weights below the smallest normal number of f32 may be lost; dropout makes the rest up to a hundred times as large.
/// What is lost is such a weight times a value.
constexpr double kUnderflow = 1e-34;

/// A row of the outputs: where it is in the engine's tensors, and how many keys it sees.
struct Row {
  std::int64_t b, h, i, index;  ///< index in the dense tensors of the reference
  std::int64_t o_at, lse_at;
  std::int64_t keys;
};

/// What the oracle and the plain computation say, [row][d_v]; only chosen rows are set.
struct Reference {
  std::unique_ptr<double[]> o, lse;
  std::unique_ptr<oracle::Noise[]> noise;
  std::unique_ptr<std::byte[]> plain_o;
  std::unique_ptr<float[]> plain_lse;
  std::size_t rows = 0, o_elements = 0, plain_o_bytes = 0;

  std::size_t bytes() const {
    return o_elements * sizeof(double) + plain_o_bytes +
           rows * (sizeof(double) + sizeof(float) + sizeof(oracle::Noise));
  }
};

/// Rows that see about as many keys.
struct Bucket {
  std::int64_t rows = 0, keys = 0;  ///< rows: those that tell something of its errors
  double plain_error = 0, plain_lse_error = 0, largest = 0, largest_lse = 0;
  oracle::Noise noise;

  /// largest_v: of |V|.
  double allowed(const Case& c, double largest_v) const {
    constexpr double kF32 = 0x1p-24;
    const bool rounds = c.type != DataType::f32 && c.math == Math::fast;
    // An output cannot be better than its weights: where they are rounded to fewer bits than it has, those count.
    const double unit = std::max(rounding_unit(c.o_type()), rounds ? rounding_unit(c.type) : 0);
    // Sums over the keys round at every step, too: the plain computation rounds P V and the sum of P alike.
    const double of_values = 2 * plain_error + (unit + kF32 * std::sqrt(static_cast<double>(keys))) * largest;
    // A logit is a sum of d products, rounded at every step. The plain computation may be spared that: sums of whole
    // numbers are exact.
    const double of_logits = noise.of_logits * 3 * kF32 * std::sqrt(static_cast<double>(c.d));
    // A weight is off by half a unit after rounding; where it happens to need none (one key, equal keys), its
    // exponential and the sum are still no better than such weights ask for.
    const bool by_luck = rows < kEnoughRows || c.distribution == Distribution::const_v;
    const double of_weights =
        noise.of_weights * (!rounds ? 8 * kF32 : rounding_unit(c.type) * (by_luck ? 1.5 : 1.0 / 32));
    return of_values + of_logits + of_weights + kUnderflow * std::max(1.0, largest_v);
  }

  double allowed_lse(const Case& c, double exact) const {
    return 2 * plain_lse_error + 1e-5 * std::max(1.0, std::isfinite(exact) ? std::abs(exact) : 0) +
           3 * 0x1p-24 * std::sqrt(static_cast<double>(c.d)) * std::min(largest_lse, 200.0);
  }
};

class Judge {
 public:
  Judge(const Buffers& buffers, const JudgeOptions& options)
      : buffers_(buffers), case_(buffers.get_case()), args_(buffers.args()), choice_(case_, options.budget) {
    collect_rows();
    const auto compute = [&] { return compute_reference(options.executor); };
    reference_ = options.references == nullptr ? compute()
                                               : options.references->get<Reference>(buffers, options.budget, compute);
  }

  Verdict verdict() {
    result_.rows_checked = static_cast<std::int64_t>(rows_.size());
    result_.rows_total = choice_.total();
    result_.has_lse = args_.lse.given();
    for (const Row& row : rows_) measure_plain(row);
    for (const Row& row : rows_) count_if_it_tells(row);
    if (case_.distribution == Distribution::extreme) largest_v_ = largest_value();
    for (const Row& row : rows_) compare_o(row);
    if (args_.lse.given())
      for (const Row& row : rows_) compare_lse(row);
    if (args_.dropout.randval.given())
      for (const Row& row : rows_) compare_random_words(row);
    for (const std::string& change : buffers_.check_guards()) comparison_.complain(change);
    comparison_.finish();
    return std::move(result_);
  }

 private:
  void collect_rows() {
    const core::Sequences sequences(args_);
    const Strides o = core::strides_of(args_.o);
    const core::LseStrides lse = core::lse_strides(args_.lse);
    for (std::int64_t b = 0; b < case_.b; ++b) {
      const core::Sequence sequence = sequences[b];
      const MaskBounds bounds = args_.mask.bounds(sequence.s_q, sequence.s_k);
      for (std::int64_t h = 0; h < case_.h; ++h)
        for (std::int64_t i = 0; i < sequence.s_q; ++i) {
          if (!choice_.chosen(b, h, i)) continue;
          const std::int64_t physical = sequence.q_row + i;
          const std::int64_t entry = case_.group() ? 0 : b * case_.s_q[0];
          rows_.push_back({b, h, i, (entry + physical) * case_.h + h, b * o.batch + physical * o.sequence + h * o.head,
                           b * lse.batch + h * lse.head + physical * lse.row, bounds.count(i)});
        }
    }
  }

  std::shared_ptr<const Reference> compute_reference(Executor* executor) const {
    const std::int64_t d_v = case_.d_v, h = case_.h;
    const std::int64_t all_rows = case_.group() ? case_.total_q() : case_.b * case_.s_q[0];
    auto result = std::make_shared<Reference>();
    result->rows = static_cast<std::size_t>(all_rows * h);
    result->o_elements = result->rows * static_cast<std::size_t>(d_v);
    result->plain_o_bytes = result->o_elements * static_cast<std::size_t>(bits(args_.o.type) / 8);
    // Not initialised: of a large problem only the chosen rows are ever touched.
    result->o.reset(new double[result->o_elements]);
    result->lse.reset(new double[result->rows]);
    result->noise.reset(new oracle::Noise[result->rows]);
    result->plain_o.reset(new std::byte[result->plain_o_bytes]);
    result->plain_lse.reset(new float[result->rows]);

    const oracle::Options rows{
        .rows = [this](std::int64_t b, std::int64_t head, std::int64_t i) { return choice_.chosen(b, head, i); },
        .executor = executor};
    ForwardArgs args = args_;
    args.dropout.randval = {};
    const auto set_outputs = [&](void* o, DataType o_type, void* lse, DataType lse_type) {
      if (case_.group()) {
        args.o = {o, o_type, {all_rows, h, d_v}};
        args.lse = {lse, lse_type, {h, all_rows}, {1, h}};
      } else {
        args.o = {o, o_type, {case_.b, case_.s_q[0], h, d_v}};
        args.lse = {lse, lse_type, {case_.b, h, case_.s_q[0]}, {case_.s_q[0] * h, 1, h}};
      }
    };
    set_outputs(result->o.get(), f64, result->lse.get(), f64);
    const core::Sequences sequences(args);
    oracle::forward_with_noise(
        args, rows, [&](std::int64_t b, std::int64_t head, std::int64_t i, const oracle::Noise& noise) {
          const std::int64_t row = (case_.group() ? 0 : b * case_.s_q[0]) + sequences[b].q_row + i;
          result->noise[static_cast<std::size_t>(row * h + head)] = noise;
        });
    set_outputs(result->plain_o.get(), args_.o.type, result->plain_lse.get(), f32);
    oracle::plain_forward(args, rows);
    return result;
  }

  Bucket& bucket_of(const Row& row) { return buckets_[std::bit_width(static_cast<std::uint64_t>(row.keys))]; }
  double reference(const Row& row, std::int64_t e) const {
    return reference_->o[static_cast<std::size_t>(row.index * case_.d_v + e)];
  }

  /// Of the numbers in V.
  double largest_value() const {
    const core::Sequences sequences(args_);
    const Strides v = core::strides_of(args_.v);
    double largest = 0;
    for (std::int64_t b = 0; b < case_.b; ++b)
      for (std::int64_t h = 0; h < case_.h_k; ++h)
        for (std::int64_t j = 0; j < sequences[b].s_k; ++j)
          for (std::int64_t e = 0; e < case_.d_v; ++e) {
            const double x =
                std::abs(core::load(args_.v.data, args_.v.type,
                                    b * v.batch + (sequences[b].k_row + j) * v.sequence + h * v.head + e * v.dim));
            if (std::isfinite(x)) largest = std::max(largest, x);
          }
    return largest;
  }

  void measure_plain(const Row& row) {
    Bucket& bucket = bucket_of(row);
    bucket.keys = std::max(bucket.keys, row.keys);
    for (std::int64_t e = 0; e < case_.d_v; ++e) {
      const double exact = reference(row, e);
      const double plain = core::load(reference_->plain_o.get(), args_.o.type, row.index * case_.d_v + e);
      if (!std::isfinite(exact)) continue;
      bucket.largest = std::max(bucket.largest, std::abs(exact));
      if (std::isfinite(plain)) bucket.plain_error = std::max(bucket.plain_error, std::abs(plain - exact));
    }
    const auto index = static_cast<std::size_t>(row.index);
    const double lse = reference_->lse[index], plain_lse = static_cast<double>(reference_->plain_lse[index]);
    if (std::isfinite(lse)) bucket.largest_lse = std::max(bucket.largest_lse, std::abs(lse));
    if (std::isfinite(lse) && std::isfinite(plain_lse))
      bucket.plain_lse_error = std::max(bucket.plain_lse_error, std::abs(plain_lse - lse));
    const oracle::Noise& noise = reference_->noise[index];
    if (std::isfinite(noise.of_weights)) bucket.noise.of_weights = std::max(bucket.noise.of_weights, noise.of_weights);
    if (std::isfinite(noise.of_logits)) bucket.noise.of_logits = std::max(bucket.noise.of_logits, noise.of_logits);
  }

  void count_if_it_tells(const Row& row) {
    Bucket& bucket = bucket_of(row);
    const double noise = reference_->noise[static_cast<std::size_t>(row.index)].of_weights;
    if (noise >= kFarLess * bucket.noise.of_weights) ++bucket.rows;
  }

  void compare_o(const Row& row) {
    const double allowed = bucket_of(row).allowed(case_, largest_v_);
    const Strides steps = core::strides_of(args_.o);
    for (std::int64_t e = 0; e < case_.d_v; ++e) {
      const std::int64_t at = row.o_at + e * steps.dim;
      comparison_.compare("o", result_.o, {row.b, row.h, row.i, e}, reference(row, e), args_.o, at, allowed);
    }
  }

  void compare_lse(const Row& row) {
    const double exact = reference_->lse[static_cast<std::size_t>(row.index)];
    const double allowed = bucket_of(row).allowed_lse(case_, exact);
    comparison_.compare("lse", result_.lse, {row.b, row.h, row.i, -1}, exact, args_.lse, row.lse_at, allowed);
  }

  void compare_random_words(const Row& row) {
    const Dropout dropout = core::with_state_read(args_.dropout);
    const core::ScoreStrides steps = core::broadcast_strides(dropout.randval);
    const auto head = static_cast<std::uint64_t>(row.b * case_.h + row.h);
    for (std::int64_t j = 0; j < case_.logical_k(row.b); ++j) {
      const std::uint16_t exact = dropout_word(dropout.seed, dropout.offset, head, static_cast<std::uint64_t>(row.i),
                                               static_cast<std::uint64_t>(j));
      const auto got = core::load_raw<std::uint16_t>(dropout.randval.data, steps.at(row.b, row.h, row.i, j));
      if (got == exact) continue;
      comparison_.count_wrong();
      return comparison_.complain(
          fmt::format("randval at ({}, {}, {}, {}) is {}, must be {}", row.b, row.h, row.i, j, got, exact));
    }
  }

  const Buffers& buffers_;
  const Case& case_;
  const ForwardArgs& args_;
  RowChoice choice_;
  std::vector<Row> rows_;
  std::shared_ptr<const Reference> reference_;
  std::array<Bucket, 65> buckets_{};
  double largest_v_ = 1;  ///< of |V|, or what is as good where values are no extremes
  Verdict result_;
  Comparison comparison_{result_};
};

}  // namespace

std::string Position::to_string() const {
  return d < 0 ? fmt::format("({}, {}, {})", b, h, i) : fmt::format("({}, {}, {}, {})", b, h, i, d);
}

Distance Verdict::worst() const {
  Distance worst = o;
  for (const auto& [tensor, distance] : gradients)
    if (!worst.compared || distance.max_error * worst.allowed > worst.max_error * distance.allowed) worst = distance;
  return worst;
}

std::string Verdict::to_string() const {
  std::string text;
  for (const auto& [tensor, distance] : gradients)
    if (distance.compared)
      text += fmt::format("{}{} {:.1e} at {}, allowed {:.1e}", text.empty() ? "max error of " : "; ", tensor,
                          distance.max_error, distance.at.to_string(), distance.allowed);
  if (status != Status::refused) {
    if (text.empty())
      text = !o.compared
                 ? "nothing to compare"
                 : fmt::format("max error {:.1e} at {}, allowed {:.1e}", o.max_error, o.at.to_string(), o.allowed);
    if (has_lse)
      text += fmt::format("; lse {:.1e} at {}, allowed {:.1e}", lse.max_error, lse.at.to_string(), lse.allowed);
    if (!not_compared.empty())
      text += fmt::format("; {} not compared, for sums take every row", fmt::join(not_compared, ", "));
    if (!all_rows()) text += fmt::format("; {} of {} rows checked", rows_checked, rows_total);
  }
  for (const std::string& complaint : complaints) text += fmt::format("{}{}", text.empty() ? "" : "\n  ", complaint);
  return text;
}

Verdict judge(const Buffers& buffers, const JudgeOptions& options) {
  return buffers.get_case().backward() ? judge_backward(buffers, options) : Judge(buffers, options).verdict();
}

}  // namespace heed::verify
