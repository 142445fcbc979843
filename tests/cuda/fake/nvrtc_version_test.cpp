/// Which versions of NVRTC are taken, on the fake of libnvrtc.cpp.

#include "cuda/jit_fixture.hpp"
#include "cuda/nvrtc.hpp"

#include <fmt/format.h>

namespace heed::cuda::test {
namespace {

[[noreturn]] void print_found() {
  Nvrtc::get();
  fmt::print(stderr, "found: {}|{}\n", Nvrtc::get() ? Nvrtc::get()->version().to_string() : "none", Nvrtc::missing());
  std::exit(0);
}

class NvrtcVersionDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  const Environment path{"HEED_NVRTC_PATH", HEED_FAKE_NVRTC};
};

TEST_F(NvrtcVersionDeathTest, a_good_one_is_taken_without_a_word) {
  const Environment version("FAKE_NVRTC_VERSION", "12.8");
  EXPECT_EXIT(print_found(), ::testing::ExitedWithCode(0), "^found: 12.8[|]\n");
}

TEST_F(NvrtcVersionDeathTest, one_that_makes_slower_kernels_is_taken_with_one_warning) {
  const Environment version("FAKE_NVRTC_VERSION", "12.6");
  EXPECT_EXIT(print_found(), ::testing::ExitedWithCode(0),
              "^heed: NVRTC 12.6 [^\n]*2 to 11 percent[^\n]*\nfound: 12.6[|]\n");
}

TEST_F(NvrtcVersionDeathTest, one_that_is_too_old_is_refused_with_its_version) {
  const Environment version("FAKE_NVRTC_VERSION", "11.8");
  EXPECT_EXIT(print_found(), ::testing::ExitedWithCode(0),
              "^found: none[|]no NVRTC 12.0 or newer [^\n]*its version is 11.8, heed needs 12.0 or newer");
}

TEST_F(NvrtcVersionDeathTest, one_that_is_named_may_be_newer_than_the_driver) {
  const Environment driver("FAKE_CUDA_VERSION", "12040"), version("FAKE_NVRTC_VERSION", "13.1");
  EXPECT_EXIT(print_found(), ::testing::ExitedWithCode(0), "^found: 13.1[|]\n");
}

// Where there is one of CUDA 13, too, and it comes first: on the loader's path, or in the same folder.
TEST_F(NvrtcVersionDeathTest, one_whose_kernels_the_driver_does_not_load_is_passed_over) {
  const TemporaryFolder root;
  fs::create_directories(root.path() / "lib64");
  fs::create_symlink(HEED_FAKE_NVRTC, root.path() / "lib64" / "libnvrtc.so.12");
  const Environment unnamed("HEED_NVRTC_PATH", ""), home("CUDA_HOME", root.path().string());
  const Environment driver("FAKE_CUDA_VERSION", "12080"), version("FAKE_NVRTC_VERSION", "12.8");
  EXPECT_EXIT(print_found(), ::testing::ExitedWithCode(0), "found: 12[.]");
}

TEST(NvrtcFailure, out_of_memory_is_told_from_a_kernel_that_does_not_compile) {
  const Environment version("FAKE_NVRTC_VERSION", "13.0");
  const auto nvrtc = Nvrtc::open(HEED_FAKE_NVRTC);
  const Error error = error_from([&] { nvrtc->compile({.name = "k", .text = "", .headers = {}, .options = {}}); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_STREQ(error.what(), "kernel k: NVRTC 13.0 fails in nvrtcCreateProgram: NVRTC_ERROR_OUT_OF_MEMORY.");
}

}  // namespace
}  // namespace heed::cuda::test
