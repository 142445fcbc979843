#pragma once

#include <heed/executor.hpp>

#if !__has_include(<tbb/parallel_for.h>)
#error "heed/executor_tbb.hpp needs oneTBB's headers: install them (libtbb-dev), or use heed::ThreadPool."
#endif

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <cstdint>

namespace heed {

/// Runs heed on TBB's threads, in an arena of its own. Link with tbb.
class TbbExecutor final : public Executor {
 public:
  /// threads = 0 or less: as many as TBB would use.
  explicit TbbExecutor(int threads = 0) : arena_(threads > 0 ? threads : tbb::task_arena::automatic) {}

  int concurrency() const noexcept override { return arena_.max_concurrency(); }

  void parallel_for(std::int64_t count, Body body, void* context) override {
    // An arena of one has a second slot for emergencies, so its thread index is no worker number.
    if (count <= 1 || concurrency() == 1) return SerialExecutor().parallel_for(count, body, context);
    arena_.execute([&] {
      tbb::parallel_for(
          std::int64_t{0}, count,
          [&](std::int64_t index) {
            // Isolated: a piece that waits for TBB tasks of its own must not be given another piece meanwhile, because
            // both would have the same worker number.
            tbb::this_task_arena::isolate([&] { body(context, index, tbb::this_task_arena::current_thread_index()); });
          },
          tbb::simple_partitioner());
    });
  }

 private:
  tbb::task_arena arena_;
};

}  // namespace heed
