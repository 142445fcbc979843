#include <heed/executor.hpp>
#include <heed/oracle.hpp>
#include <heed/problem.hpp>

#include "core/dropout_state.hpp"
#include "core/sequences.hpp"
#include "oracle/head.hpp"
#include "oracle/noise.hpp"
#include "oracle/row.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace heed::oracle {
namespace {

/// The chosen rows of the query heads that share key/value head g, and the keys that any of them sees.
struct Rows {
  std::vector<RowIndex> rows;
  std::int64_t first_key = 0, last_key = 0;

  Rows(const Options& options, const Problem& problem, const core::Sequence& sequence, const MaskBounds& bounds,
       std::int64_t b, std::int64_t g) {
    const std::int64_t group = problem.heads_q() / problem.heads_k();
    first_key = sequence.s_k;
    for (std::int64_t h = g * group; h < (g + 1) * group; ++h)
      for (std::int64_t i = 0; i < sequence.s_q; ++i) {
        if (options.rows && !options.rows(b, h, i)) continue;
        rows.push_back({b, h, i});
        for (const auto [from, to] : VisibleKeys(bounds, i).runs) {
          if (from >= to) continue;
          first_key = std::min(first_key, from);
          last_key = std::max(last_key, to);
        }
      }
    first_key = std::min(first_key, last_key);
  }
};

template <class Real>
void compute(const ForwardArgs& given, const Options& options, DataType weight_type,
             const NoiseReport* report = nullptr) {
  const Problem problem = Problem::of(given);
  ForwardArgs args = given;
  args.dropout = core::with_state_read(given.dropout);
  SerialExecutor serial;
  Executor& executor = options.executor != nullptr ? *options.executor : serial;

  // Room for one head at a time; each worker has scores and weights of its own.
  KeyValueHead<Real> head;
  std::vector<RowComputer<Real>> workers(static_cast<std::size_t>(executor.concurrency()),
                                         RowComputer<Real>(args, problem, weight_type, report));
  const core::Sequences sequences(args);
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    const core::Sequence sequence = sequences[b];
    const MaskBounds bounds = args.mask.bounds(sequence.s_q, sequence.s_k);
    for (std::int64_t g = 0; g < (problem.heads_q() == 0 ? 0 : problem.heads_k()); ++g) {
      const Rows chosen(options, problem, sequence, bounds, b, g);
      if (chosen.rows.empty()) continue;
      head.first = chosen.first_key;
      head.last = chosen.last_key;
      head.read(args, b, g, sequence, executor);

      const auto count = static_cast<std::int64_t>(chosen.rows.size());
      const std::int64_t piece = std::clamp<std::int64_t>(count / (16 * executor.concurrency()), 1, 64);
      parallel_for(executor, (count + piece - 1) / piece, [&](std::int64_t index, int worker) {
        for (std::int64_t r = index * piece; r < std::min((index + 1) * piece, count); ++r)
          workers[static_cast<std::size_t>(worker)].compute(chosen.rows[static_cast<std::size_t>(r)], sequence, bounds,
                                                            head);
      });
    }
  }
}

}  // namespace

void forward(const ForwardArgs& args, const Options& options) { compute<double>(args, options, f64); }

void forward_with_noise(const ForwardArgs& args, const Options& options, const NoiseReport& report) {
  compute<double>(args, options, f64, &report);
}

void plain_forward(const ForwardArgs& args, const Options& options) {
  compute<float>(args, options, args.math == Math::accurate ? f32 : args.q.type);
}

}  // namespace heed::oracle
