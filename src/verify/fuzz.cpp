#include "verify/fuzz.hpp"

#include <heed/executor.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

namespace heed::verify {
namespace {

using Clock = std::chrono::steady_clock;

/// Cases by number, run by several threads.
class Search {
 public:
  Search(const Target& target, const FuzzOptions& options)
      : target_(target), options_(options), next_(options.first), begin_(Clock::now()) {}

  FuzzResult run() {
    if (options_.jobs <= 1) {
      work(0, target_.executor);
    } else {
      std::vector<std::thread> threads;
      for (int job = 0; job < options_.jobs; ++job)
        threads.emplace_back([this, job] {
          SerialExecutor serial;
          work(job, &serial);
        });
      for (std::thread& each : threads) each.join();
    }
    std::sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) { return a.number < b.number; });
    FuzzResult result;
    result.cases = cases_;
    result.refused = refused_;
    result.target_lost = !found_.empty() && run_case(simplest(options_.operation), target_).device_failed;
    for (const Found& found : found_) {
      if (static_cast<int>(result.failures.size()) >= options_.most_failures && !result.target_lost) break;
      result.failures.push_back(result.target_lost ? FuzzFailure{found.number, found.c, found.c, found.verdict}
                                                   : shrunk(found));
    }
    result.seconds = elapsed();
    return result;
  }

 private:
  struct Found {
    std::int64_t number;
    Case c;
    Verdict verdict;
  };

  double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  bool refused(const Verdict& verdict) const { return options_.may_refuse && verdict.unsupported; }
  bool works(const Case& c) const {
    const Verdict verdict = run_case(c, target_);
    return verdict.valid() || refused(verdict);
  }

  static Case simplest(Operation operation) {
    Case c;
    c.operation = operation;
    c.b = c.h = c.h_k = c.d = c.d_v = 1;
    c.s_q = c.s_k = {1};
    return c;
  }

  /// A failure that does not happen again stays as it was found.
  FuzzFailure shrunk(const Found& found) const {
    const Case small = works(found.c) ? found.c : shrink(found.c, [&](const Case& c) { return !works(c); });
    return {found.number, found.c, small, small == found.c ? found.verdict : run_case(small, target_)};
  }

  void work(int job, Executor* executor) {
    for (;;) {
      Case c;
      std::int64_t number = 0;
      {
        const std::scoped_lock lock(mutex_);
        const bool late = (options_.seconds > 0 && elapsed() > options_.seconds) || (options_.stop && options_.stop());
        if (late || next_ == options_.first + options_.cases ||
            static_cast<int>(found_.size()) >= options_.most_failures)
          return;
        number = next_++;
        c = random_case(options_.seed, number, options_.operation, options_.kinds);
        if (options_.on_case) options_.on_case(number, c, job);
        ++cases_;
      }
      Verdict verdict = run_case(c, target_, {.executor = executor, .references = options_.references});
      if (verdict.valid()) continue;
      const std::scoped_lock lock(mutex_);
      if (refused(verdict)) {
        ++refused_;
        continue;
      }
      found_.push_back({number, c, std::move(verdict)});
    }
  }

  const Target& target_;
  const FuzzOptions& options_;
  std::mutex mutex_;  // of what follows
  std::int64_t next_, cases_ = 0, refused_ = 0;
  std::vector<Found> found_;
  const Clock::time_point begin_;
};

}  // namespace

std::string FuzzFailure::to_string() const {
  return fmt::format("case {}: {}\n  {}\n  as found: {}", number, verdict.to_string(), shrunk.to_command(),
                     found.to_command());
}

FuzzResult fuzz(const Target& target, const FuzzOptions& options) { return Search(target, options).run(); }

}  // namespace heed::verify
