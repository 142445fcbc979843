#include "dispatch/workspace_pool.hpp"

#include "dispatch/fakes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <list>
#include <thread>

namespace heed::dispatch {
namespace {

using heed::testing::error_of;

std::size_t misaligned(const WorkspacePool::Lease& lease, std::size_t to) {
  return reinterpret_cast<std::uintptr_t>(lease.bytes().data()) % to;
}

TEST(WorkspacePool, gives_at_least_what_is_asked_aligned_to_a_cache_line) {
  WorkspacePool pool;
  for (const std::size_t bytes : {1u, 63u, 64u, 65u, 100'000u}) {
    const auto lease = pool.take(bytes);
    EXPECT_EQ(lease.bytes().size(), bytes);
    EXPECT_EQ(misaligned(lease, WorkspacePool::kAlignment), 0u);
    std::memset(lease.bytes().data(), 1, bytes);
  }
}

TEST(WorkspacePool, puts_large_buffers_on_huge_pages) {
  WorkspacePool pool;
  const auto lease = pool.take(WorkspacePool::kHugePage);
  EXPECT_EQ(misaligned(lease, WorkspacePool::kHugePage), 0u);
}

TEST(WorkspacePool, nothing_is_needed_for_nothing) {
  WorkspacePool pool;
  EXPECT_TRUE(pool.take(0).bytes().empty());
  EXPECT_EQ(pool.idle_buffers(), 0u);
}

TEST(WorkspacePool, uses_a_buffer_again_when_its_call_has_ended) {
  WorkspacePool pool;
  const std::byte* const first = pool.take(5000).bytes().data();
  EXPECT_EQ(pool.idle_buffers(), 1u);
  EXPECT_EQ(pool.take(4000).bytes().data(), first);
  EXPECT_EQ(pool.idle_buffers(), 1u);
}

TEST(WorkspacePool, calls_at_the_same_time_have_buffers_of_their_own) {
  WorkspacePool pool;
  const auto a = pool.take(1000), b = pool.take(1000);
  EXPECT_NE(a.bytes().data(), b.bytes().data());
}

TEST(WorkspacePool, keeps_a_bounded_number_of_buffers_the_largest_ones) {
  WorkspacePool pool;
  {
    std::list<WorkspacePool::Lease> leases;
    for (std::size_t i = 1; i <= WorkspacePool::kMaxIdleBuffers + 4; ++i) leases.emplace_back(pool.take(i << 16));
  }
  EXPECT_EQ(pool.idle_buffers(), WorkspacePool::kMaxIdleBuffers);
  std::size_t expected = 0;
  for (std::size_t i = 5; i <= WorkspacePool::kMaxIdleBuffers + 4; ++i) expected += i << 16;
  EXPECT_EQ(pool.idle_bytes(), expected);
}

TEST(WorkspacePool, keeps_a_bounded_number_of_bytes_but_one_buffer_of_any_size) {
  WorkspacePool pool;
  {
    const auto small = pool.take(1000);
    const auto large = pool.take(WorkspacePool::kMaxIdleBytes + 1);  // never touched: it costs addresses only
    EXPECT_FALSE(small.bytes().empty());
  }
  EXPECT_EQ(pool.idle_buffers(), 1u);
  EXPECT_GT(pool.idle_bytes(), WorkspacePool::kMaxIdleBytes);
}

TEST(WorkspacePool, says_how_much_could_not_be_had) {
  WorkspacePool pool;
  const auto error = error_of([&] { pool.take(std::numeric_limits<std::size_t>::max()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::out_of_memory);
  EXPECT_STREQ(error->what(), "18446744073709551615 bytes of workspace could not be had.");
}

TEST(WorkspacePool, several_threads_take_and_give_back_at_once) {
  WorkspacePool pool;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (std::size_t i = 1; i < 300; ++i) {
        const auto lease = pool.take(i * 100);
        std::memset(lease.bytes().data(), t, lease.bytes().size());
        const auto mine = [t](std::byte byte) { return byte == static_cast<std::byte>(t); };
        ASSERT_TRUE(std::ranges::all_of(lease.bytes(), mine));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(pool.idle_buffers(), 4u);
}

}  // namespace
}  // namespace heed::dispatch
