#pragma once

#include "heed/sweep_report.hpp"

#include <string>

namespace heed::command {

/// The files of a sweep. What is wrong with them is found before anything is measured, and they are written again after
/// each class: an error in a later one leaves what those before it gave.
class SweepOutput {
 public:
  struct Paths {
    std::string json, md;  ///< empty: not wanted
    std::string record;    ///< empty: the user's own; "none": not wanted
  };

  /// Reads the record that is to be written, whose entries for other classes stay. Throws Error where it cannot be
  /// read, UsageError where a file cannot be written.
  explicit SweepOutput(Paths paths);

  void write(const SweepReport& report) const;

  /// Where the tuning record goes; empty: nowhere.
  const std::string& record_path() const { return paths_.record; }

 private:
  Paths paths_;
  cuda::TuningRecord older_;
};

}  // namespace heed::command
