#include "core/sequences.hpp"
#include "oracle/measure.hpp"
#include "verify/comparison.hpp"
#include "verify/judge.hpp"
#include "verify/rows.hpp"

#include "core/float_bits.hpp"

#include <heed/oracle.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <vector>

namespace heed::verify {
namespace {

/// Gradients below the smallest normal numbers of f32, where P or dS vanish, may be lost.
constexpr double kUnderflow = 1e-32;

/// What a budget counts is a tenth of what gradients cost: two sweeps, the sizes of their terms, and the plain ones.
constexpr double kCostOfGradients = 10;

/// One gradient four times, each dense in the order of its view: exact, plain, and the two measures.
struct Reference {
  std::unique_ptr<double[]> exact, magnitude, spread;
  std::unique_ptr<std::byte[]> plain;
  DataType plain_type = DataType::f32;
  std::size_t elements = 0;

  /// Not initialised: of a large problem only the chosen rows are ever touched.
  void make(const TensorView& view) {
    elements = view.given() ? 1 : 0;
    for (int i = 0; i < view.rank; ++i) elements *= static_cast<std::size_t>(view.size(i));
    for (auto* values : {&exact, &magnitude, &spread}) values->reset(new double[elements]);
    plain_type = view.type;
    plain.reset(new std::byte[plain_bytes()]);
  }
  std::size_t plain_bytes() const { return elements * static_cast<std::size_t>(bits(plain_type) / 8); }
  std::size_t bytes() const { return 3 * elements * sizeof(double) + plain_bytes(); }
};

struct References {
  Reference dq, dk, dv, dbias, dsink, dslopes;

  std::size_t bytes() const {
    return dq.bytes() + dk.bytes() + dv.bytes() + dbias.bytes() + dsink.bytes() + dslopes.bytes();
  }
};

/// Elements that sum up about as many terms.
struct Bucket {
  double plain_error = 0, largest = 0, spread = 0;
};

/// A row of a gradient.
struct Row {
  Position first;              ///< of its first element
  std::int64_t at, reference;  ///< where that is in the engine's tensor, and in the dense ones
  std::int64_t terms;
};

class BackwardJudge {
 public:
  BackwardJudge(const Buffers& buffers, const JudgeOptions& options)
      : buffers_(buffers),
        case_(buffers.get_case()),
        args_(buffers.backward_args()),
        queries_(case_, options.budget / kCostOfGradients, RowChoice::Side::queries),
        keys_(case_, options.budget / kCostOfGradients, RowChoice::Side::keys),
        own_bias_rows_(args_.dbias.given() && oracle::bias_rows_are_own(Problem::of(args_), args_.dbias)) {
    const auto compute_them = [&] { return compute(options.executor); };
    references_ = options.references == nullptr
                      ? compute_them()
                      : options.references->get<References>(buffers, options.budget, compute_them);
  }

  Verdict verdict() {
    judge_operands();
    if (args_.dbias.given()) queries_.all() || own_bias_rows_ ? judge_bias() : leave_out("dbias");
    if (args_.dslopes.given()) queries_.all() ? judge_slopes() : leave_out("dslopes");
    if (args_.dsink.given()) judge_sink();
    for (const std::string& change : buffers_.check_guards()) comparison_.complain(change);
    comparison_.finish();
    result_.rows_total = queries_.total() + keys_.total();
    return std::move(result_);
  }

