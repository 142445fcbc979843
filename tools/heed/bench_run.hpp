#pragma once

#include "heed/attention_arguments.hpp"
#include "heed/bench_result.hpp"

#include <string>
#include <vector>

namespace heed::command {

/// A problem that is to be measured.
struct BenchProblem {
  std::string label;
  std::string against;
  verify::Case problem;
};

struct BenchOptions {
  Where where;  ///< its engine is the one of every row
  int rounds = 7;
  double seconds = 10;  ///< a row that has taken this long, and two runs, is not run again
  bool check = true;
  bool bandwidth = false;
  bool quick = false;
};

/// Measures them in rounds: every row once, then every row again, with the machine's own peak in between, so that a
/// neighbour's noise falls on all of them alike. Rows that do not fit in memory together take turns in groups.
std::vector<BenchRow> measure(Context& context, const std::vector<BenchProblem>& problems, const BenchOptions& options);

}  // namespace heed::command
