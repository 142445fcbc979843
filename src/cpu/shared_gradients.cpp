#include "cpu/shared_gradients.hpp"

#include "core/float_bits.hpp"

#include <heed/executor.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

namespace heed::cpu {
namespace {

/// Indices of one dimension that share an element: all of them, or one.
struct Range {
  std::int64_t from, to;
  static Range of(bool own, std::int64_t index, std::int64_t size) {
    return own ? Range{index, std::min(index + 1, size)} : Range{0, size};
  }
};

constexpr std::int64_t kRowsAtOnce = 4;  // a divisor of every strip
using Rows = std::array<std::array<float, kBackwardChunk>, kRowsAtOnce>;

/// The gradients of the scores of some batch entries and heads, rows and keys, added up into one array [keys][strip]:
/// rows of all strips in the lanes of one, and keys of all chunks in the rows of one.
class ScoreSum {
 public:
  ScoreSum(const dispatch::BackwardCall& call, const BackwardJobs& jobs, const ScoreGradients& scores, int worker,
           std::int64_t keys_at_once)
      : jobs_(jobs),
        unit_(*scores.unit),
        strip_(scores.strip),
        keys_at_once_(keys_at_once),
        group_(call.problem.heads_q() / std::max<std::int64_t>(1, call.problem.heads_k())),
        scratch_(scores.scratch(worker)),
        sums_(scores.sums(worker)) {
    std::fill_n(sums_, keys_at_once_ * strip_, 0.0);
  }

  void add(std::int64_t b, Range heads, Range rows, Range keys, bool by_distance) const {
    const core::Sequence sequence = jobs_.sequences()[b];
    const Range their_keys{keys.from, std::min(keys.to, sequence.s_k)};
    const std::int64_t last_row = std::min(rows.to, sequence.s_q);
    for (std::int64_t h = heads.from; h < heads.to; ++h) {
      const BackwardJob job = jobs_.job(b, sequence, h);
      for (std::int64_t first = their_keys.from; first < their_keys.to; first += keys_at_once_) {
        const auto chunk = static_cast<std::int32_t>(first),
                   count = static_cast<std::int32_t>(std::min(keys_at_once_, their_keys.to - first));
        const bool still_there = h != heads.from && h % group_ != 0 && their_keys.to - their_keys.from <= keys_at_once_;
        if (!still_there) unit_.take_keys(job, chunk, count, scratch_);
        for (std::int64_t row = rows.from; row < last_row; row += strip_)
          unit_.add_scores(job, row, static_cast<std::int32_t>(std::min(strip_, last_row - row)), chunk, count,
                           {sums_, by_distance}, scratch_);
      }
    }
  }

  /// kRowsAtOnce lanes, each along the keys.
  void read(std::int64_t lane, std::int64_t keys, Rows& values) const {
    for (std::size_t key = 0; key < static_cast<std::size_t>(keys); ++key)
      for (std::size_t r = 0; r < kRowsAtOnce; ++r)
        values[r][key] =
            static_cast<float>(sums_[static_cast<std::int64_t>(key) * strip_ + lane + static_cast<std::int64_t>(r)]);
  }

  /// Over these rows of the array and these of its lanes.
  double total(Range keys, Range lanes) const {
    double sum = 0;
    for (std::int64_t key = keys.from; key < keys.to; ++key)
      for (std::int64_t lane = lanes.from; lane < lanes.to; ++lane) sum += sums_[key * strip_ + lane];
    return sum;
  }

 private:
  const BackwardJobs& jobs_;
  const BackwardUnit& unit_;
  const std::int64_t strip_, keys_at_once_, group_;
  void* const scratch_;
  double* const sums_;
};

/// dBias as [b|1][h|1][s_q|1][s_k|1].
class BiasGradient {
 public:
  BiasGradient(const dispatch::BackwardCall& call, const BackwardJobs& jobs, const ScoreGradients& scores)
      : call_(call), jobs_(jobs), scores_(scores), steps_(core::broadcast_strides(call.args.dbias)) {
    const OutputView& view = call.args.dbias;
    for (int i = 0; i < view.rank; ++i) sizes_[static_cast<std::size_t>(4 - view.rank + i)] = view.size(i);
    // Where all queries share an element, a piece goes over all of them, and few keys are work enough.
    keys_ = own(2) ? kBackwardChunk : kKeyBlock;
  }

  void run() {
    const std::int64_t row_tiles = tiles(sizes_[2], scores_.strip), key_tiles = tiles(sizes_[3], keys_);
    parallel_for(call_.executor, sizes_[0] * sizes_[1] * row_tiles * key_tiles, [&](std::int64_t index, int worker) {
      const std::int64_t key = index % key_tiles * keys_, row = index / key_tiles % row_tiles * scores_.strip;
      const std::int64_t head = index / key_tiles / row_tiles % sizes_[1];
      piece(index / key_tiles / row_tiles / sizes_[1], head, row, key, worker);
    });
  }

 private:
  static std::int64_t tiles(std::int64_t size, std::int64_t tile) { return (size + tile - 1) / tile; }
  /// A dimension of one element is summed over: there may be more than one index behind it.
  bool own(std::size_t dim) const { return sizes_[dim] != 1; }

