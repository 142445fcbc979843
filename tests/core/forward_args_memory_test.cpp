/// What Problem::of asks of lengths that are told, and of arguments that lie in GPU memory.

#include "core/forward_args_checks.hpp"

#include <cstdint>
#include <vector>

namespace heed {
namespace {

void gpu_refuses(const ForwardArgs& args, Pieces pieces) {
  expect_invalid([&] { Problem::of(args, Memory::gpu); }, pieces);
}

TEST(ForwardMemory, BatchModeIsTheSameProblemInBoth) {
  BatchBuffers buffers;
  EXPECT_EQ(Problem::of(buffers.args(), Memory::gpu), Problem::of(buffers.args()));
}

// A GPU ends all work of the process where an element is not at a multiple of its size; a processor reads it.
TEST(ForwardMemory, ElementsInGpuMemoryBeginAtMultiplesOfTheirSize) {
  BatchBuffers buffers;
  ForwardArgs args = buffers.args();
  args.lse = {buffers.lse.data(), f32, {2, 4, 3}};
  const auto moved = [](void* data) { return static_cast<void*>(static_cast<std::byte*>(data) + 2); };
  args.lse.data = moved(args.lse.data);
  gpu_refuses(args, {"lse begins 2 bytes behind a multiple of 4", "in GPU memory f32"});
  EXPECT_NO_THROW(Problem::of(args));
  args.lse = {};
  args.k.data = moved(buffers.k.data());
  gpu_refuses(args, {"k begins 2 bytes behind a multiple of 4"});
}

TEST(ForwardMemory, ListsInGpuMemoryAreNotRead) {
  GroupBuffers buffers;
  ForwardArgs args = buffers.args();
  // Whoever read these would be killed.
  args.seqstart_q.data = args.seqstart_k.data = args.seqlen_k.data = reinterpret_cast<const void*>(64);
  args.seqlen_k = {args.seqlen_k.data, i64, {3}};
  const Problem problem = Problem::of(args, Memory::gpu);
  EXPECT_EQ(problem.batch(), 3);
  EXPECT_EQ(problem.s_q(), 6);  // as many as there are rows
  EXPECT_EQ(problem.s_k(), 9);
  EXPECT_TRUE(problem.logical_k());
  EXPECT_FALSE(problem.logical_q());

  BatchBuffers batch;
  args = batch.args();
  args.seqlen_q = {reinterpret_cast<const void*>(64), i32, {2}};
  EXPECT_TRUE(Problem::of(args, Memory::gpu).logical_q());
}

TEST(ForwardMemory, ABoundIsTheLengthOfTheProblemInBoth) {
  GroupBuffers buffers;
  ForwardArgs args = buffers.args();
  args.max_s_q = 5, args.max_s_k = 4;
  for (const Memory memory : {Memory::host, Memory::gpu}) {
    const Problem problem = Problem::of(args, memory);
    EXPECT_EQ(problem.s_q(), 5);
    EXPECT_EQ(problem.s_k(), 4);
  }
}

TEST(ForwardMemory, ABoundThatCannotBeIsRefused) {
  group_refuses([](ForwardArgs& a, GroupBuffers&) { a.max_s_q = 2; }, {"max_s_q = 2", "a sequence has 3 rows"});
  group_refuses([](ForwardArgs& a, GroupBuffers&) { a.max_s_k = 3; }, {"max_s_k = 3", "4 or more"});
  group_refuses([](ForwardArgs& a, GroupBuffers&) { a.max_s_k = 10; }, {"total_k = 9", "s_k = 10"});
  batch_refuses([](ForwardArgs& a, BatchBuffers&) { a.max_s_q = 3; }, {"max_s_q = 3", "in batch mode", "leave them 0"});
  GroupBuffers group;
  BatchBuffers batch;
  for (const std::int64_t negative : {std::int64_t{-1}, INT64_MIN}) {
    group_refuses([&](ForwardArgs& a, GroupBuffers&) { a.max_s_q = negative; }, {"max_s_q = -", "0 or more"});
    ForwardArgs args = group.args();
    args.max_s_k = negative;
    gpu_refuses(args, {"max_s_k = -", "0 or more"});
  }
  ForwardArgs args = batch.args();
  args.max_s_k = 5;
  gpu_refuses(args, {"max_s_k = 5", "in batch mode"});
}

TEST(ForwardMemory, ShapesOfListsAreCheckedWhereverTheyLie) {
  GroupBuffers buffers;
  ForwardArgs args = buffers.args();
  args.seqstart_k.sizes[0] = 3;
  gpu_refuses(args, {"seqstart_q and seqstart_k have 4 and 3 entries"});
  args = buffers.args();
  args.seqstart_q.type = f32;
  gpu_refuses(args, {"seqstart_q is f32"});
  args = buffers.args();
  args.seqlen_q = {buffers.starts_q.data(), i32, {2}};
  gpu_refuses(args, {"seqlen_q has 2 entries for a batch of 3"});
  args = buffers.args();
  args.seqstart_k = {};
  gpu_refuses(args, {"seqstart_q is given without seqstart_k"});
}

TEST(ForwardMemory, TensorsOverScoresHoldTheBound) {
  GroupBuffers buffers;
  ForwardArgs args = buffers.args();
  args.bias = {buffers.other.data(), f32, {3, 4}};
  EXPECT_EQ(Problem::of(args).s_q(), 3);
  gpu_refuses(args, {"bias is [3, 4]"});  // nobody knows that no sequence is longer
  args.max_s_q = 3, args.max_s_k = 4;
  EXPECT_EQ(Problem::of(args, Memory::gpu), Problem::of(args));
}

TEST(ForwardMemory, ADropoutStateIsTwoWholeNumbers) {
  const std::vector<std::int64_t> state{1, 2, 3};
  batch_accepts([&](ForwardArgs& a, BatchBuffers&) { a.dropout = {.p = 0.5, .state = {state.data(), i64, {2}}}; });
  batch_refuses(
      [&](ForwardArgs& a, BatchBuffers&) {
        a.dropout.state = {state.data(), i32, {2}};
      },
      {"dropout.state is i32", "i64"});
  batch_refuses(
      [&](ForwardArgs& a, BatchBuffers&) {
        a.dropout.state = {state.data(), i64, {3}};
      },
      {"dropout.state is [3]", "must be 2"});
  batch_refuses(
      [&](ForwardArgs& a, BatchBuffers&) {
        a.dropout.state = {state.data(), i64, {1, 2}};
      },
      {"dropout.state is [1, 2]", "[2]"});
  batch_refuses(
      [&](ForwardArgs& a, BatchBuffers&) {
        a.dropout.state = {nullptr, i64, {2}};
      },
      {"dropout.state", "null"});
}

}  // namespace
}  // namespace heed
