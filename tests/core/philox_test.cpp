#include <heed/philox.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>

namespace heed {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Known answers published with Random123 (Salmon et al., SC 2011).
TEST(Philox, MatchesThePublishedAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

/// The map as its documentation tells it, written a second time.
std::uint16_t documented_word(std::uint64_t seed, std::uint64_t offset, std::uint64_t head_index, std::uint64_t i,
                              std::uint64_t j) {
  const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  const std::uint64_t tile_row = i / 16, row = i % 16, tile_column = j / 16, column = j % 16;
  const std::uint64_t r = row % 8, c = column % 8 / 2;
  const Words words = philox4x32_10({low(tile_column * 4 + c), low(tile_row * 8 + r), low(head_index), low(offset)},
                                    {low(seed), low(seed >> 32) ^ low(offset >> 32)});
  const std::uint64_t half = 4 * (row / 8) + 2 * (column / 8) + column % 2;
  return static_cast<std::uint16_t>(words[half / 2] >> (16 * (half % 2)));
}

TEST(Philox, DropoutWordsFollowTheDocumentedMap) {
  for (std::uint64_t i = 0; i < 40; ++i)
    for (std::uint64_t j = 0; j < 40; ++j)
      for (const std::uint64_t head : {0u, 7u, 70000u})
        ASSERT_EQ(dropout_word(0x123456789abcdefu, 0xfedcba9876543210u, head, i, j),
                  documented_word(0x123456789abcdefu, 0xfedcba9876543210u, head, i, j));
}

// Eight entries share one call of Philox and each takes a half-word of its own: nothing is wasted, nothing used twice.
TEST(Philox, EveryEntryOfATileHasAHalfWordOfItsOwn) {
  // Which counter and half an entry reads is found from outside: its word must stand at exactly that place.
  std::set<std::tuple<std::uint32_t, std::uint32_t, int>> used;
  for (std::uint64_t i = 16; i < 32; ++i)
    for (std::uint64_t j = 32; j < 48; ++j) {
      const std::uint16_t word = dropout_word(11, 22, 3, i, j);
      int found = 0;
      for (std::uint32_t column = 8; column < 12; ++column)
        for (std::uint32_t row = 8; row < 16; ++row) {
          const Words words = philox4x32_10({column, row, 3, 22}, {11, 0});
          for (int half = 0; half < 8; ++half) {
            if (static_cast<std::uint16_t>(words[static_cast<std::size_t>(half / 2)] >> (16 * (half % 2))) != word)
              continue;
            ++found;
            used.emplace(column, row, half);
          }
        }
      ASSERT_GE(found, 1) << i << "," << j;
    }
  EXPECT_EQ(used.size(), 256u);
}

TEST(Philox, DropoutWordsDifferByEverythingTheyDependOn) {
  const std::uint64_t high = std::uint64_t{1} << 32;
  const auto row = [](std::uint64_t seed, std::uint64_t offset, std::uint64_t head, std::uint64_t i) {
    std::array<std::uint16_t, 32> words{};
    for (std::uint64_t j = 0; j < words.size(); ++j) words[j] = dropout_word(seed, offset, head, i, j);
    return words;
  };
  const auto base = row(1, 0, 0, 0);
  EXPECT_NE(base, row(2, 0, 0, 0));
  EXPECT_NE(base, row(1 + high, 0, 0, 0));
  EXPECT_NE(base, row(1, 1, 0, 0));
  EXPECT_NE(base, row(1, high, 0, 0));
  EXPECT_NE(base, row(1, 0, 1, 0));
  EXPECT_NE(base, row(1, 0, 0, 1));
  EXPECT_EQ(base, row(1, 0, 0, 0));
}

TEST(Philox, TheShareOfLostEntriesIsTheProbability) {
  constexpr int kSize = 512;
  for (const double p : {0.0, 0.1, 0.5, 0.9}) {
    const std::uint32_t threshold = dropout_threshold(p);
    int lost = 0;
    for (std::uint64_t i = 0; i < kSize; ++i)
      for (std::uint64_t j = 0; j < kSize; ++j) lost += dropout_word(42, 0, 5, i, j) < threshold ? 1 : 0;
    // Five standard deviations of a fair draw.
    EXPECT_NEAR(lost / double{kSize * kSize}, p, 5 * std::sqrt(p * (1 - p)) / kSize + 1e-9) << p;
  }
}

}  // namespace
}  // namespace heed