 private:
  std::shared_ptr<const References> compute(Executor* executor) const {
    const oracle::BackwardOptions rows{
        .queries = [this](std::int64_t b, std::int64_t h, std::int64_t i) { return queries_.chosen(b, h, i); },
        .keys = [this](std::int64_t b, std::int64_t g, std::int64_t j) { return keys_.chosen(b, g, j); },
        .executor = executor};
    BackwardArgs args = args_;
    // A sink's takes no key, and so all rows at little cost.
    if (!queries_.all()) args.dslopes = {};
    if (!queries_.all() && !own_bias_rows_) args.dbias = {};
    auto result = std::make_shared<References>();
    const std::array<std::pair<OutputView*, Reference*>, 6> outputs{{{&args.dq, &result->dq},
                                                                     {&args.dk, &result->dk},
                                                                     {&args.dv, &result->dv},
                                                                     {&args.dbias, &result->dbias},
                                                                     {&args.dsink, &result->dsink},
                                                                     {&args.dslopes, &result->dslopes}}};
    for (const auto& [view, reference] : outputs) reference->make(*view);
    const auto point_to = [&](auto memory, auto type) {
      for (const auto& [view, reference] : outputs) {
        if (!view->given()) continue;
        view->data = memory(*reference);
        view->type = type(*reference);
        make_dense(*view);
      }
    };
    const auto wide = [](const Reference&) { return DataType::f64; };
    point_to([](Reference& r) { return r.exact.get(); }, wide);
    oracle::backward(args, rows);
    point_to([](Reference& r) { return r.magnitude.get(); }, wide);
    oracle::backward_measure(args, rows, oracle::Measure::magnitude);
    point_to([](Reference& r) { return r.spread.get(); }, wide);
    oracle::backward_measure(args, rows, oracle::Measure::spread);
    point_to([](Reference& r) { return r.plain.get(); }, [](const Reference& r) { return r.plain_type; });
    oracle::plain_backward(args, rows);
    return result;
  }

  static void make_dense(OutputView& view) {
    std::int64_t step = 1;
    for (int i = view.rank; i-- > 0;) {
      view.strides[static_cast<std::size_t>(i)] = step;
      step *= view.size(i);
    }
  }

  /// No score is larger: |scale| |q| |k|, of rows that are numbers.
  double largest_score(const core::Sequences& sequences) const {
    const auto largest_norm = [&](const TensorView& view, std::int64_t b, std::int64_t heads, std::int64_t first,
                                  std::int64_t rows) {
      const Strides s = core::strides_of(view);
      double largest = 0;
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = first; i < first + rows; ++i) {
          double sum = 0;
          for (std::int64_t e = 0; e < case_.d; ++e) {
            const double x = core::load(view.data, view.type, b * s.batch + i * s.sequence + h * s.head + e * s.dim);
            sum += x * x;
          }
          if (std::isfinite(sum)) largest = std::max(largest, sum);
        }
      return std::sqrt(largest);
    };
    const double scale = std::abs(Problem::of(args_.forward).scale());
    double largest = 0;
    for (std::int64_t b = 0; b < case_.b; ++b) {
      const core::Sequence sequence = sequences[b];
      const double q = largest_norm(args_.forward.q, b, case_.h, sequence.q_row, sequence.s_q);
      largest =
          std::max(largest, scale * q * largest_norm(args_.forward.k, b, case_.h_k, sequence.k_row, sequence.s_k));
    }
    return largest;
  }

  /// dq by its queries; dk and dv by their keys.
  void judge_operands() {
    const core::Sequences sequences(args_.forward);
    // A sink may hold the LSE up while all scores are far below it: then it is their rounding that all weights share.
    if (args_.forward.sink.given()) largest_lse_ = std::min(largest_score(sequences), kMostLse);
    const TensorView lse = args_.forward.lse;
    const core::LseStrides lse_steps = core::lse_strides(lse);
    const std::int64_t group = case_.h_k == 0 ? 0 : case_.h / case_.h_k;
    std::vector<Row> dq, dk, dv;
    for (std::int64_t b = 0; b < case_.b; ++b) {
      const core::Sequence sequence = sequences[b];
      const MaskBounds bounds = args_.forward.mask.bounds(sequence.s_q, sequence.s_k);
      const auto add = [&](std::vector<Row>& rows, const OutputView& view, std::int64_t heads, std::int64_t h,
                           std::int64_t first, std::int64_t row, std::int64_t all_rows, std::int64_t terms) {
        const Strides s = core::strides_of(view);
        const std::int64_t physical = first + row, entry = case_.group() ? 0 : b * all_rows;
        rows.push_back({{b, h, row, 0},
                        b * s.batch + physical * s.sequence + h * s.head,
                        ((entry + physical) * heads + h) * view.size(view.rank - 1),
                        terms});
      };
      for (std::int64_t h = 0; h < case_.h; ++h)
        for (std::int64_t i = 0; i < sequence.s_q; ++i) {
          const double its_lse = core::load(
              lse.data, lse.type, b * lse_steps.batch + h * lse_steps.head + (sequence.q_row + i) * lse_steps.row);
          if (std::isfinite(its_lse)) largest_lse_ = std::max(largest_lse_, std::min(std::abs(its_lse), kMostLse));
          if (queries_.chosen(b, h, i)) add(dq, args_.dq, case_.h, h, sequence.q_row, i, case_.s_q[0], bounds.count(i));
        }
      const std::vector<std::int64_t> seen = queries_that_see(bounds, sequence);
      for (std::int64_t g = 0; g < case_.h_k; ++g)
        for (std::int64_t j = 0; j < sequence.s_k; ++j) {
          if (!keys_.chosen(b, g, j)) continue;
          const std::int64_t terms = seen[static_cast<std::size_t>(j)] * group;
          add(dk, args_.dk, case_.h_k, g, sequence.k_row, j, case_.s_k[0], terms);
          add(dv, args_.dv, case_.h_k, g, sequence.k_row, j, case_.s_k[0], terms);
        }
    }
    result_.rows_checked = static_cast<std::int64_t>(dq.size() + dk.size());
    judge_rows("dq", args_.dq, references_->dq, dq, case_.d);
    judge_rows("dk", args_.dk, references_->dk, dk, case_.d);
    judge_rows("dv", args_.dv, references_->dv, dv, case_.d_v);
  }

