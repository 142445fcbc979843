#include "cpu/key_columns.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace heed::cpu {
namespace {

KeyColumns columns_of(std::int64_t most, const std::string& mask, std::int64_t s_q, std::int64_t s_k) {
  return KeyColumns(most, Mask::parse(mask).bounds(s_q, s_k), s_q);
}

std::vector<std::int32_t> ends_of(const KeyColumns& columns) {
  return {columns.first_keys() + 1, columns.first_keys() + 1 + columns.count()};
}

/// How many queries see each key.
std::vector<double> queries_of_keys(const MaskBounds& bounds, std::int64_t s_q) {
  std::vector<double> queries(static_cast<std::size_t>(bounds.s_k));
  for (std::int64_t j = 0; j < bounds.s_k; ++j)
    for (std::int64_t i = 0; i < s_q; ++i) queries[static_cast<std::size_t>(j)] += bounds.visible(i, j) ? 1 : 0;
  return queries;
}

TEST(KeyColumns, AreWholeChunksThatFollowEachOtherToTheLastKey) {
  for (const char* mask : {"n", "b", "t", "b:300,0", "t:100,50,7", "g:0,-100", "g:-1580,2000"})
    for (const std::int64_t s_k : {1, 511, 512, 513, 1700, 4096, 9000})
      for (const std::int64_t most : {1, 2, 3, 8, 16}) {
        const KeyColumns columns = columns_of(most, mask, 1000, s_k);
        const std::int64_t chunks = (s_k + kBackwardChunk - 1) / kBackwardChunk;
        ASSERT_EQ(columns.count(), std::min(most, chunks)) << mask << " " << s_k;
        EXPECT_EQ(columns.all().first(), 0);
        EXPECT_EQ(columns.all().end(), s_k);
        EXPECT_EQ(columns.all().columns, columns.count());
        EXPECT_TRUE(columns.all().whole_head);
        for (std::int32_t c = 0; c < columns.count(); ++c) {
          const KeyColumn column = columns.all().column(c);
          EXPECT_LT(column.first, column.end) << mask << " " << s_k << " column " << c;
          EXPECT_EQ(column.first % kBackwardChunk, 0);
          EXPECT_EQ(columns.one(c).columns, 1);
          EXPECT_EQ(columns.one(c).first(), column.first);
          EXPECT_EQ(columns.one(c).end(), column.end);
          EXPECT_EQ(columns.one(c).whole_head, columns.count() == 1);
        }
      }
}

TEST(KeyColumns, OfNoKeysAreNone) { EXPECT_EQ(columns_of(16, "n", 10, 0).count(), 0); }

TEST(KeyColumns, AreEvenWhereEverythingIsVisible) {
  EXPECT_EQ(ends_of(columns_of(2, "n", 700, 4096)), (std::vector<std::int32_t>{2048, 4096}));
  EXPECT_EQ(ends_of(columns_of(4, "n", 700, 4096)), (std::vector<std::int32_t>{1024, 2048, 3072, 4096}));
}

TEST(KeyColumns, AreNarrowWhereMostQueriesSeeTheKeys) {
  EXPECT_EQ(ends_of(columns_of(2, "b", 2048, 2048)), (std::vector<std::int32_t>{512, 2048}));
  EXPECT_EQ(ends_of(columns_of(4, "b", 4096, 4096)), (std::vector<std::int32_t>{512, 1024, 2048, 4096}));
}

// No column takes much longer than the mean: as many threads as columns would wait for it.
TEST(KeyColumns, HaveAboutTheSameNumberOfPairs) {
  for (const char* mask : {"n", "b", "t", "b:250,0", "b:70,0,40", "g:200,9", "g:-2000,3000"}) {
    const std::int64_t s_q = 500, s_k = 4000;
    const MaskBounds bounds = Mask::parse(mask).bounds(s_q, s_k);
    const std::vector<double> queries = queries_of_keys(bounds, s_q);
    const auto pairs = [&](std::int64_t first, std::int64_t end) {
      return std::accumulate(queries.begin() + first, queries.begin() + std::min(end, s_k), 0.0);
    };
    double most_of_a_chunk = 0;
    for (std::int64_t key = 0; key < s_k; key += kBackwardChunk)
      most_of_a_chunk = std::max(most_of_a_chunk, pairs(key, key + kBackwardChunk));
    for (const std::int64_t most : {2, 3, 5}) {
      const KeyColumns columns = columns_of(most, mask, s_q, s_k);
      for (std::int32_t c = 0; c < columns.count(); ++c)
        EXPECT_LE(pairs(columns.one(c).first(), columns.one(c).end()),
                  pairs(0, s_k) / static_cast<double>(most) + most_of_a_chunk)
            << mask << ", column " << c << " of " << most;
    }
  }
}

}  // namespace
}  // namespace heed::cpu
