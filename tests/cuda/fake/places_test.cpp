/// Whose memory a pointer leads to where the CUDA engine cannot be used, on the fake of libcuda.cpp.

#include "cuda/jit_fixture.hpp"

#include <heed/heed.hpp>

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>

namespace heed::cuda::test {
namespace {

constexpr std::int64_t kRows = 4, kDim = 8;
using Numbers = std::array<float, kRows * kDim>;

ForwardArgs args_at(void* memory, void* o) {
  const auto at = [](void* data) { return TensorView{data, f32, {1, kRows, 1, kDim}}; };
  return {.q = at(memory), .k = at(memory), .v = at(memory), .o = {o, f32, {1, kRows, 1, kDim}}};
}

[[noreturn]] void print_error_of_gpu_memory() {
  void* const gpu = reinterpret_cast<void*>(0x1000000000000);
  const Error error = error_from([&] { forward(args_at(gpu, static_cast<char*>(gpu) + 4096)); });
  fmt::print(stderr, "error: {}\n", error.what());
  std::exit(0);
}

/// As a program does that works with CUDA itself.
[[noreturn]] void print_error_beside_a_driver_in_use() {
  reinterpret_cast<int (*)(unsigned)>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit"))(0);
  print_error_of_gpu_memory();
}

[[noreturn]] void compute_before_and_after_a_fork() {
  Numbers numbers{}, o{};
  numbers.fill(3);
  forward(args_at(numbers.data(), o.data()));
  const pid_t child = fork();
  if (child == 0) {
    o.fill(0);
    forward(args_at(numbers.data(), o.data()));
    _exit(o[5] == 3 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
}

class PlacesDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// It went to the CPU engine, which read it.
TEST_F(PlacesDeathTest, memory_of_a_gpu_that_is_too_old_is_refused_with_its_name) {
  const Environment old("FAKE_CUDA_SM", "75");
  EXPECT_EXIT(print_error_of_gpu_memory(), ::testing::ExitedWithCode(0), "error: .*sm_75: heed needs sm_80");
}

TEST_F(PlacesDeathTest, memory_of_a_driver_that_is_too_old_is_refused_with_its_version) {
  const Environment version("FAKE_CUDA_VERSION", "11040");
  EXPECT_EXIT(print_error_beside_a_driver_in_use(), ::testing::ExitedWithCode(0), "error: .*too old: it has CUDA 11.4");
}

// There the driver knows of no memory at all.
TEST_F(PlacesDeathTest, the_child_of_a_fork_computes_on_the_cpu) {
  EXPECT_EXIT(compute_before_and_after_a_fork(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace heed::cuda::test
