#include "cuda/jit_fixture.hpp"

namespace heed::cuda::test {
namespace {

void on_eight_threads(const std::function<void()>& act) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back(act);
  for (std::thread& thread : threads) thread.join();
}

using JitThreadsTest = JitTest;

TEST_F(JitThreadsTest, eight_threads_at_once_compile_a_kernel_once) {
  compiler.takes = std::chrono::milliseconds(50);
  Jit jit(options());
  std::atomic<int> right = 0;
  on_eight_threads([&] { right += text_of(*jit.get(kernel, "sm_90a")) == kernel.text; });
  EXPECT_EQ(right, 8);
  EXPECT_EQ(compiler.compiled, 1);
}

TEST_F(JitThreadsTest, eight_threads_with_a_jit_each_compile_a_kernel_once) {
  compiler.takes = std::chrono::milliseconds(50);
  std::atomic<int> right = 0;
  on_eight_threads([&] { right += compiled_anew(kernel) == kernel.text; });
  EXPECT_EQ(right, 8);
  EXPECT_EQ(compiler.compiled, 1);
}

TEST_F(JitThreadsTest, threads_that_wait_for_a_kernel_get_its_error) {
  compiler.takes = std::chrono::milliseconds(50);
  Jit jit(options());
  std::atomic<int> errors = 0;
  on_eight_threads([&] {
    errors += std::string(error_from([&] { jit.get({"broken", "error"}, "sm_90a"); }).what()) == "it does not compile";
  });
  EXPECT_EQ(errors, 8);
}

}  // namespace
}  // namespace heed::cuda::test
