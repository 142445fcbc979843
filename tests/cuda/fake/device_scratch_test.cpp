/// Workspaces in GPU memory, on the fake of libcuda.cpp.

#include "cuda/device_scratch.hpp"
#include "cuda/device.hpp"
#include "cuda/engine_state.hpp"
#include "cuda/fake/waiting_gpus.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>

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

constexpr std::uintptr_t kLegacyStream = 1, kPerThreadStream = 2;

CUstream named(std::uintptr_t handle) { return reinterpret_cast<CUstream>(handle); }

/// How often somebody waited for all of a GPU's work while f ran.
template <class F>
int waits_during(const F& f) {
  static int waits;
  waits = 0;
  const auto before =
      reinterpret_cast<void (*)(void (*)(const char*))>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "fake_cuda_before"));
  before([](const char* called) { waits += std::string_view(called) == "cuCtxSynchronize"; });
  f();
  before(nullptr);
  return waits;
}

/// Where the workspaces of as many threads are that follow each other, each on its own stream.
std::set<std::byte*> places_of_threads(DeviceScratch& scratch, int threads) {
  std::set<std::byte*> places;
  for (int i = 0; i < threads; ++i)
    std::thread([&] {
      const DeviceGuard guard(0);
      std::byte* const first = scratch.take(0, named(kPerThreadStream), 10).data();
      EXPECT_EQ(scratch.take(0, named(kPerThreadStream), 10).data(), first);
      places.insert(first);
    }).join();
  return places;
}

// The stream of the second is another one, on which nothing waits for what the first has left on its own.
TEST(DeviceScratch, a_thread_that_follows_another_has_its_memory_once_that_one_s_work_is_done) {
  DeviceScratch scratch;
  std::set<std::byte*> places;
  EXPECT_EQ(waits_during([&] { places = places_of_threads(scratch, 3); }), 2);
  EXPECT_EQ(places.size(), 1U);
}

TEST(DeviceScratch, a_thread_that_may_not_wait_for_the_one_before_has_memory_of_its_own) {
  DeviceScratch scratch;
  setenv("FAKE_CUDA_CAPTURING", "1", 1);
  const std::set<std::byte*> places = places_of_threads(scratch, 3);
  unsetenv("FAKE_CUDA_CAPTURING");
  EXPECT_EQ(places.size(), 3U);
}

TEST(DeviceScratch, threads_at_the_same_time_have_streams_of_their_own) {
  DeviceScratch scratch;
  std::set<std::byte*> places;
  std::thread([&] {
    const DeviceGuard guard(0);
    places.insert(scratch.take(0, named(kPerThreadStream), 10).data());
    places.merge(places_of_threads(scratch, 1));
  }).join();
  EXPECT_EQ(places.size(), 2U);
}

TEST(DeviceScratch, the_default_stream_is_one_by_both_its_names_and_another_on_each_gpu) {
  const DeviceGuard guard(0);
  DeviceScratch scratch;
  std::byte* const place = scratch.take(0, nullptr, 10).data();
  EXPECT_EQ(scratch.take(0, named(kLegacyStream), 10).data(), place);
  EXPECT_NE(scratch.take(0, named(kPerThreadStream), 10).data(), place);
  EXPECT_NE(scratch.take(1, nullptr, 10).data(), place);
}

// The fake says of managed memory that it is on GPU 0.
TEST(DeviceScratch, a_workspace_is_on_the_gpu_that_computes) {
  EngineState state(devices().at(1), JitOptions{});
  const auto on_gpu = [](std::uintptr_t number) { return reinterpret_cast<const void*>(number << 48); };
  constexpr std::uintptr_t kFirst = 1, kSecond = 2, kManaged = 3;
  const auto workspace = [&](std::uintptr_t place) { return state.workspace(on_gpu(place), nullptr, 10).data(); };
  const DeviceGuard guard(0);
  EXPECT_EQ(workspace(kFirst), state.scratch.take(0, nullptr, 10).data());
  EXPECT_EQ(workspace(kSecond), state.scratch.take(1, nullptr, 10).data());
  EXPECT_EQ(workspace(kManaged), workspace(kSecond));
}

TEST(DeviceScratch, a_gpu_that_allocates_does_not_hold_up_another_one) {
  DeviceScratch scratch;
  const auto take_on = [&](int device) {
    const DeviceGuard guard(device);
    EXPECT_EQ(scratch.take(device, nullptr, 10).size(), 4096U);
    const std::lock_guard lock(scratch.steps(device, nullptr));
  };
  EXPECT_TRUE(second_goes_on_while_the_driver_holds_first(
      "cuMemAlloc", [&] { take_on(0); }, [&] { take_on(1); }));
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
