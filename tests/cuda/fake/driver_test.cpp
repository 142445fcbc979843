/// The driver and its devices, on the fake of libcuda.cpp. What a driver is like is found once per process, so each
/// kind of driver has a process of its own (EXPECT_EXIT).

#include "cuda/driver.hpp"
#include "cuda/device.hpp"
#include "cuda/jit_fixture.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

namespace heed::cuda::test {
namespace {

using ::testing::HasSubstr;

/// Ends the process after printing why there is no driver.
[[noreturn]] void print_missing() {
  fmt::print(stderr, "{}: {}\n", Driver::get() == nullptr ? "missing" : "there", Driver::missing());
  std::exit(0);
}

class DriverDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(DriverDeathTest, a_driver_that_is_new_enough_is_there) {
  const Environment version("FAKE_CUDA_VERSION", "12000");
  EXPECT_EXIT(print_missing(), ::testing::ExitedWithCode(0), "^there: \n");
}

TEST_F(DriverDeathTest, an_old_driver_is_named_with_what_is_needed) {
  const Environment version("FAKE_CUDA_VERSION", "11040");
  EXPECT_EXIT(print_missing(), ::testing::ExitedWithCode(0),
              "missing: the NVIDIA driver is too old: it has CUDA 11.4, heed needs 12.0: install .* 525 or newer");
}

TEST_F(DriverDeathTest, a_driver_without_a_function_is_named_with_it) {
  const Environment bare("FAKE_CUDA_BARE", "1");
  EXPECT_EXIT(print_missing(), ::testing::ExitedWithCode(0), "missing: .* too old: libcuda.so.1 has no cuGetErrorName");
}

TEST_F(DriverDeathTest, a_driver_without_a_gpu_says_what_may_hide_it) {
  const Environment none("FAKE_CUDA_INIT", "100");
  EXPECT_EXIT(print_missing(), ::testing::ExitedWithCode(0),
              "missing: .*does not start: CUDA_ERROR_NO_DEVICE .*CUDA_VISIBLE_DEVICES");
}

TEST_F(DriverDeathTest, the_toolkits_stub_is_told_from_a_driver) {
  const Environment stub("FAKE_CUDA_INIT", "34");
  EXPECT_EXIT(print_missing(), ::testing::ExitedWithCode(0), "missing: .*CUDA error 34.*stub.*LD_LIBRARY_PATH");
}

TEST(Driver, tells_its_version) {
  ASSERT_NE(Driver::get(), nullptr) << Driver::missing();
  EXPECT_EQ(version_text(Driver::get()->version()), "13.0");
}

TEST(Devices, are_listed_with_what_selection_needs) {
  ASSERT_EQ(devices().size(), 2u);
  const Device& second = devices()[1];
  EXPECT_EQ(second.ordinal, 1);
  EXPECT_EQ(second.name, "Fake GPU 1");
  EXPECT_EQ(second.sm, 90);
  EXPECT_EQ(second.multiprocessors, 132);
  EXPECT_EQ(second.max_shared_memory, 232448);
  EXPECT_EQ(second.l2_bytes, 60 << 20);
  EXPECT_EQ(second.memory_bytes, 141LL << 30);
  EXPECT_NEAR(second.memory_bytes_per_second, 4.917e12, 1e9);
}

TEST(DeviceGuard, makes_a_device_current_and_puts_back_what_was_there) {
  const auto current = [] {
    CUcontext context = nullptr;
    Driver::get()->cuCtxGetCurrent(&context);
    return context;
  };
  EXPECT_EQ(current(), nullptr);
  {
    const DeviceGuard first(0);
    const CUcontext outer = current();
    EXPECT_NE(outer, nullptr);
    {
      const DeviceGuard second(1);
      EXPECT_NE(current(), outer);
    }
    EXPECT_EQ(current(), outer);
  }
  EXPECT_EQ(current(), nullptr);
}

TEST(DeviceGuard, opens_a_device_once_per_process) {
  for (int i = 0; i < 3; ++i) const DeviceGuard guard(1);
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  const auto retained = reinterpret_cast<int (*)(int)>(dlsym(library, "fake_cuda_retained"));
  ASSERT_NE(retained, nullptr);
  EXPECT_EQ(retained(1), 1);
}

TEST(DeviceGuard, a_device_that_is_not_there_is_an_error_that_counts_them) {
  const Error error = error_from([] { const DeviceGuard guard(2); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_STREQ(error.what(), "GPU 2: there are 2 GPUs here, numbered from 0.");
}

TEST(PlaceOf, tells_host_from_device_from_managed_memory) {
  const auto at = [](std::uint64_t address) { return place_of(reinterpret_cast<const void*>(address)); };
  const int here = 0;
  EXPECT_EQ(place_of(&here).kind, PointerPlace::host);
  EXPECT_EQ(place_of(nullptr).kind, PointerPlace::host);
  EXPECT_EQ(to_text(at(0x2000000000010)), "memory of GPU 1");
  EXPECT_TRUE(at(0x2000000000010).for_device(1));
  EXPECT_FALSE(at(0x2000000000010).for_device(0));
  EXPECT_FALSE(at(0x2000000000010).for_host());
  EXPECT_TRUE(at(0x3000000000010).for_device(1));
  EXPECT_TRUE(at(0x3000000000010).for_host());
  EXPECT_EQ(to_text(at(0x4000000000010)), "pinned host memory");
  EXPECT_TRUE(at(0x4000000000010).for_host());
  EXPECT_FALSE(at(0x4000000000010).for_device(0));
}

TEST(Check, names_the_operation_and_the_error) {
  EXPECT_NO_THROW(check(kSuccess, "nothing"));
  const Error memory = error_from([] { check(kOutOfMemory, "taking 7 GiB for the workspace"); });
  EXPECT_EQ(memory.code(), ErrorCode::out_of_memory);
  EXPECT_STREQ(memory.what(), "taking 7 GiB for the workspace: CUDA_ERROR_OUT_OF_MEMORY (in words).");
  const Error other = error_from([] { check(12345, "something"); });
  EXPECT_EQ(other.code(), ErrorCode::device_failed);
  EXPECT_STREQ(other.what(), "something: CUDA error 12345.");
}

TEST(Check, says_when_only_a_new_process_helps) {
  const Error error = error_from([] { check(kIllegalAddress, "launching a kernel"); });
  EXPECT_EQ(error.code(), ErrorCode::device_failed);
  EXPECT_THAT(error.what(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_THAT(error.what(), HasSubstr("restart the process"));
  EXPECT_FALSE(is_sticky(kOutOfMemory));
}

TEST(Check, says_what_helps_against_a_driver_older_than_the_kernel_and_against_a_fork) {
  const Error image = error_from([] { check(kNoBinaryForGpu, "loading a kernel"); });
  EXPECT_EQ(image.code(), ErrorCode::unsupported);
  EXPECT_THAT(image.what(), HasSubstr("update the driver"));
  EXPECT_THAT(error_from([] { check(kNotInitialized, "loading a kernel"); }).what(), HasSubstr("fork()"));
}

}  // namespace
}  // namespace heed::cuda::test
