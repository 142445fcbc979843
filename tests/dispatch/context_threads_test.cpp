// One context used from many threads at once, and across a fork in the middle of it.
#include <heed/plan.hpp>

#include "dispatch/fakes.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#if defined(__SANITIZE_THREAD__)
#define HEED_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HEED_THREAD_SANITIZER 1
#endif
#endif

namespace heed {
namespace {

using testing::FakeContext;
using testing::FakeSpec;

/// Fills the workspace with a number of its own and looks whether somebody else wrote there.
FakeSpec scribbler(std::atomic<int>& collisions) {
  return {.stages = {{.kernel = "a", .purpose = "main", .workspace_bytes = 4096}},
          .run = [&collisions, next = std::make_shared<std::atomic<int>>(0)](const dispatch::ForwardCall& call) {
            const auto mine = static_cast<std::byte>(next->fetch_add(1));
            std::memset(call.workspace.data(), static_cast<int>(mine), call.workspace.size());
            std::this_thread::yield();
            for (const std::byte byte : call.workspace)
              if (byte != mine) ++collisions;
          }};
}

/// Calls forward for lengths that repeat, so that plans are found and made at the same time.
void call_often(Context& context, int calls) {
  std::vector<float> data(64 * 8), out(64 * 8);
  SerialExecutor serial;
  for (int i = 0; i < calls; ++i) {
    const std::int64_t s = 1 + i % 40;
    context.forward({.q = {data.data(), f32, {1, s, 1, 8}},
                     .k = {data.data(), f32, {1, s, 1, 8}},
                     .v = {data.data(), f32, {1, s, 1, 8}},
                     .o = {out.data(), f32, {1, s, 1, 8}}},
                    {.executor = &serial});
  }
}

TEST(ContextThreads, calls_from_many_threads_share_plans_and_not_workspaces) {
  std::atomic<int> collisions{0};
  FakeContext fake({scribbler(collisions)}, 2);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) threads.emplace_back([&] { call_often(*fake.context, 400); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(collisions, 0);
  EXPECT_EQ(fake.engine->kernel(0).runs, 1600);
  EXPECT_EQ(fake.context->impl().plans.size(), 40u);
}

TEST(ContextThreads, first_users_of_the_default_context_get_the_same_one) {
  std::vector<std::shared_ptr<Context>> seen(4);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (auto& place : seen) threads.emplace_back([&place] { place = default_context(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& context : seen) EXPECT_EQ(context, seen[0]);
}

#if !HEED_THREAD_SANITIZER  // it does not follow a process that forks with threads
TEST(ContextThreads, a_child_forked_while_others_call_can_use_and_destroy_its_copy) {
  std::atomic<int> collisions{0};
  FakeContext fake({scribbler(collisions)}, 2);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop) call_often(*fake.context, 10);
    });
  }
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);  // a lock that stayed shut must end the test, not hang it
      call_often(*fake.context, 100);
      fake.context.reset();
      _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}
#endif

}  // namespace
}  // namespace heed
