#include "heed/bench_run.hpp"

#include "cuda/device.hpp"
#include "heed/engines.hpp"
#include "heed/machine.hpp"
#include "heed/peak.hpp"
#include "heed/prepared.hpp"
#include "heed/result_line.hpp"
#include "heed/terminal.hpp"

#include <heed/error.hpp>

#include <algorithm>
#include <cmath>
#include <deque>
#include <fmt/format.h>

namespace heed::command {
namespace {

/// Tensors of the rows that are measured side by side: at most this, and a sixth of what is free (inputs are kept
/// twice).
constexpr double kGroupBytes = 2e9;
/// A run shorter than this is repeated until it is as long: a clock and a fork-join have their own cost.
constexpr double kShortestTiming = 2e-3;
constexpr double kLongRun = 50e-3;
constexpr std::size_t kReadBytes = std::size_t{512} << 20, kQuickReadBytes = std::size_t{32} << 20;

struct Lane {
  Prepared prepared;
  BenchRow row;
  int per_timing = 1;  ///< runs in one timing
  double spent = 0;
};

class Measurement {
 public:
  Measurement(Context& context, const BenchOptions& options, std::size_t rows)
      : context_(context),
        options_(options),
        isa_(isa_in_use(options.where.isa)),
        threads_(context.executor().concurrency()),
        on_cpu_(options.where.engine == EngineChoice::cpu),
        progress_("bench", static_cast<double>(rows) * (options.rounds + 1)) {
    if (on_cpu_ && options.bandwidth) read_.emplace(threads_, options.quick ? kQuickReadBytes : kReadBytes);
  }

  /// Makes the tensors, checks the result, warms up.
  void add(const BenchProblem& problem) {
    show(problem.label);
    try {
      lanes_.push_back({Prepared(context_, options_.where, problem.problem), {}});
    } catch (const UnsupportedError& error) {
      return skip(problem, error.what());
    } catch (const Error& error) {
      if (error.code() == ErrorCode::invalid_argument) throw;
      return skip(problem, error.what());
    }
    Lane& lane = lanes_.back();
    const Work work = lane.prepared.work();
    lane.row.label = problem.label;
    lane.row.against = problem.against;
    lane.row.problem = problem.problem;
    lane.row.kernel = lane.prepared.plan().kernel();
    lane.row.flops = work.flops;
    lane.row.bytes = work.bytes;
    if (options_.check) {
      const verify::Verdict verdict = lane.prepared.check(kCheckQuickly);
      lane.row.valid = verdict.valid();
      lane.row.max_error = verdict.worst().max_error;
      lane.row.tolerance = verdict.worst().allowed;
      lane.row.not_compared = verdict.not_compared;
      if (!verdict.valid()) {
        progress_.clear();
        fmt::print(stderr, "heed: wrong result: {}{}\n  {}\n", problem.problem.to_command(), options_.where.to_words(),
                   verdict.to_string());
      }
    }
    lane.per_timing = runs_per_timing(lane.prepared, lane.prepared.seconds(1), kShortestTiming);
    if (options_.quick) lane.per_timing = 1;
    done_ += 1;
  }

  double bytes() const {
    double sum = 0;
    for (const Lane& lane : lanes_) sum += lane.row.bytes;
    return sum;
  }

  /// Measures what was added, hands over the rows and forgets their tensors.
  void finish(std::vector<BenchRow>& rows) {
    double peak = 0, read = 0;
    for (int round = 0; round < options_.rounds; ++round) {
      for (Lane& lane : lanes_) {
        done_ += 1;
        if (lane.spent > options_.seconds && lane.row.times.count() >= 2) continue;
        show(lane.row.label);
        if (on_cpu_) peak = std::max(peak, fma_peak(isa_, threads_, options_.quick ? 1 : 3));
        if (read_ && round % 2 == 0) read = std::max(read, read_->measure(1));
        time_once(lane);
      }
      if (on_cpu_) peak = std::max(peak, fma_peak(isa_, threads_, options_.quick ? 1 : 3));
    }
    if (!on_cpu_ && options_.bandwidth) read = cuda::devices().front().memory_bytes_per_second;
    for (Lane& lane : lanes_) {
      lane.row.peak_flops = peak;
      lane.row.read_bytes = read;
      rows.push_back(std::move(lane.row));
    }
    lanes_.clear();
  }

 private:
  void time_once(Lane& lane) {
    // The measurement of the peak has put the pool's threads to sleep: a short run would pay for waking them.
    if (on_cpu_ && (lane.row.times.empty() || lane.row.times.best() < kLongRun)) lane.prepared.seconds(1);
    const double seconds = lane.prepared.seconds(lane.per_timing);
    lane.row.times.add(seconds);
    lane.spent += seconds * lane.per_timing;
  }

  void skip(const BenchProblem& problem, const char* reason) {
    progress_.clear();
    fmt::print(stderr, "heed: left out: {}{}\n  {}\n", problem.problem.to_command(), options_.where.to_words(), reason);
    done_ += options_.rounds + 1;
  }

  void show(const std::string& label) { progress_.show(done_, label); }

  Context& context_;
  const BenchOptions& options_;
  std::string isa_;
  int threads_;
  bool on_cpu_;
  std::optional<ReadBandwidth> read_;
  Progress progress_;
  double done_ = 0;
  std::deque<Lane> lanes_;
};

}  // namespace

std::vector<BenchRow> measure(Context& context, const std::vector<BenchProblem>& problems,
                              const BenchOptions& options) {
  std::vector<BenchRow> rows;
  Measurement measurement(context, options, problems.size());
  const double group_bytes = std::min(kGroupBytes, free_memory() / 6);
  for (const BenchProblem& problem : problems) {
    measurement.add(problem);
    if (measurement.bytes() > group_bytes) measurement.finish(rows);
  }
  measurement.finish(rows);
  return rows;
}

}  // namespace heed::command
