/// Workspaces in GPU memory, on the fake of libcuda.cpp.

#include "cuda/device_scratch.hpp"
#include "cuda/device.hpp"

#include <gtest/gtest.h>

#include <set>

namespace heed::cuda::test {
namespace {

TEST(DeviceScratch, is_zero_at_first_and_the_same_memory_afterwards) {
  const DeviceGuard guard(0);
  DeviceScratch scratch;
  const std::span<std::byte> first = scratch.take(0, nullptr, 10000);
  ASSERT_GE(first.size(), 10000U);
  for (const std::byte each : first) ASSERT_EQ(each, std::byte{0});
  EXPECT_EQ(scratch.take(0, nullptr, 9000).data(), first.data());
  int other = 0;
  EXPECT_NE(scratch.take(0, reinterpret_cast<CUstream>(&other), 10).data(), first.data());  // another stream
  EXPECT_TRUE(scratch.take(0, nullptr, 0).empty());
}

TEST(DeviceScratch, lengths_that_grow_step_by_step_do_not_pile_up) {
  const DeviceGuard guard(0);
  DeviceScratch scratch;
  std::set<std::byte*> places;
  std::size_t taken = 0, last = 0;
  for (std::size_t bytes = 5000; bytes <= 5000000; bytes += 1000) {
    const std::span<std::byte> workspace = scratch.take(0, nullptr, bytes);
    ASSERT_GE(workspace.size(), bytes);
    if (places.insert(workspace.data()).second) taken += last = workspace.size();
  }
  EXPECT_LE(taken, 3 * last);
  EXPECT_LE(last, 5000000U * 3 / 2);
}

}  // namespace
}  // namespace heed::cuda::test
