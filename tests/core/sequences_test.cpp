#include "core/sequences.hpp"

#include "core/forward_buffers.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace heed::core {
namespace {

TEST(Sequences, BatchModeGivesEveryEntryTheWholeTensor) {
  BatchBuffers buffers;
  const Sequences sequences(buffers.args());
  ASSERT_EQ(sequences.size(), 2);
  EXPECT_EQ(sequences[0], (Sequence{0, 0, 3, 5}));
  EXPECT_EQ(sequences[1], (Sequence{0, 0, 3, 5}));
}

TEST(Sequences, LogicalLengthsShortenABatch) {
  BatchBuffers buffers;
  ForwardArgs args = buffers.args();
  const std::int64_t lengths_q[] = {0, 2};
  args.seqlen_q = {lengths_q, i64, {2}};
  EXPECT_EQ(Sequences(args)[0], (Sequence{0, 0, 0, 5}));
  const std::int32_t lengths_k[] = {4, 5};
  args.seqlen_k = {lengths_k, i32, {2}};
  EXPECT_EQ(Sequences(args)[0], (Sequence{0, 0, 0, 4}));
  EXPECT_EQ(Sequences(args)[1], (Sequence{0, 0, 2, 5}));
}

TEST(Sequences, GroupModeReadsOffsetsOfEitherType) {
  GroupBuffers buffers;
  const Sequences sequences(buffers.args());
  ASSERT_EQ(sequences.size(), 3);
  EXPECT_EQ(sequences[0], (Sequence{0, 1, 3, 1}));
  EXPECT_EQ(sequences[1], (Sequence{3, 2, 0, 4}));
  EXPECT_EQ(sequences[2], (Sequence{3, 6, 2, 3}));
}

TEST(Sequences, LogicalLengthsLeaveTheRestOfASequenceAsPadding) {
  GroupBuffers buffers;
  ForwardArgs args = buffers.args();
  const std::int32_t lengths_k[] = {1, 0, 2};
  args.seqlen_k = {lengths_k, i32, {3}};
  EXPECT_EQ(Sequences(args)[1], (Sequence{3, 2, 0, 0}));
  EXPECT_EQ(Sequences(args)[2], (Sequence{3, 6, 2, 2}));
}

TEST(Sequences, IndexArraysMayBeStridedAndUnaligned) {
  unsigned char memory[64] = {};
  const std::int32_t values[] = {5, -1, 7, -1, 9};
  std::memcpy(memory + 3, values, sizeof values);
  const IndexArray array(TensorView{memory + 3, i32, {3}, {2}});
  EXPECT_EQ(array.size(), 3);
  EXPECT_EQ(array[0], 5);
  EXPECT_EQ(array[1], 7);
  EXPECT_EQ(array[2], 9);
}

TEST(Sequences, StridesAreOneFormulaForBothModes) {
  float x = 0;
  EXPECT_EQ(strides_of(TensorView{&x, f32, {2, 3, 4, 8}}), (Strides{96, 32, 8, 1}));
  EXPECT_EQ(strides_of(TensorView{&x, f32, {6, 4, 8}}), (Strides{0, 32, 8, 1}));
}

TEST(Sequences, BroadcastStridesAreAlignedFromTheRight) {
  float x = 0;
  EXPECT_EQ(broadcast_strides(TensorView{&x, f32, {2, 4, 3, 5}}), (ScoreStrides{60, 15, 5, 1}));
  EXPECT_EQ(broadcast_strides(TensorView{&x, f32, {2, 1, 3, 5}}), (ScoreStrides{15, 0, 5, 1}));
  EXPECT_EQ(broadcast_strides(TensorView{&x, f32, {3, 1}}), (ScoreStrides{0, 0, 1, 0}));
  EXPECT_EQ(broadcast_strides(TensorView{&x, f32, {5}, {-1}}), (ScoreStrides{0, 0, 0, -1}));
  EXPECT_EQ((ScoreStrides{60, 15, 5, 1}.at(1, 2, 1, 4)), 60 + 30 + 5 + 4);
}

TEST(Sequences, LseAndSlopesHaveOneFormulaForBothShapes) {
  float x = 0;
  const LseStrides batch = lse_strides(TensorView{&x, f32, {2, 4, 3}}),
                   group = lse_strides(TensorView{&x, f32, {4, 6}});
  EXPECT_EQ(batch.batch * 1 + batch.head * 2 + batch.row * 1, 12 + 6 + 1);
  EXPECT_EQ(group.batch * 1 + group.head * 2 + group.row * 5, 12 + 5);
  const SlopeStrides per_head = alibi_strides(TensorView{&x, f32, {4}}),
                     both = alibi_strides(TensorView{&x, f32, {2, 4}});
  EXPECT_EQ(per_head.batch * 1 + per_head.head * 3, 3);
  EXPECT_EQ(both.batch * 1 + both.head * 3, 7);
}

}  // namespace
}  // namespace heed::core
