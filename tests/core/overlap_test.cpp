#include "core/overlap.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace heed::core {
namespace {

using Four = std::array<std::int64_t, 4>;

template <class F>
void for_each_offset(const Four& sizes, const Four& steps, F f) {
  for (std::int64_t a = 0; a < sizes[0]; ++a)
    for (std::int64_t b = 0; b < sizes[1]; ++b)
      for (std::int64_t c = 0; c < sizes[2]; ++c)
        for (std::int64_t d = 0; d < sizes[3]; ++d) f(a * steps[0] + b * steps[1] + c * steps[2] + d * steps[3]);
}

TEST(Overlap, OfAViewWithItselfIsWhatCountingSays) {
  std::mt19937 random(5);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<std::int64_t>(low, high)(random); };
  int overlapping = 0;
  for (int round = 0; round < 20000; ++round) {
    const Four sizes{pick(0, 3), pick(1, 4), pick(1, 4), pick(1, 4)};
    const Four steps{pick(-40, 40), pick(-20, 20), pick(-9, 9), pick(-3, 3)};
    std::set<std::int64_t> seen;
    bool expected = false;
    for_each_offset(sizes, steps, [&](std::int64_t offset) { expected |= !seen.insert(offset).second; });
    ASSERT_EQ(self_overlaps(sizes, steps), expected) << testing::PrintToString(sizes) << testing::PrintToString(steps);
    overlapping += expected ? 1 : 0;
  }
  EXPECT_GT(overlapping, 1000);
  EXPECT_LT(overlapping, 19000);
}

TEST(Overlap, OfTwoViewsIsWhatCountingSays) {
  std::mt19937 random(6);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<std::int64_t>(low, high)(random); };
  static unsigned char memory[4096];
  int overlapping = 0;
  for (int round = 0; round < 20000; ++round) {
    std::array<TensorView, 2> views;
    std::array<std::set<std::int64_t>, 2> bytes;
    for (std::size_t i = 0; i < 2; ++i) {
      TensorView& view = views[i];
      view.type = pick(0, 1) == 0 ? f16 : f32;
      view.rank = 4;
      view.sizes = {pick(0, 3), pick(1, 3), pick(1, 3), pick(1, 3)};
      view.strides = {pick(-50, 50), pick(-20, 20), pick(-9, 9), pick(-3, 3)};
      const std::int64_t base = 2000 + pick(-200, 200);
      view.data = memory + base;
      const std::int64_t element = bits(view.type) / 8;
      for_each_offset(view.sizes, view.strides, [&](std::int64_t offset) {
        for (std::int64_t byte = 0; byte < element; ++byte) bytes[i].insert(base + offset * element + byte);
      });
    }
    bool expected = false;
    for (const std::int64_t byte : bytes[0]) expected |= bytes[1].count(byte) != 0;
    ASSERT_EQ(overlap(footprint(views[0]), footprint(views[1])), expected) << round;
    overlapping += expected ? 1 : 0;
  }
  EXPECT_GT(overlapping, 1000);
  EXPECT_LT(overlapping, 19000);
}

TEST(Overlap, SlicesOfOnePackedBufferAreSeparate) {
  // [b, s, 4, h, d] holding q, k, v and o of a large model.
  constexpr std::int64_t b = 64, s = 8192, h = 32, d = 128;
  char* const base = reinterpret_cast<char*>(std::uintptr_t{1} << 32);
  const auto slice = [&](std::int64_t n) {
    return footprint(TensorView{base + 2 * n * h * d, f16, {b, s, h, d}, {s * 4 * h * d, 4 * h * d, d, 1}});
  };
  EXPECT_FALSE(overlap(slice(3), slice(0)));
  EXPECT_FALSE(overlap(slice(3), slice(2)));
  EXPECT_TRUE(overlap(slice(3), slice(3)));
  // Interleaved by head instead: [b, s, h, 4, d].
  const auto by_head = [&](std::int64_t n) {
    return footprint(TensorView{base + 2 * n * d, f16, {b, s, h, d}, {s * 4 * h * d, 4 * h * d, 4 * d, 1}});
  };
  EXPECT_FALSE(overlap(by_head(3), by_head(1)));
  EXPECT_TRUE(overlap(by_head(3), slice(3)));
}

TEST(Overlap, SpanSaturatesInsteadOfOverflowing) {
  EXPECT_EQ(span({2, 3, 4, 8}, {96, -32, 8, 1}), 96 + 64 + 24 + 7);
  EXPECT_EQ(span({0, 1, 4, 8}, {INT64_MAX, INT64_MIN, 8, 1}), 24 + 7);
  EXPECT_GT(span({2, 1, 1, 1}, {INT64_MAX, 0, 0, 0}), kMaxSpan);
  EXPECT_GT(span({2, 1, 1, 1}, {INT64_MIN, 0, 0, 0}), kMaxSpan);
  EXPECT_GT(span({INT64_MAX, 1, 1, 1}, {1 << 20, 0, 0, 0}), kMaxSpan);
  EXPECT_GT(span({2, 2, 1, 1}, {kMaxSpan, kMaxSpan, 0, 0}), kMaxSpan);
}

}  // namespace
}  // namespace heed::core
