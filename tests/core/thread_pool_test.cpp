#include <heed/error.hpp>
#include <heed/executor.hpp>

#include "executor_checks.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace heed {
namespace {

using namespace std::chrono_literals;

std::int64_t sum_of_indexes(Executor& executor, std::int64_t count) {
  std::atomic<std::int64_t> sum{0};
  parallel_for(executor, count, [&](std::int64_t index, int) { sum.fetch_add(index, std::memory_order_relaxed); });
  return sum;
}

/// As many pieces as given, none of which returns before all have begun: each on a thread of its own.
void meet(Executor& executor, int pieces) {
  std::atomic<int> arrived{0};
  parallel_for(executor, pieces, [&](std::int64_t, int) {
    ++arrived;
    while (arrived < pieces) std::this_thread::yield();
  });
}

/// How often each thread of a pool has gone to sleep so far. Waits until all of them sleep.
std::map<std::string, int> sleeps_of_pool_threads() {
  for (;;) {
    std::map<std::string, int> sleeps;
    bool all_sleep = true;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream status(task.path() / "status");
      std::map<std::string, std::string> fields;
      for (std::string name, value; status >> name && std::getline(status >> std::ws, value);) fields[name] = value;
      if (!fields["Name:"].starts_with("heed-")) continue;
      sleeps[task.path().filename()] = std::stoi(fields["voluntary_ctxt_switches:"]);
      all_sleep = all_sleep && fields["State:"].starts_with("S");
    }
    if (all_sleep) return sleeps;
    std::this_thread::sleep_for(1ms);
  }
}

// TSan does not support threads in the child of a process that had several: it confuses them with the parent's.
#ifdef HEED_UNDER_TSAN
constexpr bool kForkedChildMayStartThreads = false;
#else
constexpr bool kForkedChildMayStartThreads = true;
#endif

/// Runs f in a forked child and says how it ended: its result, or -1 if it died or did not end in time.
template <class F>
int result_in_child(F f) {
  const pid_t child = fork();
  if (child == 0) _exit(f());
  for (const auto deadline = std::chrono::steady_clock::now() + 30s; std::chrono::steady_clock::now() < deadline;) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    std::this_thread::sleep_for(1ms);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return -1;
}

TEST(ThreadPool, RunsEveryIndexExactlyOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.concurrency(), threads);
    for (const std::int64_t count : {0, 1, 2, 3, 7, 8, 9, 100, 10007}) {
      SCOPED_TRACE(testing::Message() << threads << " threads, " << count << " pieces");
      expect_runs_each_index_once(pool, count);
    }
  }
}

TEST(ThreadPool, RunsAMillionTinyPieces) {
  ThreadPool pool(4);
  expect_runs_each_index_once(pool, 1'000'000);
}

TEST(ThreadPool, WorkerNumbersAreNeverUsedTwiceAtATime) {
  ThreadPool pool(8);
  for (int round = 0; round < 50; ++round) expect_runs_each_index_once(pool, 64, 2000);
}

TEST(ThreadPool, AllThreadsAreThereWhenThePiecesNeedEachOther) {
  ThreadPool pool(6);
  for (int round = 0; round < 20; ++round) meet(pool, 6);
}

TEST(ThreadPool, NoPieceOrANegativeCountDoesNothing) {
  ThreadPool pool(2);
  parallel_for(pool, 0, [](std::int64_t, int) { FAIL(); });
  parallel_for(pool, -5, [](std::int64_t, int) { FAIL(); });
}

