#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace heed::command {

/// Seconds of repeated runs of the same thing.
class Times {
 public:
  void add(double seconds) { seconds_.insert(std::upper_bound(seconds_.begin(), seconds_.end(), seconds), seconds); }

  /// Each of them is the mean of so many runs in a row.
  int together = 1;

  bool empty() const { return seconds_.empty(); }
  std::size_t count() const { return seconds_.size(); }
  double best() const { return seconds_.empty() ? 0 : seconds_.front(); }
  double worst() const { return seconds_.empty() ? 0 : seconds_.back(); }
  double median() const {
    if (seconds_.empty()) return 0;
    const std::size_t middle = seconds_.size() / 2;
    return seconds_.size() % 2 == 1 ? seconds_[middle] : (seconds_[middle - 1] + seconds_[middle]) / 2;
  }
  /// How far the median is above the best, as a fraction of the best: 0.03 means that the machine cost 3%.
  double spread() const { return seconds_.empty() || best() <= 0 ? 0 : median() / best() - 1; }

 private:
  std::vector<double> seconds_;  // sorted
};

/// Seconds that f() takes.
template <class F>
double seconds_of(F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace heed::command
