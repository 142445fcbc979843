#include <heed/executor.hpp>
#include <heed/oracle.hpp>
#include <heed/problem.hpp>

#include "core/backward_args.hpp"
#include "core/dropout_state.hpp"
#include "core/sequences.hpp"
#include "oracle/backward_row.hpp"
#include "oracle/measure.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace heed::oracle {
namespace {

/// Adds terms up as the measure wants them.
template <class Real>
struct Sum {
  Measure measure;
  bool together = false;  ///< the terms have equal errors
  Real operator()(Real sum, Real a, Real b) const {
    if (measure == Measure::gradient) return sum + a * b;
    return together ? sum + std::abs(a * b) : sum + a * b * (a * b);
  }
  Real done(Real sum) const { return measure == Measure::gradient || together ? sum : std::sqrt(sum); }
};

/// Whether rows of a sequence, in `heads` heads, are the same row again: those of dO are where o.sum() is trained.
bool repeats_rows(const TensorView& view, std::int64_t heads) {
  const Strides steps = core::strides_of(view);
  return steps.sequence == 0 || (steps.head == 0 && heads > 1);
}

/// Of a bias along (batch, head, query, key): dimensions are aligned from the right, missing ones have size 1.
using BiasSizes = std::array<std::int64_t, 4>;
BiasSizes sizes_of(const TensorView& bias) {
  BiasSizes sizes{1, 1, 1, 1};
  for (int i = 0; i < bias.rank; ++i) sizes[static_cast<std::size_t>(4 - bias.rank + i)] = bias.size(i);
  return sizes;
}

template <class Real>
class Backward {
 public:
  Backward(const BackwardArgs& given, const BackwardOptions& options, DataType weight_type, Measure measure)
      : problem_(Problem::of(given)), args_(given), options_(options), weight_type_(weight_type), measure_(measure) {
    args_.forward = core::forward_half(given);
    if (measure == Measure::magnitude) {
      // Sums over queries go over a group's heads, too; sums over keys stay in one head.
      const std::int64_t heads_k = problem_.heads_k(), group = heads_k == 0 ? 1 : problem_.heads_q() / heads_k;
      weights_.together = repeats_rows(args_.forward.q, group);
      over_queries_.together = weights_.together || repeats_rows(args_.d_o, group);
      over_keys_.together = repeats_rows(args_.forward.k, 1) || repeats_rows(args_.forward.v, 1);
    }
    args_.forward.dropout = core::with_state_read(args_.forward.dropout);
    bias_sizes_ = sizes_of(args_.dbias);
    own_bias_rows_ = args_.dbias.given() && bias_rows_are_own(problem_, args_.dbias);
  }

  void run() {
    SerialExecutor serial;
    Executor& executor = options_.executor != nullptr ? *options_.executor : serial;
    // Without query heads dk and dv are sums of nothing.
    const std::int64_t heads_k = problem_.heads_k();
    // One key/value head after another on each thread; dsink and dslopes are sums over all of them, and so is a dbias
    // that queries share.
    parallel_for(executor, problem_.batch() * heads_k,
                 [&](std::int64_t index, int) { Worker(*this, index / heads_k, index % heads_k).run(); });
    if (shared_bias().given() || args_.dsink.given() || args_.dslopes.given()) write_shared(heads_k);
  }

 private:
  using Keys = KeySet<Real>;

  /// One batch entry and key/value head.
  class Worker {
   public:
    Worker(Backward& all, std::int64_t b, std::int64_t g)
        : all_(all),
          args_(all.args_),
          b_(b),
          g_(g),
          group_(all.problem_.heads_q() / all.problem_.heads_k()),
          sequence_(core::Sequences(args_.forward)[b]),
          bounds_(args_.forward.mask.bounds(sequence_.s_q, sequence_.s_k)),
          rows_(args_, all.problem_, all.weight_type_, all.measure_) {}

    void run() {
      write_dq();
      write_dk_and_dv();
    }

    /// Calls f(row, gradients) for every row of the group's heads, against all keys, or where only sinks are asked for,
    /// which no key has a part in, against none.
    template <class F>
    void for_all_rows(bool with_keys, F&& f) {
      const Keys keys = with_keys ? all_keys() : Keys{};
      for (std::int64_t h = g_ * group_; h < (g_ + 1) * group_; ++h)
        for (std::int64_t i = 0; i < sequence_.s_q; ++i) {
          row_.read(args_, sequence_, b_, h, i);
          rows_.compute(row_, sequence_, bounds_, keys);
          f(row_, rows_, sequence_);
        }
    }

   private:
    Keys all_keys() const {
      Keys keys;
      keys.keys.resize(static_cast<std::size_t>(sequence_.s_k));
      std::iota(keys.keys.begin(), keys.keys.end(), 0);
      keys.read(args_.forward, b_, g_, sequence_);
      return keys;
    }