TEST(ThreadPool, ASinglePieceRunsOnTheCallingThread) {
  ThreadPool pool(4);
  parallel_for(pool, 1, [caller = std::this_thread::get_id()](std::int64_t index, int worker) {
    EXPECT_EQ(index, 0);
    EXPECT_EQ(worker, 0);
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
}

TEST(ThreadPool, WorkerZeroIsTheCallingThreadAndNobodyElse) {
  ThreadPool pool(4);
  std::atomic<int> wrong{0};
  parallel_for(pool, 1000, [&, caller = std::this_thread::get_id()](std::int64_t, int worker) {
    if ((worker == 0) != (std::this_thread::get_id() == caller)) ++wrong;
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, StartsAndWakesNoMoreThreadsThanThePiecesKeepBusy) {
  ThreadPool pool(8);
  EXPECT_EQ(sum_of_indexes(pool, 3), 3);
  EXPECT_LE(sleeps_of_pool_threads().size(), 2u);
  meet(pool, 8);
  const auto before = sleeps_of_pool_threads();
  ASSERT_EQ(before.size(), 7u);
  EXPECT_EQ(sum_of_indexes(pool, 3), 3);
  const auto after = sleeps_of_pool_threads();
  EXPECT_LE(
      std::count_if(before.begin(), before.end(), [&](const auto& one) { return after.at(one.first) != one.second; }),
      2);
}

TEST(ThreadPool, ASinglePieceStartsNobody) {
  ThreadPool pool(8);
  EXPECT_EQ(sum_of_indexes(pool, 1), 0);
  EXPECT_EQ(sleeps_of_pool_threads().size(), 0u);
}

TEST(ThreadPool, ManyShortCallsInARowAllComplete) {
  ThreadPool pool(2);
  for (int round = 0; round < 20000; ++round) ASSERT_EQ(sum_of_indexes(pool, 4), 6);
}

// The moment at which workers go to sleep is where a wake-up could be lost.
TEST(ThreadPool, CallsThatArriveJustAsTheWorkersFallAsleepComplete) {
  ThreadPool pool(2);
  for (int round = 0; round < 3000; ++round) {
    const auto gap = std::chrono::nanoseconds(20'000 + round % 200 * 200);
    for (const auto until = std::chrono::steady_clock::now() + gap; std::chrono::steady_clock::now() < until;) {
    }
    meet(pool, 2);
  }
}

TEST(ThreadPool, WorkersThatWakeTooLateForACallDoNoHarm) {
  ThreadPool pool(4);
  for (int round = 0; round < 1000; ++round) {
    std::this_thread::sleep_for(100us);
    for (int call = 0; call < 3; ++call) ASSERT_EQ(sum_of_indexes(pool, 4), 6);
  }
}

TEST(ThreadPool, TheCallerWaitsForAPieceThatTakesMuchLongerThanItSpins) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> finished{0};
    parallel_for(pool, 2, [&](std::int64_t, int worker) {
      if (worker != 0) std::this_thread::sleep_for(2ms);
      ++finished;
    });
    EXPECT_EQ(finished, 2);
  }
}

TEST(ThreadPool, MayBeDestroyedRightAfterUse) {
  for (int round = 0; round < 300; ++round) {
    ThreadPool pool(1 + round % 5);
    ASSERT_EQ(sum_of_indexes(pool, round % 7), (round % 7) * (round % 7 - 1) / 2);
  }
}

TEST(ThreadPool, MayBeDestroyedUnused) {
  for (int round = 0; round < 100; ++round) ThreadPool pool(ThreadPool::kMaxThreads);
}

TEST(ThreadPool, MayBeDestroyedWhileItsThreadsSleep) {
  ThreadPool pool(3);
  EXPECT_EQ(sum_of_indexes(pool, 100), 4950);
  std::this_thread::sleep_for(5ms);
}

TEST(ThreadPool, RefusesANumberOfThreadsItCannotHave) {
  for (const int threads : {-1, ThreadPool::kMaxThreads + 1}) {
    try {
      ThreadPool pool(threads);
      ADD_FAILURE() << "accepted " << threads;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    }
  }
}

TEST(ThreadPool, ACallFromInsideAPieceRunsThereAsWorkerZero) {
  ThreadPool pool(4);
  std::atomic<int> inner{0};
  std::atomic<int> wrong{0};
  parallel_for(pool, 20, [&](std::int64_t, int) {
    parallel_for(pool, 10, [&, outer = std::this_thread::get_id()](std::int64_t, int worker) {
      if (worker != 0 || std::this_thread::get_id() != outer) ++wrong;
      ++inner;
    });
  });
  EXPECT_EQ(inner, 200);
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, APieceOfOnePoolMayCallAnotherPool) {
  ThreadPool outer(2);
  ThreadPool inner(3);
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> pieces{0};
    parallel_for(outer, 4, [&](std::int64_t, int) {
      parallel_for(inner, 5, [&](std::int64_t, int) {
        parallel_for(outer, 6, [&](std::int64_t, int) { ++pieces; });  // back to a pool that is waiting for us
      });
    });
    ASSERT_EQ(pieces, 4 * 5 * 6);
  }
}

TEST(ThreadPool, TwoPoolsThatCallEachOtherDoNotDeadlock) {
  ThreadPool a(2);
  ThreadPool b(2);
  std::atomic<int> arrived{0};
  const auto call = [&arrived](Executor& outer, Executor& inner) {
    for (int round = 1; round <= 200; ++round) {
      std::atomic<int> pieces{0};
      parallel_for(outer, 4, [&](std::int64_t index, int) {
        // Both pools are in use by now, each by a caller that wants the other.
        if (index == 0) ++arrived;
        while (arrived < 2 * round) std::this_thread::yield();
        parallel_for(inner, 4, [&](std::int64_t, int) { ++pieces; });
      });
      ASSERT_EQ(pieces, 16);
    }
  };
  std::thread other([&] { call(a, b); });
  call(b, a);
  other.join();
}

TEST(ThreadPool, SeveralThreadsMayCallItAtOnce) {
  ThreadPool pool(3);
  std::vector<std::thread> callers(4);
  for (std::thread& caller : callers) {
    caller = std::thread([&pool] {
      for (int round = 0; round < 200; ++round) expect_runs_each_index_once(pool, 50, 500);
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(ThreadPool, AnExceptionReachesTheCallerAndTheRestIsSkipped) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) expect_passes_exceptions_on(pool);
  }
}

TEST(ThreadPool, AnExceptionOfAWorkerReachesTheCaller) {
  ThreadPool pool(2);
  for (int round = 0; round < 50; ++round) {
    std::atomic<bool> thrown{false};
    EXPECT_THROW(parallel_for(pool, 2,
                              [&](std::int64_t, int worker) {
                                if (worker != 0) {
                                  thrown = true;
                                  throw std::out_of_range("worker");
                                }
                                while (!thrown) std::this_thread::yield();
                              }),
                 std::out_of_range);
  }
}

TEST(ThreadPool, WhenAllPiecesThrowOneExceptionArrives) {
  ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(parallel_for(pool, 100, [](std::int64_t index, int) { throw index; }), std::int64_t);
  }
  EXPECT_EQ(sum_of_indexes(pool, 100), 4950);
}

TEST(ThreadPool, ACallAfterAnExceptionInsideANestedCallIsParallelAgain) {
  ThreadPool pool(2);
  EXPECT_THROW(parallel_for(pool, 2,
                            [&](std::int64_t, int) {
                              parallel_for(pool, 2, [](std::int64_t, int) { throw std::runtime_error("inner"); });
                            }),
               std::runtime_error);
  meet(pool, 2);
}

TEST(ThreadPool, TheChildOfAForkMayUseItAtOnce) {
  if (!kForkedChildMayStartThreads) GTEST_SKIP() << "not under TSan";
  ThreadPool pool(4);
  EXPECT_EQ(sum_of_indexes(pool, 1000), 499500);
  EXPECT_EQ(result_in_child([&] { return sum_of_indexes(pool, 1000) == 499500 ? 0 : 1; }), 0);
  EXPECT_EQ(sum_of_indexes(pool, 1000), 499500);
}

// The child inherits locks held, and a call half done, by threads that it does not have.
TEST(ThreadPool, TheChildOfAForkInTheMiddleOfACallUsesAndDestroysIt) {
  if (!kForkedChildMayStartThreads) GTEST_SKIP() << "not under TSan";
  auto pool = std::make_unique<ThreadPool>(3);
  std::atomic<bool> stop{false};
  std::atomic<int> calls{0};
  std::thread busy([&] {
    for (; !stop; ++calls) {
      parallel_for(*pool, 30, [](std::int64_t, int) {
        for (volatile int i = 0; i < 300;) i = i + 1;
      });
    }
  });
  while (calls == 0) std::this_thread::yield();
  for (int round = 0; round < 30; ++round) {
    EXPECT_EQ(result_in_child([&] {
                for (int call = 0; call < 20; ++call) {
                  if (sum_of_indexes(*pool, 100) != 4950) return 1;
                }
                // A grandchild starts all over again.
                if (result_in_child([&] { return sum_of_indexes(*pool, 100) == 4950 ? 0 : 1; }) != 0) return 2;
                pool.reset();
                return 0;
              }),
              0);
  }
  stop = true;
  busy.join();
}

TEST(ThreadPool, TheChildOfAForkMayDestroyItUnused) {
  auto pool = std::make_unique<ThreadPool>(3);
  EXPECT_EQ(sum_of_indexes(*pool, 1000), 499500);
  EXPECT_EQ(result_in_child([&] {
              pool.reset();
              return 0;
            }),
            0);
}

TEST(ThreadPool, TheChildsThreadsAreItsOwnAndParallel) {
  if (!kForkedChildMayStartThreads) GTEST_SKIP() << "not under TSan";
  ThreadPool pool(3);
  EXPECT_EQ(sum_of_indexes(pool, 1000), 499500);
  EXPECT_EQ(result_in_child([&] {
              meet(pool, 3);
              return 0;
            }),
            0);
}

TEST(SerialExecutor, RunsInOrderOnTheCallingThread) {
  SerialExecutor serial;
  EXPECT_EQ(serial.concurrency(), 1);
  std::vector<std::int64_t> order;
  parallel_for(serial, 4, [&, caller = std::this_thread::get_id()](std::int64_t index, int worker) {
    EXPECT_EQ(worker, 0);
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(index);
  });
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 2, 3}));
  expect_passes_exceptions_on(serial);
}

void expect_worker_zero(std::int64_t, int worker) { EXPECT_EQ(worker, 0); }

TEST(ParallelFor, TakesFunctionsConstAndMutableCallables) {
  SerialExecutor serial;
  parallel_for(serial, 3, expect_worker_zero);
  int calls = 0;
  const auto constant = [&calls](std::int64_t, int) { ++calls; };
  parallel_for(serial, 3, constant);
  auto counting = [own = 0, &calls](std::int64_t, int) mutable { calls += ++own; };
  parallel_for(serial, 3, counting);
  EXPECT_EQ(calls, 3 + (1 + 2 + 3));
}

}  // namespace
}  // namespace heed
