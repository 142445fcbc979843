#pragma once

#include "heed/timing.hpp"
#include "verify/case.hpp"

#include <optional>
#include <string>
#include <vector>

namespace heed::command {

/// One measured problem.
struct BenchRow {
  std::string label;
  std::string against;  ///< label of the row this one is compared with; empty: none
  verify::Case problem;
  std::string kernel;
  double flops = 0, bytes = 0;  ///< of one run, from visible pairs
  Times times;
  double peak_flops = 0;      ///< f32 FMA peak per second, measured between the runs of this row
  double read_bytes = 0;      ///< read bandwidth per second, likewise; 0: not measured
  std::optional<bool> valid;  ///< nothing: not checked
  double max_error = 0, tolerance = 0;
  std::vector<std::string> not_compared;  ///< gradients that the check says nothing about
  std::optional<double> relative;         ///< rate as a fraction of the rate of `against`

  double rate() const { return times.best() > 0 ? flops / times.best() : 0; }
  double bandwidth() const { return times.best() > 0 ? bytes / times.best() : 0; }
  double of_peak() const { return peak_flops > 0 ? rate() / peak_flops : 0; }
  double of_bandwidth() const { return read_bytes > 0 ? bandwidth() / read_bytes : 0; }
};

struct BenchReport {
  std::string suite;
  std::string command;  ///< what to type to do it again
  std::string engine;   ///< "cpu" or "cuda"
  std::string isa;      ///< the GPU's name for "cuda"
  int threads = 0;
  int rounds = 0;
  double load = 0;  ///< load average before it began: others' work that the figures suffer from
  std::vector<BenchRow> rows;

  bool all_valid() const;
  bool has_relative() const;
  bool has_bandwidth() const;
  bool on_gpu() const { return engine == "cuda"; }
};

/// Fills in `relative` of the rows that name another.
void compare_rows(BenchReport& report);

std::string to_table(const BenchReport& report);
std::string to_markdown(const BenchReport& report);
std::string to_json(const BenchReport& report);

}  // namespace heed::command
