#include "cpu/forward_schedule.hpp"

#include <gtest/gtest.h>

namespace heed::cpu {
namespace {

constexpr ScheduleTraits kTraits{.strip = 64, .max_rows = 8, .most_strips = 4, .packing = 0.03};

TEST(ForwardSchedule, AQueryOfFewRowsTakesTheRowsKernelWithAllHeadsOfItsGroup) {
  const SequencePlan plan = plan_sequence(kTraits, 32, 8, 2, 4096, 4);
  EXPECT_TRUE(plan.use_rows_kernel);
  EXPECT_TRUE(plan.heads_together);
  EXPECT_EQ(plan.units, 8);
  EXPECT_EQ(plan.rows, 8);
  EXPECT_EQ(plan.tiles, 1);
}

TEST(ForwardSchedule, AQueryShorterThanHalfAStripIsFilledWithTheHeadsOfItsGroup) {
  EXPECT_TRUE(plan_sequence(kTraits, 32, 8, 16, 4096, 4).heads_together);
  EXPECT_FALSE(plan_sequence(kTraits, 32, 8, 32, 4096, 4).heads_together);
  EXPECT_FALSE(plan_sequence(kTraits, 8, 8, 16, 4096, 4).heads_together);
}

TEST(ForwardSchedule, KeysAreSplitInWholeBlocksIntoAtMostSixteenParts) {
  for (std::int64_t s_k : {1, 1024, 1025, 4096, 16384, 16385, 100000, 1 << 20}) {
    const SequencePlan plan = plan_sequence(kTraits, 4, 4, 1, s_k, 4);
    EXPECT_LE(plan.splits, kMaxSplits);
    EXPECT_GE(plan.splits * plan.keys_per_split, s_k);
    if (plan.splits > 1) {
      EXPECT_EQ(plan.keys_per_split % kKeyBlock, 0) << s_k;
      EXPECT_LT((plan.splits - 1) * plan.keys_per_split, s_k) << "a part without keys, s_k = " << s_k;
    }
  }
  EXPECT_EQ(plan_sequence(kTraits, 4, 4, 1, 1024, 4).splits, 1);
  EXPECT_EQ(plan_sequence(kTraits, 4, 4, 1000, 100000, 4).splits, 1);
}

TEST(ForwardSchedule, WhatShowsInTheBitsDoesNotDependOnTheStripsOfATile) {
  for (std::int64_t s_q : {1, 7, 31, 64, 65, 1000})
    for (std::int64_t s_k : {1, 500, 5000}) {
      const SequencePlan one = plan_sequence(kTraits, 8, 2, s_q, s_k, 1),
                         four = plan_sequence(kTraits, 8, 2, s_q, s_k, 4);
      EXPECT_EQ(one.use_rows_kernel, four.use_rows_kernel);
      EXPECT_EQ(one.heads_together, four.heads_together);
      EXPECT_EQ(one.splits, four.splits);
      EXPECT_EQ(one.keys_per_split, four.keys_per_split);
    }
}

TEST(ForwardSchedule, ThePartialRowsOfEverySequenceFitTheBound) {
  for (std::int64_t heads_k : {1, 2, 8})
    for (std::int64_t group : {1, 2, 5, 16})
      for (std::int64_t s_q : {1, 3, 31, 32, 64, 65})
        for (std::int64_t s_k : {100, 3000, 50000}) {
          const auto problem =
              Problem::forward().batch(3).heads(heads_k * group, heads_k).lengths(s_q, s_k).logical_lengths(true, true);
          std::int64_t rows = 0;
          for (int b = 0; b < 3; ++b)
            rows += plan_sequence(kTraits, heads_k * group, heads_k, s_q - b / 2, s_k - b, 4).partial_rows();
          EXPECT_LE(rows, most_partial_rows(problem, kTraits)) << problem.to_string();
        }
}

TEST(ForwardSchedule, ABatchOfEqualSequencesHasRoomForExactlyTheirPartialRows) {
  for (std::int64_t s_q : {1, 32, 64, 65, 2048}) {
    const auto problem = Problem::forward().batch(8).heads(32, 8).lengths(s_q, 8192);
    EXPECT_EQ(most_partial_rows(problem, kTraits), 8 * plan_sequence(kTraits, 32, 8, s_q, 8192, 4).partial_rows())
        << s_q;
  }
  // Long queries share out strips: their workspace must not grow with batch and heads.
  EXPECT_EQ(most_partial_rows(Problem::forward().batch(8).heads(32).lengths(2048, 2048), kTraits), 0);
}

TEST(ForwardSchedule, ATileHasMoreStripsWhenPackingIsDearAndFewerWhenThreadsWouldIdle) {
  const auto problem = Problem::forward().batch(1).heads(16).lengths(2048, 2048).head_dims(128);
  ScheduleTraits dear = kTraits;
  dear.packing = 0.5;
  EXPECT_LE(strips_per_tile(problem, kTraits, 16), strips_per_tile(problem, dear, 16));
  EXPECT_EQ(strips_per_tile(Problem::forward().batch(1).heads(2).lengths(128, 128), kTraits, 16), 1);
}

}  // namespace
}  // namespace heed::cpu
