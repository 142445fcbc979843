#include "capi/c_args.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

namespace heed {
namespace {

using testing::CContext;
using testing::CProblem;
using testing::FakeSpec;

/// A pool as somebody writes one in C: two threads, every other piece each.
int two(void*) { return 2; }
void on_two_threads(void* user, int64_t count, heed_body body, void* body_context) {
  if (user != nullptr) ++*static_cast<int*>(user);
  const auto every_other = [&](int worker) {
    for (int64_t i = worker; i < count; i += 2) body(body_context, i, worker);
  };
  std::thread other(every_other, 1);
  every_other(0);
  other.join();
}

/// A kernel of 100 pieces.
FakeSpec counting(std::atomic<int>& pieces) {
  return {.run = [&pieces](const dispatch::ForwardCall& call) {
    parallel_for(call.executor, 100, [&](std::int64_t, int) { ++pieces; });
  }};
}

TEST(CExecutor, runs_the_pieces_of_a_call) {
  CProblem problem;
  const auto args = problem.args();
  std::atomic<int> pieces{0};
  int calls = 0;
  CContext context({counting(pieces)}, 1);
  const heed_executor executor{&calls, two, on_two_threads};
  heed_run_options options{};
  options.struct_size = sizeof options;
  options.executor = &executor;
  EXPECT_EQ(heed_forward(context, &args, &options), HEED_OK) << heed_last_error();
  EXPECT_EQ(pieces, 100);
  EXPECT_EQ(calls, 1);
}

TEST(CExecutor, runs_a_plan_made_for_as_many_threads_and_no_more) {
  CProblem problem;
  const auto args = problem.args();
  std::atomic<int> pieces{0};
  CContext context({counting(pieces)}, 1);
  const heed_executor executor{nullptr, two, on_two_threads};
  heed_plan_options options{};
  options.struct_size = sizeof options;
  for (const int threads : {1, 2}) {
    options.threads = threads;
    heed_plan* plan = nullptr;
    ASSERT_EQ(heed_plan_create(context, &args, &options, &plan), HEED_OK) << heed_last_error();
    EXPECT_EQ(heed_plan_run(plan, &args, nullptr, 0, &executor), threads == 2 ? HEED_OK : HEED_INVALID_ARGUMENT);
    heed_plan_destroy(plan);
  }
  EXPECT_EQ(pieces, 100);
}

TEST(CExecutor, carries_the_exception_of_a_piece_around_the_callers_frames) {
  CProblem problem;
  const auto args = problem.args();
  std::atomic<int> begun{0};
  CContext context({FakeSpec{.run =
                                 [&](const dispatch::ForwardCall& call) {
                                   parallel_for(call.executor, 100, [&](std::int64_t, int) {
                                     ++begun;
                                     throw std::runtime_error("a piece broke");
                                   });
                                 }}},
                   1);
  const heed_executor executor{nullptr, two, on_two_threads};
  heed_run_options options{};
  options.struct_size = sizeof options;
  options.executor = &executor;
  EXPECT_EQ(heed_forward(context, &args, &options), HEED_INTERNAL);
  EXPECT_STREQ(heed_last_error(), "a piece broke");
  EXPECT_LE(begun, 2);
}

TEST(CExecutor, that_loses_a_piece_is_found_out) {
  CProblem problem;
  const auto args = problem.args();
  std::atomic<int> pieces{0};
  CContext context({counting(pieces)}, 1);
  const heed_executor forgetful{nullptr, [](void*) { return 1; },
                                [](void*, int64_t count, heed_body body, void* body_context) {
                                  for (int64_t i = 1; i < count; ++i) body(body_context, i, 0);
                                }};
  heed_run_options options{};
  options.struct_size = sizeof options;
  options.executor = &forgetful;
  EXPECT_EQ(heed_forward(context, &args, &options), HEED_INVALID_ARGUMENT);
  EXPECT_STREQ(heed_last_error(), "the executor ran 99 pieces of 100: the output is not whole.");
}

TEST(CExecutor, that_lacks_a_function_or_workers_is_refused) {
  CProblem problem;
  const auto args = problem.args();
  CContext context;
  heed_run_options options{};
  options.struct_size = sizeof options;
  const auto refusal = [&](const heed_executor& executor) -> std::string {
    options.executor = &executor;
    EXPECT_EQ(heed_forward(context, &args, &options), HEED_INVALID_ARGUMENT);
    return heed_last_error();
  };
  EXPECT_EQ(refusal({nullptr, nullptr, on_two_threads}), "the executor has no concurrency function.");
  EXPECT_EQ(refusal({nullptr, two, nullptr}), "the executor has no parallel_for function.");
  EXPECT_EQ(refusal({nullptr, [](void*) { return 0; }, on_two_threads}),
            "the executor brings 0 workers: it must be 1 to 4096.");
}

}  // namespace
}  // namespace heed
