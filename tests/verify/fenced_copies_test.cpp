// A copy of an input holds what the input holds, and whoever reads beside it does not live to use it.
#include "verify/fenced_copies.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

namespace heed::verify {
namespace {

/// What lies so many bytes behind the first element of q.
int byte_of(const ForwardArgs& args, std::ptrdiff_t at) {
  return static_cast<const volatile unsigned char*>(args.q.data)[at];
}

class FencedCopiesTest : public testing::Test {
 protected:
  FencedCopiesTest() {
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<unsigned char>(i + 1);
    args_.q = {bytes_.data(), DataType::u8, {3, 7}, {9, 1}};  // two bytes between its rows
  }
  static constexpr std::ptrdiff_t kLast = 2 * 9 + 6;
  std::array<unsigned char, 32> bytes_{};
  ForwardArgs args_;
};

TEST_F(FencedCopiesTest, hold_what_the_inputs_hold) {
  for (const Fence fence : {Fence::before, Fence::behind}) {
    FencedCopies copies(fence);
    const ForwardArgs there = copies.inputs(args_);
    EXPECT_NE(there.q.data, args_.q.data);
    for (std::ptrdiff_t i = 0; i <= kLast; ++i) EXPECT_EQ(byte_of(there, i), byte_of(args_, i));
    EXPECT_FALSE(there.k.given());
  }
}

TEST_F(FencedCopiesTest, end_at_their_fence) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        FencedCopies copies(Fence::before);
        byte_of(copies.inputs(args_), -1);
      },
      "");
  EXPECT_DEATH(
      {
        FencedCopies copies(Fence::behind);
        byte_of(copies.inputs(args_), kLast + 1);
      },
      "");
}

}  // namespace
}  // namespace heed::verify
