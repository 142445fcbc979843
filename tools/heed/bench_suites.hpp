#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed::command {

/// One problem of a suite, as the arguments of `heed fwd` that pose it.
struct SuiteRow {
  std::string label;
  std::string arguments;
  std::string against = {};  ///< label of the row whose rate this one's is compared with; empty: none
};

struct Suite {
  std::string_view name;
  std::string_view summary;
  std::vector<SuiteRow> (*rows)();
  bool reads_memory = false;  ///< limited by reading K and V: compared with the read bandwidth, too
};

std::span<const Suite> suites();

/// Suites that change one size of a problem the caller may describe; -key and its values.
struct Sweep {
  std::string_view name;
  std::string_view summary;
  std::string_view key;
  std::vector<int> values;
};

std::span<const Sweep> sweeps();
/// The problem a sweep begins with.
inline constexpr std::string_view kSweepProblem = "-b=1 -h=8 -s=2048 -d=128 -prec=fp32";

}  // namespace heed::command
