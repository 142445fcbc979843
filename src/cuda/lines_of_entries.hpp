#pragma once

#include "core/invalid.hpp"
#include "cuda/kept_text.hpp"
#include "cuda/tuning_record.hpp"
#include "dispatch/wildcard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace heed::cuda {

/// The lines of a pass that a tuning record asks for. `make(entry, what)` is the line for one entry but for its name
/// and its range, or throws Error with `what` in front.
template <class Line, class Make>
std::vector<Line> lines_of_entries(const TuningRecord& record, Operation pass, TunedBy by, const Make& make) {
  const bool forward = pass == Operation::forward;
  std::vector<Line> lines;
  for (const TuningEntry& entry : record.of(pass)) {
    if (entry.sm != 90) continue;
    const std::string name = kernel_name(entry, by), stem = (forward ? "hopper_fwd_" : "hopper_bwd_") + name;
    const std::string what = fmt::format("tuning record, {} entry {}", forward ? "forward" : "backward", name);
    if (std::any_of(lines.begin(), lines.end(), [&](const Line& line) { return line.spec.stem == stem; }))
      throw core::invalid("{}: there are two of them.", what);
    Line line = make(entry, what);
    line.spec.stem = kept(stem);
    line.spec.algorithm.notes = by == TunedBy::user ? "from the user's tuning record" : "tuned";
    line.from_s_k = entry.from_keys;
    line.to_s_k = entry.to_keys.value_or(dispatch::Sizes::kNoLimit);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace heed::cuda
