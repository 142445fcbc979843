#pragma once

#include "heed/parallel_compile.hpp"
#include "heed/sweep_space.hpp"
#include "heed/timing.hpp"

#include <heed/executor.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace heed::command {

/// What became of one candidate.
struct SweepRow {
  SweepCandidate candidate;
  CompileOutcome compiled;
  int shared_bytes = 0;                 ///< of a launch; of several the most
  std::optional<std::string> wrong;     ///< checked: empty text when the result was right
  std::map<std::int64_t, Times> times;  ///< by length; the best of the first look have several

  bool failed() const { return wrong && !wrong->empty() && !candidate.inaccurate; }
  bool may_be_timed() const { return compiled.clean() && !failed(); }
  bool may_be_chosen() const { return may_be_timed() && !candidate.inaccurate; }
  std::string status() const;  ///< "ok", "spills 16 bytes", "wrong: ...", "not checked"
};

struct SweepResult {
  SweepClass of;
  std::vector<SweepRow> rows;
  std::map<std::string, int> broken;  ///< combinations that cannot be, by the rule they break

  /// Indices of the rows that were timed at this length, the fastest first.
  std::vector<std::size_t> ranking(std::int64_t s) const;
};

struct SweepOptions {
  std::vector<std::int64_t> lengths;
  bool verify = true;
  int rounds = 7;
  int finalists = 12;  ///< how many of the first look are timed in all rounds
  int threads = 0;     ///< compilations at a time
};

/// Compiles every candidate. No GPU needed.
void compile(SweepResult& result, cuda::Jit& jit, const SweepOptions& options);
/// Checks those that compiled cleanly against the oracle, on a small problem.
void check(SweepResult& result, Executor& executor);
/// Times those that are right: all once, then the fastest in rounds of random order.
void measure(SweepResult& result, std::int64_t s, const SweepOptions& options, Executor& executor);

}  // namespace heed::command
