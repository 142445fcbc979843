#pragma once

#include <heed/executor.hpp>

#ifndef _OPENMP
#error \
    "heed/executor_openmp.hpp needs OpenMP: compile this file with -fopenmp, or use heed::ThreadPool, which does not."
#endif

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>

namespace heed {

/// Runs heed on the OpenMP runtime this file is compiled for, in an application that keeps that runtime's threads busy
/// anyway. What that runtime cannot do it cannot do here either: libgomp, for one, hangs in the child of a fork.
class OpenMpExecutor final : public Executor {
 public:
  /// threads = 0 or less: as many as the runtime would use (OMP_NUM_THREADS, omp_set_num_threads).
  explicit OpenMpExecutor(int threads = 0) : threads_(threads > 0 ? threads : omp_get_max_threads()) {}

  int concurrency() const noexcept override { return threads_; }

  void parallel_for(std::int64_t count, Body body, void* context) override {
    if (count <= 0) return;
    const auto end = static_cast<std::uint64_t>(count);
    const auto team = static_cast<int>(std::min<std::uint64_t>(end, static_cast<std::uint64_t>(threads_)));
    std::atomic<std::uint64_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error;
    // A counter of our own instead of a worksharing loop: an exception may not leave the region, nor end such a loop.
#pragma omp parallel num_threads(team) default(shared)
    for (std::uint64_t index; (index = next.fetch_add(1, std::memory_order_relaxed)) < end;) {
      try {
        body(context, static_cast<std::int64_t>(index), omp_get_thread_num());
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
        next.store(end, std::memory_order_relaxed);
      }
    }
    if (error) std::rethrow_exception(error);
  }

 private:
  int threads_;
};

}  // namespace heed