    /// dQ = scale * dS K. A hidden key is skipped, not multiplied by zero: its row may hold anything.
    void write_dq() {
      Keys keys;
      const Strides steps = core::strides_of(args_.dq);
      std::vector<Real> dq(static_cast<std::size_t>(all_.problem_.d()));
      for (std::int64_t h = g_ * group_; h < (g_ + 1) * group_; ++h)
        for (std::int64_t i = 0; i < sequence_.s_q; ++i) {
          if (all_.options_.queries && !all_.options_.queries(b_, h, i)) continue;
          if (keys.keys.empty()) keys = all_keys();
          row_.read(args_, sequence_, b_, h, i);
          rows_.compute(row_, sequence_, bounds_, keys);
          for (std::size_t e = 0; e < dq.size(); ++e) {
            const Real* const k = keys.k_dim(static_cast<std::int64_t>(e));
            Real sum = 0;
            for (std::size_t at = 0; at < keys.keys.size(); ++at)
              if (rows_.d_logits[at] != 0) sum = all_.over_keys_(sum, rows_.d_logits[at], k[at]);
            dq[e] = all_.scaled(all_.over_keys_.done(sum));
          }
          all_.store_row(args_.dq, b_ * steps.batch + (sequence_.q_row + i) * steps.sequence + h * steps.head,
                         dq.data(), dq.size());
          if (all_.own_bias_rows_) write_bias_row(h, i);
        }
      if (!all_.own_bias_rows_) return;
      std::fill(rows_.d_scores.begin(), rows_.d_scores.end(), Real{0});
      for (std::int64_t h = g_ * group_; h < (g_ + 1) * group_; ++h)
        for (std::int64_t i = sequence_.s_q; i < all_.bias_sizes_[2]; ++i) write_bias_row(h, i);
    }

    /// dBias of one query, where nobody shares it: the gradient of its scores, and 0 behind them.
    void write_bias_row(std::int64_t h, std::int64_t i) {
      const core::ScoreStrides steps = core::broadcast_strides(args_.dbias);
      const auto found = static_cast<std::int64_t>(rows_.d_scores.size());
      for (std::int64_t j = 0; j < all_.bias_sizes_[3]; ++j) {
        const Real term = j < found ? rows_.d_scores[static_cast<std::size_t>(j)] : Real{0};
        core::store(args_.dbias.data, args_.dbias.type, steps.at(b_, h, i, j),
                    all_.over_queries_.done(all_.over_queries_(Real{0}, term, Real{1})));
      }
    }

    /// dK = scale * dS^T Q and dV = P^T dO, summed over the heads of the group.
    void write_dk_and_dv() {
      Keys keys;
      for (std::int64_t j = 0; j < sequence_.s_k; ++j)
        if (!all_.options_.keys || all_.options_.keys(b_, g_, j)) keys.keys.push_back(j);
      if (keys.keys.empty()) return;
      keys.read(args_.forward, b_, g_, sequence_);
      const auto d = static_cast<std::size_t>(all_.problem_.d()), d_v = static_cast<std::size_t>(all_.problem_.d_v());
      std::vector<Real> dk(keys.keys.size() * d), dv(keys.keys.size() * d_v);
      for (std::int64_t h = g_ * group_; h < (g_ + 1) * group_; ++h)
        for (std::int64_t i = 0; i < sequence_.s_q; ++i) {
          row_.read(args_, sequence_, b_, h, i);
          rows_.compute(row_, sequence_, bounds_, keys);
          for (std::size_t at = 0; at < keys.keys.size(); ++at) {
            if (rows_.d_logits[at] != 0)
              for (std::size_t e = 0; e < d; ++e)
                dk[at * d + e] = all_.over_queries_(dk[at * d + e], rows_.d_logits[at], row_.q[e]);
            if (rows_.weights[at] != 0)
              for (std::size_t e = 0; e < d_v; ++e)
                dv[at * d_v + e] = all_.weights_(dv[at * d_v + e], rows_.weights[at], row_.d_o[e]);
          }
        }
      for (Real& each : dk) each = all_.scaled(all_.over_queries_.done(each));
      for (Real& each : dv) each = all_.weights_.done(each);
      const Strides k_steps = core::strides_of(args_.dk), v_steps = core::strides_of(args_.dv);
      for (std::size_t at = 0; at < keys.keys.size(); ++at) {
        const std::int64_t row = sequence_.k_row + keys.keys[at];
        all_.store_row(args_.dk, b_ * k_steps.batch + row * k_steps.sequence + g_ * k_steps.head, &dk[at * d], d);
        all_.store_row(args_.dv, b_ * v_steps.batch + row * v_steps.sequence + g_ * v_steps.head, &dv[at * d_v], d_v);
      }
    }

    Backward& all_;
    const BackwardArgs& args_;
    std::int64_t b_, g_, group_;
    core::Sequence sequence_;
    MaskBounds bounds_;
    RowGradients<Real> rows_;
    QueryRow<Real> row_;
  };