  /// Of each key, how many queries see it.
  static std::vector<std::int64_t> queries_that_see(const MaskBounds& bounds, const core::Sequence& sequence) {
    std::vector<std::int64_t> change(static_cast<std::size_t>(sequence.s_k) + 1, 0);
    const auto add = [&](std::int64_t from, std::int64_t to) {
      if (from >= to) return;
      ++change[static_cast<std::size_t>(from)];
      --change[static_cast<std::size_t>(to)];
    };
    for (std::int64_t i = 0; i < sequence.s_q; ++i) {
      const std::int64_t begin = bounds.begin(i), end = std::max(bounds.end(i), begin);
      add(std::min(begin, sequence.s_k), std::min(end, sequence.s_k));
      add(0, std::min(bounds.sink_end(i), begin));
    }
    for (std::size_t j = 1; j < change.size(); ++j) change[j] += change[j - 1];
    return change;
  }

  void leave_out(const char* gradient) { result_.not_compared.emplace_back(gradient); }

  void judge_bias() {
    const OutputView& view = args_.dbias;
    std::array<std::int64_t, 4> sizes{1, 1, 1, 1};
    for (int i = 0; i < view.rank; ++i) sizes[static_cast<std::size_t>(4 - view.rank + i)] = view.size(i);
    const core::ScoreStrides steps = core::broadcast_strides(view);
    std::vector<Row> rows;
    std::int64_t reference = 0;
    for (std::int64_t b = 0; b < sizes[0]; ++b)
      for (std::int64_t h = 0; h < sizes[1]; ++h)
        for (std::int64_t i = 0; i < sizes[2]; ++i, reference += sizes[3])
          if (queries_.all() || i >= case_.logical_q(b) || queries_.chosen(b, h, i))
            rows.push_back({{b, h, i, 0}, steps.at(b, h, i, 0), reference, 1});
    judge_rows("dbias", view, references_->dbias, rows, sizes[3]);
  }

  void judge_slopes() {
    const OutputView& view = args_.dslopes;
    const core::SlopeStrides steps = core::alibi_strides(view);
    std::vector<Row> rows;
    for (std::int64_t b = 0; b < (view.rank == 2 ? case_.b : 1); ++b)
      for (std::int64_t h = 0; h < case_.h; ++h)
        rows.push_back({{b, h, 0, 0}, b * steps.batch + h * steps.head, b * case_.h + h, 1});
    judge_rows("dslopes", view, references_->dslopes, rows, 1);
  }

  void judge_sink() {
    std::vector<Row> rows;
    for (std::int64_t h = 0; h < case_.h; ++h) rows.push_back({{0, h, 0, 0}, h * args_.dsink.stride(0), h, 1});
    judge_rows("dsink", args_.dsink, references_->dsink, rows, 1);
  }

