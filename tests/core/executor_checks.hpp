#pragma once

// What every executor must do, for the tests of heed's own and of the adapters.

#include <heed/executor.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__SANITIZE_THREAD__)
#define HEED_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HEED_UNDER_TSAN 1
#endif
#endif

namespace heed {

/// Every index of the call is run exactly once, and the worker numbers keep what Executor::Body promises.
inline void expect_runs_each_index_once(Executor& executor, std::int64_t count, int work_per_piece = 0) {
  std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
  std::vector<std::atomic<int>> in_use(static_cast<std::size_t>(executor.concurrency()));
  std::atomic<int> wrong_workers{0};
  parallel_for(executor, count, [&](std::int64_t index, int worker) {
    if (worker < 0 || worker >= executor.concurrency()) {
      ++wrong_workers;
      return;
    }
    if (in_use[static_cast<std::size_t>(worker)].fetch_add(1) != 0) ++wrong_workers;
    runs[static_cast<std::size_t>(index)].fetch_add(1, std::memory_order_relaxed);
    for (volatile int i = 0; i < work_per_piece;) i = i + 1;
    in_use[static_cast<std::size_t>(worker)].fetch_sub(1);
  });
  EXPECT_EQ(wrong_workers, 0);
  std::int64_t not_once = 0;
  for (const auto& run : runs) not_once += run.load() != 1;
  EXPECT_EQ(not_once, 0) << "of " << count;
}

/// An exception reaches the caller as it was, pieces not yet begun are skipped (counts up to 2^63 - 1 depend on it),
/// and the executor is as good as new afterwards.
inline void expect_passes_exceptions_on(Executor& executor) {
  std::atomic<int> begun{0};
  std::atomic<int> running{0};
  try {
    parallel_for(executor, INT64_MAX, [&](std::int64_t, int) {
      ++running;
      const bool throws = ++begun >= 100;
      --running;
      if (throws) throw std::runtime_error("a piece of bad luck");
    });
    ADD_FAILURE() << "the exception was lost";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "a piece of bad luck");
  }
  EXPECT_EQ(running, 0);
  EXPECT_GE(begun, 100);
  expect_runs_each_index_once(executor, 100);
}

}  // namespace heed
