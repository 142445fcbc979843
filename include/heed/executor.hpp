#pragma once

#include <heed/export.h>

#include <cstdint>
#include <memory>

namespace heed {

/// Runs the pieces of one call on whatever threads the caller wants.
///
/// heed never starts threads behind the caller's back: a call uses the executor it is given. heed::ThreadPool and
/// heed::SerialExecutor are below, adapters for OpenMP and TBB in executor_openmp.hpp and executor_tbb.hpp, and a pool
/// of your own is two functions away:
///
///   class MyExecutor final : public heed::Executor {
///    public:
///     int concurrency() const noexcept override { return pool_.size(); }
///     void parallel_for(std::int64_t count, Body body, void* context) override {
///       pool_.run_and_wait(count, [=](std::int64_t index, int thread) { body(context, index, thread); });
///     }
///   };
///
/// What heed computes never depends on how many threads there are, nor on which of them runs which piece.
class HEED_API Executor {
 public:
  /// Called once for every index. `worker` is in [0, concurrency()), and no two pieces of the same call with the same
  /// worker number run at the same time: it may select scratch memory that belongs to the call. It may not select
  /// memory that outlives it, because two calls running side by side use the same numbers.
  using Body = void (*)(void* context, std::int64_t index, int worker);

  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor();

  /// The most pieces that ever run at the same time in one call.
  virtual int concurrency() const noexcept = 0;

  /// Calls body(context, index, worker) for each index in [0, count), in any order, and returns when all have returned.
  /// If some throw, one of their exceptions reaches the caller once no piece is running; pieces not yet begun are
  /// skipped.
  virtual void parallel_for(std::int64_t count, Body body, void* context) = 0;
};

/// Calls f(index, worker) for each index in [0, count). See Executor::Body for what `worker` is good for.
template <class F>
void parallel_for(Executor& executor, std::int64_t count, F&& f) {
  auto call = [&f](std::int64_t index, int worker) { f(index, worker); };
  using Call = decltype(call);
  executor.parallel_for(
      count, [](void* context, std::int64_t index, int worker) { (*static_cast<Call*>(context))(index, worker); },
      &call);
}

/// heed's own fork-join pool: the calling thread is worker 0 and works too, the others are started by the first call
/// that has a use for them, and wait between calls without using the processor for longer than some 30 microseconds.
///
/// - Any number of threads may call it at once; their calls take turns.
/// - A call made from inside a piece never waits for its turn: from one of this pool's own pieces, or while the pool is
///   busy, it runs serially on that thread, as worker 0 of a call of its own.
/// - After fork() the child may use or destroy its copy at once, whatever other threads of the parent were doing: it
///   starts threads of its own. Only a piece that itself forks must end the child before the piece returns.
/// - Threads are not pinned, and are joined by the destructor.
class HEED_API ThreadPool final : public Executor {
 public:
  static constexpr int kMaxThreads = 4096;

  /// threads counts the calling one; 0: as many as usable_threads() says. Throws Error if it is out of range.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool() override;

  int concurrency() const noexcept override;
  void parallel_for(std::int64_t count, Body body, void* context) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Runs everything on the calling thread.
class HEED_API SerialExecutor final : public Executor {
 public:
  SerialExecutor();
  ~SerialExecutor() override;

  int concurrency() const noexcept override;
  void parallel_for(std::int64_t count, Body body, void* context) override;
};

/// How many threads this process may use: the environment variable HEED_NUM_THREADS if it is set and not empty,
/// otherwise the processors in the affinity mask of the calling thread or the cgroup's processor quota (v1 or v2,
/// rounded up), whichever is less. Throws Error if HEED_NUM_THREADS is not a number in [1, ThreadPool::kMaxThreads].
HEED_API int usable_threads();

}  // namespace heed