  void judge_rows(const std::string& name, const OutputView& view, const Reference& reference,
                  const std::vector<Row>& rows, std::int64_t elements) {
    std::array<Bucket, 65> buckets{};
    const auto bucket_of = [&](const Row& row) -> Bucket& {
      return buckets[std::bit_width(static_cast<std::uint64_t>(row.terms))];
    };
    for (const Row& row : rows) {
      Bucket& bucket = bucket_of(row);
      for (std::int64_t e = 0; e < elements; ++e) {
        const auto at = static_cast<std::size_t>(row.reference + e);
        const double exact = reference.exact[at];
        const double plain = core::load(reference.plain.get(), reference.plain_type, row.reference + e);
        if (!std::isfinite(exact)) continue;
        bucket.largest = std::max(bucket.largest, std::abs(exact));
        if (std::isfinite(plain)) bucket.plain_error = std::max(bucket.plain_error, std::abs(plain - exact));
        if (std::isfinite(reference.spread[at])) bucket.spread = std::max(bucket.spread, reference.spread[at]);
      }
    }
    result_.gradients.emplace_back(name, Distance{});
    Distance& distance = result_.gradients.back().second;
    const std::int64_t step = view.rank == 0 ? 0 : view.stride(view.rank - 1);
    const bool column_is_dim = name != "dsink" && name != "dslopes";
    for (const Row& row : rows)
      for (std::int64_t e = 0; e < elements; ++e) {
        Position position = row.first;
        position.d = column_is_dim ? e : -1;
        const auto at = static_cast<std::size_t>(row.reference + e);
        comparison_.compare(
            name, distance, position, reference.exact[at], view, row.at + e * step,
            allowed(name, view.type, bucket_of(row), row, reference.magnitude[at], reference.spread[at]));
      }
  }

  double allowed(const std::string& name, DataType type, const Bucket& bucket, const Row& row, double magnitude,
                 double spread) const {
    constexpr double kF32 = 0x1p-24;
    const double of_values = 3 * bucket.plain_error + rounding_unit(type) * bucket.largest + rounding_at_zero(type);
    // Logits and dP are sums of d and d_v products, rounded at every step; the plain computation may be spared that.
    const double of_logits = 0.5 * kF32 * roundings(case_.d + case_.d_v) * magnitude;
    // A weight is off by half a unit after rounding, in a few terms maybe by more than the plain one's.
    const bool rounds = case_.type != DataType::f32 && case_.math == Math::fast;
    const double of_weights = (rounds ? 1.5 * rounding_unit(case_.type) : 8 * kF32) * spread;
    // What moves all weights together: an LSE in other units is rounded once more, and equal rows have equal errors.
    const double of_lse = kF32 * (2 + 0.5 * roundings(case_.d)) * (1 + largest_lse_) * bucket.largest;
    double of_sums = 0;
    if (name == "dq" && case_.dq_in_16_bits) {
      constexpr double kKeysPerSum = 16;  // an engine may round after every so many keys
      of_sums = rounding_unit(case_.type) * (2 + std::sqrt(static_cast<double>(row.terms) / kKeysPerSum)) *
                (bucket.largest + bucket.spread);
    }
    const double sum = of_values + of_logits + of_weights + of_lse + of_sums + kUnderflow;
    return std::isfinite(sum) ? sum : of_values + kUnderflow;
  }

  /// How many roundings of a sum of so many products are left when most have averaged out. Those of equal elements
  /// do not; nor do those of terms of one sign (products of cosines that are in step have it) in a unit that cuts
  /// instead of rounding, as tensor units do after every eight or sixteen products: by up to twice as much.
  double roundings(std::int64_t products) const {
    const auto all = static_cast<double>(products);
    if (case_.distribution == Distribution::equal) return all;
    const double averaged = std::sqrt(all);
    const bool one_sign = case_.distribution == Distribution::uniform || case_.distribution == Distribution::trig;
    return one_sign ? 1.5 * std::max(averaged, all / 8) : averaged;
  }

  const Buffers& buffers_;
  const Case& case_;
  const BackwardArgs& args_;
  RowChoice queries_, keys_;
  bool own_bias_rows_;  ///< every row of dbias is of one query: it is judged with that
  std::shared_ptr<const References> references_;
  static constexpr double kMostLse = 1000;
  double largest_lse_ = 0;  ///< of |LSE|, or of what is as good
  Verdict result_;
  Comparison comparison_{result_};
};

}  // namespace

Verdict judge_backward(const Buffers& buffers, const JudgeOptions& options) {
  return BackwardJudge(buffers, options).verdict();
}

}  // namespace heed::verify
