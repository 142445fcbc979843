#include "core/expect_invalid.hpp"
#include "core/forward_buffers.hpp"

#include <heed/work.hpp>

#include <random>

namespace heed {
namespace {

double pairs_by_counting(const Mask& mask, std::int64_t s_q, std::int64_t s_k) {
  const MaskBounds bounds = mask.bounds(s_q, s_k);
  double pairs = 0;
  for (std::int64_t i = 0; i < s_q; ++i)
    for (std::int64_t j = 0; j < s_k; ++j) pairs += bounds.visible(i, j) ? 1 : 0;
  return pairs;
}

double pairs_of(const Mask& mask, std::int64_t s_q, std::int64_t s_k) {
  return work_of(Problem::forward().lengths(s_q, s_k).mask(mask)).visible_pairs;
}

TEST(Work, VisiblePairsAreCountedExactlyForAllSmallSizes) {
  for (const char* const text : {"n", "t", "b", "t:2,1", "b:2,1", "b:3,0,2", "t:-1,2", "b:1,-1", "t:1,0,4", "xb:3",
                                 "g:2,1", "g:-1,4", "g:4,-2", "g:0,0", "g:3,9"})
    for (std::int64_t s_q = 0; s_q < 9; ++s_q)
      for (std::int64_t s_k = 0; s_k < 9; ++s_k)
        ASSERT_EQ(pairs_of(Mask::parse(text), s_q, s_k), pairs_by_counting(Mask::parse(text), s_q, s_k))
            << text << " " << s_q << "x" << s_k;
}

TEST(Work, VisiblePairsAreCountedExactlyForRandomMasks) {
  std::mt19937 random(9);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<std::int64_t>(low, high)(random); };
  for (int round = 0; round < 3000; ++round) {
    const Mask mask = pick(0, 1) == 0 ? Mask::raw(pick(-40, 40), pick(-40, 40))
                                      : Mask::window(pick(-2, 40), pick(-2, 40), pick(0, 1) * pick(0, 40));
    const std::int64_t s_q = pick(0, 40), s_k = pick(0, 40);
    ASSERT_EQ(pairs_of(mask, s_q, s_k), pairs_by_counting(mask, s_q, s_k))
        << mask.to_string() << " " << s_q << "x" << s_k;
  }
}

TEST(Work, LongSequencesCostNoTime) {
  constexpr std::int64_t kLong = std::int64_t{1} << 24;
  EXPECT_EQ(pairs_of(Mask::causal(), kLong, kLong), 0x1p23 * (0x1p24 + 1));
}

TEST(Work, IsSummedOverBatchAndQueryHeads) {
  const Work work = work_of(
      Problem::forward().type(bf16).batch(2).heads(8, 2).lengths(16, 32).head_dims(64, 32).output_type(f32).lse(true));
  EXPECT_EQ(work.visible_pairs, 2 * 8 * 16 * 32);
  EXPECT_EQ(work.flops, 2.0 * work.visible_pairs * (64 + 32));
  const double q = 2 * 16 * 8 * 64, k = 2 * 32 * 2 * 64, v = 2 * 32 * 2 * 32, o = 2 * 16 * 8 * 32;
  EXPECT_EQ(work.bytes, 2 * (q + k + v) + 4 * o + 4 * 2 * 8 * 16);
}

TEST(Work, BiasCountsTheElementsItHas) {
  const Problem plain = Problem::forward().type(f16).batch(3).heads(4).lengths(16, 32);
  const auto bias_bytes = [&](const BiasSpec& bias) {
    return work_of(Problem(plain).bias(bias)).bytes - work_of(plain).bytes;
  };
  EXPECT_EQ(bias_bytes({f32, {}}), 4 * 32);
  EXPECT_EQ(bias_bytes({f16, {.query = true}}), 2 * 16 * 32);
  EXPECT_EQ(bias_bytes({f32, {.batch = true, .head = true, .query = true}}), 4 * 3 * 4 * 16 * 32);
}

TEST(Work, WhatIsSharedByStrideZeroIsReadOnce) {
  const Problem own = Problem::forward().type(f32).batch(3).heads(4, 2).lengths(16, 32).head_dims(8);
  Problem shared = own;
  shared.strides(Operand::k, {0, 16, 8, 1});
  EXPECT_EQ(work_of(own).bytes - work_of(shared).bytes, 4 * 2 * 32 * 2 * 8);
  EXPECT_EQ(work_of(own).flops, work_of(shared).flops);
}

TEST(Work, GroupModeCountsEachSequence) {
  GroupBuffers buffers;
  ForwardArgs args = buffers.args();
  args.mask = Mask::causal();
  const Work work = work_of(args);
  // s_q x s_k = 3x1, 0x4, 2x3; bottom-right causal sees 1, 0, 2 + 3 pairs.
  EXPECT_EQ(work.visible_pairs, 4 * (1 + 0 + 5));
  EXPECT_EQ(work.bytes, 4 * (5 * 4 * 8 + 8 * 2 * 8 + 8 * 2 * 6 + 5 * 4 * 6));
}

TEST(Work, LogicalLengthsCountAndPaddingDoesNot) {
  BatchBuffers buffers;
  ForwardArgs args = buffers.args();
  const std::int32_t lengths_q[] = {1, 3}, lengths_k[] = {0, 4};
  args.seqlen_q = {lengths_q, i32, {2}};
  args.seqlen_k = {lengths_k, i32, {2}};
  const Work work = work_of(args);
  EXPECT_EQ(work.visible_pairs, 4 * 3 * 4);
  EXPECT_EQ(work.bytes, 4 * (4 * 4 * 8 + 4 * 2 * 8 + 4 * 2 * 6 + 4 * 4 * 6));
}

TEST(Work, ArgumentsAndProblemAgree) {
  BatchBuffers buffers;
  ForwardArgs args = buffers.args();
  args.mask = Mask::window(1, 0);
  const Work a = work_of(args), b = work_of(Problem::of(args));
  EXPECT_EQ(a.visible_pairs, b.visible_pairs);
  EXPECT_EQ(a.flops, b.flops);
  EXPECT_EQ(a.bytes, b.bytes);
}

TEST(Work, OfUnknownLengthsCannotBeTold) {
  expect_invalid([] { work_of(Problem::forward().logical_lengths(true, false)); }, {"work_of(args)"});
  expect_invalid([] { work_of(Problem::forward().mode(Mode::group).total_rows(4, 4)); }, {"batch mode"});
  expect_invalid([] { work_of(Problem::forward().heads(3, 2)); }, {"h = 3"});
}

}  // namespace
}  // namespace heed
