#include "cpu/shared_gradients.hpp"

#include "core/float_bits.hpp"

#include <heed/executor.hpp>

#include <algorithm>
#include <array>
#include <cmath>
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

/// dBias as [b|1][h|1][s_q|1][s_k|1].
class BiasGradient {
 public:
  BiasGradient(const dispatch::BackwardCall& call, const BackwardJobs& jobs, const BlockAndRow& scratch)
      : call_(call), jobs_(jobs), scratch_(scratch), steps_(core::broadcast_strides(call.args.dbias)) {
    const OutputView& view = call.args.dbias;
    for (int i = 0; i < view.rank; ++i) sizes_[static_cast<std::size_t>(4 - view.rank + i)] = view.size(i);
  }

  void run() {
    const std::int64_t row_tiles = tiles(sizes_[2]), key_tiles = tiles(sizes_[3]);
    parallel_for(call_.executor, sizes_[0] * sizes_[1] * row_tiles * key_tiles, [&](std::int64_t index, int worker) {
      const std::int64_t key = index % key_tiles * kTile, row = index / key_tiles % row_tiles * kTile;
      const std::int64_t head = index / key_tiles / row_tiles % sizes_[1];
      piece(index / key_tiles / row_tiles / sizes_[1], head, row, key, worker);
    });
  }

 private:
  static constexpr std::int64_t kTile = kBackwardKeys;
  static std::int64_t tiles(std::int64_t size) { return (size + kTile - 1) / kTile; }
  bool own(std::size_t dim) const { return sizes_[dim] != 1; }

  /// Elements (bb, hh, [row, row + kTile), [key, key + kTile)).
  void piece(std::int64_t bb, std::int64_t hh, std::int64_t row, std::int64_t key, int worker) const {
    // A problem with one query or one key has tiles of one element, whether the bias broadcasts or not.
    std::array<std::array<double, kTile>, kTile> sums{};
    auto [block, its_row] = scratch_(worker);
    BackwardPairs pairs;
    const Problem& problem = call_.problem;
    const Range entries = Range::of(own(0), bb, problem.batch()), heads = Range::of(own(1), hh, problem.heads_q());
    for (std::int64_t b = entries.from; b < entries.to; ++b) {
      const core::Sequence sequence = jobs_.sequences()[b];
      const std::int64_t first = own(2) ? row : 0, rows = own(2) ? std::min(row + kTile, sequence.s_q) : sequence.s_q;
      const std::int64_t key_begin = own(3) ? key : 0,
                         key_end = own(3) ? std::min(key + kTile, sequence.s_k) : sequence.s_k;
      for (std::int64_t h = heads.from; h < heads.to; ++h) {
        const BackwardJob job = jobs_.job(b, sequence, h);
        for (std::int64_t j = key_begin; j < key_end; j += kTile) {
          block.pack(job.forward, static_cast<int>(j), static_cast<int>(std::min(j + kTile, key_end)));
          for (std::int64_t i = first; i < rows; ++i) {
            its_row.read(job, i);
            if (!backward_pairs(job, its_row, block, pairs)) continue;
            auto& to = sums[static_cast<std::size_t>(own(2) ? i - row : 0)];
            for (int n = 0; n < block.keys; ++n)
              to[static_cast<std::size_t>(own(3) ? n : 0)] += static_cast<double>(pairs.d_scores[n]);
          }
        }
      }
    }
    const OutputView& view = call_.args.dbias;
    for (std::int64_t i = row; i < std::min(row + kTile, sizes_[2]); ++i)
      for (std::int64_t j = key; j < std::min(key + kTile, sizes_[3]); ++j)
        core::store(view.data, view.type, steps_.at(bb, hh, i, j),
                    static_cast<float>(sums[static_cast<std::size_t>(i - row)][static_cast<std::size_t>(j - key)]));
  }

  const dispatch::BackwardCall& call_;
  const BackwardJobs& jobs_;
  const BlockAndRow& scratch_;
  core::ScoreStrides steps_;
  std::array<std::int64_t, 4> sizes_{1, 1, 1, 1};
};

void write_slope_gradients(const dispatch::BackwardCall& call, const BackwardJobs& jobs, const BlockAndRow& scratch) {
  const Problem& problem = call.problem;
  const OutputView& view = call.args.dslopes;
  const bool per_entry = problem.alibi() == Alibi::per_batch_and_head;
  const std::int64_t heads = problem.heads_q();
  const core::SlopeStrides steps = core::alibi_strides(view);
  parallel_for(call.executor, (per_entry ? problem.batch() : 1) * heads, [&](std::int64_t index, int worker) {
    const std::int64_t h = index % heads;
    const Range entries = Range::of(per_entry, index / heads, problem.batch());
    auto [block, row] = scratch(worker);
    BackwardPairs pairs;
    double sum = 0;
    for (std::int64_t b = entries.from; b < entries.to; ++b) {
      const core::Sequence sequence = jobs.sequences()[b];
      const BackwardJob job = jobs.job(b, sequence, h);
      for (int key = 0; key < job.forward.s_k; key += kBackwardKeys) {
        block.pack(job.forward, key, std::min(key + kBackwardKeys, job.forward.s_k));
        for (std::int64_t i = 0; i < sequence.s_q; ++i) {
          row.read(job, i);
          if (!backward_pairs(job, row, block, pairs)) continue;
          const std::int64_t diagonal = i + sequence.s_k - sequence.s_q;
          for (int n = 0; n < block.keys; ++n)
            sum -= static_cast<double>(pairs.d_scores[n]) * static_cast<double>(std::abs(diagonal - (key + n)));
        }
      }
    }
    core::store(view.data, view.type, entries.from * steps.batch + h * steps.head, static_cast<float>(sum));
  });
}

}  // namespace

void write_bias_and_slope_gradients(const dispatch::BackwardCall& call, const BackwardJobs& jobs,
                                    const BlockAndRow& scratch) {
  if (call.problem.dbias()) BiasGradient(call, jobs, scratch).run();
  if (call.problem.dslopes()) write_slope_gradients(call, jobs, scratch);
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
        const double p =
            std::exp(static_cast<double>(sink) - static_cast<double>(job.forward.lse[i * job.forward.lse_row]));
        sum -= p * static_cast<double>(job.delta[i]);
      }
    }
    core::store(view.data, view.type, h * view.stride(0), static_cast<float>(sum));
  });
}

}  // namespace heed::cpu
