#pragma once

#include "cuda/tuning_record.hpp"
#include "heed/sweep_run.hpp"

#include <string>
#include <vector>

namespace heed::command {

struct SweepReport {
  Operation operation;
  std::string command, date;
  std::vector<std::int64_t> lengths;  ///< empty: compiled only
  std::vector<SweepResult> results;
};

/// For the terminal: the `most` fastest of every class and length, or what was compiled with its resources.
std::string to_table(const SweepReport& report, int most);
std::string to_json(const SweepReport& report);
std::string to_markdown(const SweepReport& report);

/// What was fastest, by class and range of lengths: a length stands for all from the one before it on, the last for all
/// beyond it, too. Entries of `older` for other classes stay.
cuda::TuningRecord to_record(const SweepReport& report, const cuda::TuningRecord& older);

}  // namespace heed::command
