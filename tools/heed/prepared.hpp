#pragma once

#include "heed/attention_arguments.hpp"
#include "heed/run_arguments.hpp"
#include "heed/timing.hpp"
#include "verify/buffers.hpp"
#include "verify/judge.hpp"

#include <heed/plan.hpp>
#include <heed/work.hpp>

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>

namespace heed::command {

/// What comparing with the oracle may cost, in multiplications (1e9 are about a second of one core): so that -v=1 is a
/// matter of seconds, and of no time where many problems are run.
inline constexpr double kCheckSeconds = 4e9, kCheckQuickly = 4e8, kCheckAll = std::numeric_limits<double>::infinity();

/// A problem with its tensors, its plan and its workspace: ready to be run again and again.
class Prepared {
 public:
  /// Throws Error, or UnsupportedError when it does not fit in memory.
  Prepared(Context& context, const Where& where, const verify::Case& problem);
  Prepared(Prepared&&) noexcept;
  ~Prepared();

  /// Seconds that one of `runs` runs takes when they follow each other. On a GPU the runs' own clock times them,
  /// without the host's part of a call; the host's clock times what it takes until they are done.
  double seconds(int runs, Clock clock = Clock::engine) const;

  /// Runs once on cleared outputs and compares them with the oracle: all rows if that costs no more than `budget`
  /// multiplications, otherwise a choice of them. `spoiled`: one element of the result is made wrong before, to see
  /// that the comparison finds it.
  verify::Verdict check(double budget, bool spoiled = false) const;

  const Plan& plan() const { return plan_; }
  const verify::Case& problem() const { return buffers_->get_case(); }
  Work work() const { return problem().backward() ? work_of(buffers_->backward_args()) : work_of(buffers_->args()); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  struct OnGpu;

  /// On a GPU it is put on a stream, and not waited for.
  void run() const;

  Context& context_;
  Plan plan_;
  std::unique_ptr<verify::Buffers> buffers_;
  std::unique_ptr<std::byte, Free> workspace_;  ///< in host memory
  std::unique_ptr<OnGpu> gpu_;                  ///< tensors and workspace of a plan that runs there
};

/// Makes the first element of an output wrong. Where there is none, it does nothing.
void spoil(const OutputView& output);

/// Warms up, then times. Where the counts were not asked for, stops early when they would take more than `seconds`.
Times time_runs(const Prepared& prepared, const Run& run, double seconds);

/// How many runs one timing needs to last `shortest` seconds, when one takes `once`.
int runs_per_timing(const Prepared& prepared, double once, double shortest);

}  // namespace heed::command
