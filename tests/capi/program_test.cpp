#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

extern "C" const char* heed_c99_program(void);

namespace heed {
namespace {

TEST(CProgram, computes_attention_knowing_the_c_header_alone) {
  const char* const complaint = heed_c99_program();
  EXPECT_EQ(complaint, nullptr) << complaint;
}

TEST(CProgram, the_header_is_c99_without_a_warning) {
  if (std::system("cc --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no C compiler here";
  const std::filesystem::path here = std::filesystem::path(__FILE__).parent_path();
  const std::string include = (here / "../../include").lexically_normal().string();
  const std::string header = include + "/heed/heed.h";
  if (!std::filesystem::exists(header)) GTEST_SKIP() << "the sources are not where they were compiled";
  const std::string command = "cc -std=c99 -Wall -Wextra -pedantic -Werror -fsyntax-only -x c -I'" + include + "' '";
  EXPECT_EQ(std::system((command + header + "'").c_str()), 0);
}

}  // namespace
}  // namespace heed