  /// Elements (bb, hh, [row, row + strip), [key, key + keys_)).
  void piece(std::int64_t bb, std::int64_t hh, std::int64_t row, std::int64_t key, int worker) const {
    const Problem& problem = call_.problem;
    const Range entries = Range::of(own(0), bb, problem.batch()), heads = Range::of(own(1), hh, problem.heads_q());
    const Range rows = own(2) ? Range{row, row + scores_.strip} : Range{0, problem.s_q()};
    const Range keys = own(3) ? Range{key, key + keys_} : Range{0, problem.s_k()};
    const ScoreSum sum(call_, jobs_, scores_, worker, keys_);
    for (std::int64_t b = entries.from; b < entries.to; ++b) sum.add(b, heads, rows, keys, /*by_distance=*/false);
    const OutputView& view = call_.args.dbias;
    const std::int64_t rows_end = std::min(row + scores_.strip, sizes_[2]), keys_end = std::min(key + keys_, sizes_[3]);
    if (own(2) && own(3)) {
      for (std::int64_t i = row; i < rows_end; i += kRowsAtOnce) {
        Rows values;
        sum.read(i - row, keys_end - key, values);
        for (std::int64_t r = 0; r < std::min(kRowsAtOnce, rows_end - i); ++r)
          store_row(steps_.at(bb, hh, i + r, key), values[static_cast<std::size_t>(r)].data(), keys_end - key);
      }
      return;
    }
    for (std::int64_t i = row; i < rows_end; ++i)
      for (std::int64_t j = key; j < keys_end; ++j)
        core::store(view.data, view.type, steps_.at(bb, hh, i, j),
                    static_cast<float>(
                        sum.total(Range::of(own(3), j - key, keys_), Range::of(own(2), i - row, scores_.strip))));
  }

  void store_row(std::int64_t at, const float* values, std::int64_t count) const {
    const OutputView& view = call_.args.dbias;
    if (view.type == DataType::f32 && steps_.key == 1) {
      std::memcpy(static_cast<std::byte*>(view.data) + at * std::int64_t{sizeof(float)}, values,
                  static_cast<std::size_t>(count) * sizeof(float));
      return;
    }
    for (std::int64_t j = 0; j < count; ++j) core::store(view.data, view.type, at + j * steps_.key, values[j]);
  }

  const dispatch::BackwardCall& call_;
  const BackwardJobs& jobs_;
  const ScoreGradients& scores_;
  core::ScoreStrides steps_;
  std::array<std::int64_t, 4> sizes_{1, 1, 1, 1};
  std::int64_t keys_ = 0;  ///< of a piece
};

void write_slope_gradients(const dispatch::BackwardCall& call, const BackwardJobs& jobs, const ScoreGradients& scores) {
  const Problem& problem = call.problem;
  const OutputView& view = call.args.dslopes;
  const bool per_entry = problem.alibi() == Alibi::per_batch_and_head;
  const std::int64_t heads = problem.heads_q();
  const core::SlopeStrides steps = core::alibi_strides(view);
  parallel_for(call.executor, (per_entry ? problem.batch() : 1) * heads, [&](std::int64_t index, int worker) {
    const std::int64_t h = index % heads;
    const Range entries = Range::of(per_entry, index / heads, problem.batch());
    const ScoreSum sum(call, jobs, scores, worker, kBackwardChunk);
    for (std::int64_t b = entries.from; b < entries.to; ++b)
      sum.add(b, {h, h + 1}, {0, problem.s_q()}, {0, problem.s_k()}, /*by_distance=*/true);
    core::store(view.data, view.type, entries.from * steps.batch + h * steps.head,
                static_cast<float>(-sum.total({0, kBackwardChunk}, {0, scores.strip})));
  });
}

}  // namespace

void write_bias_and_slope_gradients(const dispatch::BackwardCall& call, const BackwardJobs& jobs,
                                    const ScoreGradients& scores) {
  if (call.problem.dbias()) BiasGradient(call, jobs, scores).run();
  if (call.problem.dslopes()) write_slope_gradients(call, jobs, scores);
}

void write_sink_gradient(const dispatch::BackwardCall& call, const BackwardJobs& jobs) {
  const OutputView& view = call.args.dsink;
  parallel_for(call.executor, call.problem.heads_q(), [&](std::int64_t h, int) {
    const float sink = core::load_f32(call.args.forward.sink.data, DataType::f32, h * call.args.forward.sink.stride(0));
    double sum = 0;
    // A sink of -inf is none, also where it is all there is.
    for (std::int64_t b = 0; b < call.problem.batch() && sink != -std::numeric_limits<float>::infinity(); ++b) {
      const core::Sequence sequence = jobs.sequences()[b];
      const BackwardJob job = jobs.job(b, sequence, h);
      for (std::int64_t i = 0; i < sequence.s_q; ++i) {
        const float lse = job.forward.lse[i * job.forward.lse_row];
        // Not this library's, then: beside a sink no row is without a sum.
        if (lse == -std::numeric_limits<float>::infinity()) continue;
        sum -= std::exp(static_cast<double>(sink) - static_cast<double>(lse)) * static_cast<double>(job.delta[i]);
      }
    }
    core::store(view.data, view.type, h * view.stride(0), static_cast<float>(sum));
  });
}

}  // namespace heed::cpu
