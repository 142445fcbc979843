// The random words of dropout, written out by the CPU as a GPU would.
#include "emulated/device.hpp"
//
#include "device/randval.cuh"

#include <heed/philox.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace heed::kernels {
namespace {

constexpr int kBatch = 3, kHeads = 2, kLongest = 37, kKeys = 50;
constexpr std::array<int, kBatch + 1> kStarts{5, 5, 42, 52};
constexpr std::uint64_t kSeed = 0x123456789, kOffset = 7;
constexpr std::uint16_t kUntouched = 0xabcd;

/// Sequences of 0, 37 and 10 queries, and as many keys, in one packed tensor, with rows of others around.
ForwardParams packed() {
  ForwardParams p{};
  p.batch = kBatch, p.heads = kHeads;
  p.s_q = p.s_k = 60, p.longest_q = p.longest_k = kLongest;
  p.start_q = p.start_k = {kStarts.data(), 1, 0};
  p.drop_seed = kSeed, p.drop_offset = kOffset;
  p.randval_steps = {kHeads * kLongest * kKeys, kLongest * kKeys, kKeys, 1};
  return p;
}

TEST(EmulatedRandval, has_the_word_of_every_entry_of_packed_sequences) {
  std::vector<std::uint16_t> words(std::size_t{kBatch} * kHeads * kLongest * kKeys, kUntouched);
  ForwardParams p = packed();
  p.randval = words.data();
  emulated::launch(3, 64, [&] { randval(p); });
  std::size_t at = 0, wrong = 0;
  for (int b = 0; b < kBatch; ++b)
    for (int h = 0; h < kHeads; ++h)
      for (int i = 0; i < kLongest; ++i)
        for (int j = 0; j < kKeys; ++j) {
          const int length = kStarts[static_cast<std::size_t>(b) + 1] - kStarts[static_cast<std::size_t>(b)];
          const bool inside = i < length && j < length;
          const std::uint16_t word = inside ? dropout_word(kSeed, kOffset, static_cast<std::uint32_t>(b * kHeads + h),
                                                           static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(j))
                                            : kUntouched;
          wrong += words[at++] == word ? 0 : 1;
        }
  EXPECT_EQ(wrong, 0u);
}

// A batch of many short sequences has as many rows as a long one, and each of them only its own.
TEST(EmulatedRandval, goes_as_far_as_the_longest_sequence) {
  ForwardParams p = packed();
  p.s_q = p.s_k = 100000;
  EXPECT_EQ(randval_calls(p).row_groups, 3 * 8) << "of 16 rows, two to a call";
  EXPECT_EQ(randval_calls(p).column_groups, 3 * 4) << "of 16 keys, four to a call";
}

}  // namespace
}  // namespace heed::kernels
