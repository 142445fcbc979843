// Each adapter is tested where its runtime is at hand: OpenMP if this file is compiled with -fopenmp, TBB if the build
// links it and says so with HEED_TEST_TBB. Not under TSan, which takes runtimes it has not instrumented for races.

#include "executor_checks.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <type_traits>
#include <vector>

#if defined(_OPENMP) && !defined(HEED_UNDER_TSAN)
#define HEED_HAVE_OPENMP 1
#include <heed/executor_openmp.hpp>
#endif
#if defined(HEED_TEST_TBB) && __has_include(<tbb/parallel_for.h>) && !defined(HEED_UNDER_TSAN)
#define HEED_HAVE_TBB 1
#include <heed/executor_tbb.hpp>
#endif

namespace heed {
namespace {

template <class E>
class ExecutorAdapter : public ::testing::Test {};

using Adapters = ::testing::Types<SerialExecutor
#ifdef HEED_HAVE_OPENMP
                                  ,
                                  OpenMpExecutor
#endif
#ifdef HEED_HAVE_TBB
                                  ,
                                  TbbExecutor
#endif
                                  >;
TYPED_TEST_SUITE(ExecutorAdapter, Adapters);

/// With this many threads, where the executor has a say in it.
template <class E>
E executor_of(int threads) {
  if constexpr (std::is_constructible_v<E, int>) {
    return E(threads);
  } else {
    return E();
  }
}

TYPED_TEST(ExecutorAdapter, RunsEveryIndexExactlyOnce) {
  for (const int threads : {0, 1, 2, 4}) {
    TypeParam executor = executor_of<TypeParam>(threads);
    EXPECT_GE(executor.concurrency(), 1);
    for (const std::int64_t count : {0, 1, 2, 3, 100, 10007}) {
      SCOPED_TRACE(testing::Message() << threads << " threads, " << count << " pieces");
      expect_runs_each_index_once(executor, count, 100);
    }
  }
}

TYPED_TEST(ExecutorAdapter, PassesExceptionsOn) {
  TypeParam executor = executor_of<TypeParam>(3);
  for (int round = 0; round < 20; ++round) expect_passes_exceptions_on(executor);
}

TYPED_TEST(ExecutorAdapter, MayBeCalledFromInsideAPiece) {
  TypeParam executor = executor_of<TypeParam>(3);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> wrong{0};
    std::vector<std::atomic<int>> in_use(static_cast<std::size_t>(executor.concurrency()));
    parallel_for(executor, 12, [&](std::int64_t, int worker) {
      if (in_use[static_cast<std::size_t>(worker)].fetch_add(1) != 0) ++wrong;
      expect_runs_each_index_once(executor, 20, 100);
      in_use[static_cast<std::size_t>(worker)].fetch_sub(1);
    });
    EXPECT_EQ(wrong, 0);
  }
}

TYPED_TEST(ExecutorAdapter, MayBeCalledFromSeveralThreadsAtOnce) {
  for (const int threads : {1, 2, 3}) {
    TypeParam executor = executor_of<TypeParam>(threads);
    std::vector<std::thread> callers(4);
    for (std::thread& caller : callers) {
      caller = std::thread([&executor] {
        for (int round = 0; round < 50; ++round) expect_runs_each_index_once(executor, 50, 100);
      });
    }
    for (std::thread& caller : callers) caller.join();
  }
}

}  // namespace
}  // namespace heed