  Real scaled(Real sum) const {
    const Real scale = static_cast<Real>(problem_.scale());
    return (measure_ == Measure::gradient ? scale : std::abs(scale)) * sum;
  }

  void store_row(const OutputView& view, std::int64_t at, const Real* row, std::size_t n) const {
    const std::int64_t step = core::strides_of(view).dim;
    for (std::size_t e = 0; e < n; ++e)
      core::store(view.data, view.type, at + static_cast<std::int64_t>(e) * step, row[e]);
  }

  /// Sums over rows that may be far apart: on one thread, so that the order is the same every time. Every element of
  /// these outputs is written.
  void write_shared(std::int64_t heads_k) {
    const auto size = [](const OutputView& view) {
      std::size_t n = view.given() ? 1 : 0;
      for (int i = 0; i < view.rank; ++i) n *= static_cast<std::size_t>(view.size(i));
      return n;
    };
    const OutputView dbias = shared_bias();
    std::vector<Real> bias(size(dbias)), sink(size(args_.dsink)), slopes(size(args_.dslopes));
    const core::ScoreStrides bias_steps = core::broadcast_strides(dense(dbias));
    const core::SlopeStrides slope_steps = core::alibi_strides(dense(args_.dslopes));
    for (std::int64_t b = 0; b < problem_.batch(); ++b)
      for (std::int64_t g = 0; g < heads_k; ++g)
        Worker(*this, b, g)
            .for_all_rows(
                dbias.given() || args_.dslopes.given(),
                [&](const QueryRow<Real>& row, const RowGradients<Real>& found, const core::Sequence& sequence) {
                  if (!sink.empty()) add(sink, row.h, found.d_sink, 1);
                  for (std::size_t at = 0; at < found.d_scores.size(); ++at) {
                    const auto j = static_cast<std::int64_t>(at);
                    if (!bias.empty()) add(bias, bias_steps.at(row.b, row.h, row.i, j), found.d_scores[at], 1);
                    if (!slopes.empty())
                      add(slopes, row.b * slope_steps.batch + row.h * slope_steps.head, found.d_scores[at],
                          -static_cast<Real>(std::abs(row.i + sequence.s_k - sequence.s_q - j)));
                  }
                });
    write(dbias, bias);
    write(args_.dsink, sink);
    write(args_.dslopes, slopes);
  }

  /// dBias, unless each of its rows is of one query: those are written with dQ.
  OutputView shared_bias() const { return own_bias_rows_ ? OutputView{} : args_.dbias; }

  void add(std::vector<Real>& sums, std::int64_t at, Real a, Real b) const {
    Real& sum = sums[static_cast<std::size_t>(at)];
    if (a != 0) sum = over_queries_(sum, a, b);
  }

  /// The view's sizes with dense strides.
  static TensorView dense(const TensorView& view) {
    TensorView result = view;
    std::int64_t step = 1;
    for (int i = view.rank; i-- > 0;) {
      result.strides[static_cast<std::size_t>(i)] = step;
      step *= view.size(i);
    }
    return result;
  }

  void write(const OutputView& view, const std::vector<Real>& values) const {
    const TensorView there = dense(view);
    for (std::size_t n = 0; n < values.size(); ++n) {
      std::int64_t rest = static_cast<std::int64_t>(n), at = 0;
      for (int i = 0; i < view.rank; ++i) {
        at += rest / there.stride(i) * view.stride(i);
        rest %= there.stride(i);
      }
      core::store(view.data, view.type, at, over_queries_.done(values[n]));
    }
  }

  const Problem problem_;
  BackwardArgs args_;
  const BackwardOptions& options_;
  DataType weight_type_;
  Measure measure_;
  /// Of the gradients of scores over queries and over keys, and of the weights over queries.
  Sum<Real> over_queries_{measure_}, over_keys_{measure_}, weights_{measure_};
  BiasSizes bias_sizes_{};
  bool own_bias_rows_ = false;
};

}  // namespace

bool bias_rows_are_own(const Problem& problem, const TensorView& dbias) {
  const BiasSizes sizes = sizes_of(dbias);
  return sizes[0] == problem.batch() && sizes[1] == problem.heads_q() && sizes[2] >= problem.s_q() &&
         sizes[3] >= problem.s_k();
}

void backward(const BackwardArgs& args, const BackwardOptions& options) {
  Backward<double>(args, options, f64, Measure::gradient).run();
}

void backward_measure(const BackwardArgs& args, const BackwardOptions& options, Measure measure) {
  Backward<double>(args, options, f64, measure).run();
}

void plain_backward(const BackwardArgs& args, const BackwardOptions& options) {
  const DataType rounded = args.forward.math == Math::accurate ? f32 : args.forward.q.type;
  Backward<float>(args, options, rounded, Measure::gradient).run();
}

}  // namespace heed::oracle
