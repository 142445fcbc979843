#include <heed/plan.hpp>

#include "dispatch/fakes.hpp"
#include "dispatch/plan_impl.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace heed {
namespace {

using dispatch::first_difference;
using testing::error_of;
using testing::FakeContext;
using testing::FakeSpec;
using ::testing::HasSubstr;
using testing::SmallProblem;

/// A kernel that splits, then combines, over one workspace.
FakeSpec split_and_combine(std::function<void(const dispatch::ForwardCall&)> run = [](const auto&) {}) {
  return {.stages = {{.kernel = "a", .purpose = "split", .workspace_offset = 0, .workspace_bytes = 1000},
                     {.kernel = "b", .purpose = "combine", .workspace_offset = 1024, .workspace_bytes = 500}},
          .run = std::move(run)};
}

struct alignas(64) Workspace {
  std::array<std::byte, 4096> bytes;
};

TEST(Plan, knows_stages_workspace_and_threads_before_running) {
  FakeContext fake({split_and_combine()}, 3);
  SmallProblem small;
  const Plan plan = fake.context->plan(Problem::of(small.args()));
  EXPECT_EQ(plan.problem(), Problem::of(small.args()));
  EXPECT_EQ(plan.kernel(), "cpu/baseline/fwd_fake");
  ASSERT_EQ(plan.stages().size(), 2u);
  EXPECT_EQ(plan.stages()[1].purpose, "combine");
  EXPECT_EQ(plan.workspace_bytes(), 1524u);
  EXPECT_EQ(plan.threads(), 3);
  EXPECT_THAT(plan.explain(), HasSubstr("kernel      cpu/baseline/fwd_fake\n"));
}

TEST(Plan, hands_the_kernel_what_it_was_given) {
  Workspace workspace;
  SmallProblem small;
  const dispatch::ForwardCall* seen = nullptr;
  FakeContext fake({split_and_combine([&](const dispatch::ForwardCall& call) {
    seen = &call;
    EXPECT_EQ(call.args.q.data, small.q.data());
    EXPECT_EQ(call.workspace.data(), workspace.bytes.data());
    EXPECT_EQ(call.workspace.size(), workspace.bytes.size());
    EXPECT_EQ(call.executor.concurrency(), 1);
    EXPECT_EQ(call.threads, 7);
    EXPECT_EQ(call.prepared, nullptr);
  })});
  const Plan plan = fake.context->plan(Problem::of(small.args()), {.threads = 7});
  plan.run(small.args(), workspace.bytes);
  EXPECT_NE(seen, nullptr);
}

TEST(Plan, outlives_its_context) {
  Workspace workspace;
  SmallProblem small;
  auto fake = std::make_unique<FakeContext>(std::vector{split_and_combine()});
  const Plan plan = fake->context->plan(Problem::of(small.args()));
  fake.reset();
  plan.run(small.args(), workspace.bytes);
  EXPECT_THAT(plan.explain(), HasSubstr("cpu/baseline/fwd_fake"));
}

TEST(Plan, refuses_arguments_that_pose_another_problem_and_names_the_first_difference) {
  Workspace workspace;
  SmallProblem small;
  FakeContext fake({split_and_combine()});
  const Plan plan = fake.context->plan(Problem::of(small.args()).mask(Mask::causal()));
  const auto error = error_of([&] { plan.run(small.args(), workspace.bytes); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_STREQ(error->what(),
               "these arguments pose another problem than the plan's: the mask is n, the plan was made for b.");
  EXPECT_EQ(fake.engine->kernel(0).runs, 0);
}

TEST(Plan, of_a_problem_with_wishes_that_arguments_cannot_tell_can_be_run) {
  Workspace workspace;
  SmallProblem small;
  FakeContext fake({split_and_combine()});
  fake.context->plan(Problem::of(small.args()).deterministic(false)).run(small.args(), workspace.bytes);
  EXPECT_EQ(fake.engine->kernel(0).runs, 1);
}

TEST(Plan, refuses_a_workspace_that_is_too_small_or_lies_askew) {
  Workspace workspace;
  SmallProblem small;
  FakeContext fake({split_and_combine()});
  const Plan plan = fake.context->plan(Problem::of(small.args()));
  const auto bytes = std::span(workspace.bytes);
  const auto too_small = error_of([&] { plan.run(small.args(), bytes.first(1523)); });
  ASSERT_TRUE(too_small);
  EXPECT_EQ(too_small->code(), ErrorCode::invalid_argument);
  EXPECT_STREQ(too_small->what(), "the workspace holds 1523 bytes, this plan needs 1524.");
  const auto askew = error_of([&] { plan.run(small.args(), bytes.subspan(8)); });
  ASSERT_TRUE(askew);
  EXPECT_STREQ(askew->what(), "the workspace begins 8 bytes behind a multiple of 64: it must be aligned to 64 bytes.");
  plan.run(small.args(), bytes.first(1524));
  EXPECT_EQ(fake.engine->kernel(0).runs, 1);
}

TEST(Plan, refuses_a_workspace_that_overlaps_a_tensor_and_names_it) {
  struct alignas(64) Memory {
    std::array<float, 4096> numbers{};
  } memory;
  SmallProblem small;
  FakeContext fake({split_and_combine()});
  const Plan plan = fake.context->plan(Problem::of(small.args()));
  const auto whole = std::as_writable_bytes(std::span(memory.numbers));
  const auto run_with_o_at = [&](std::size_t byte) {
    ForwardArgs args = small.args();
    args.o.data = whole.subspan(byte).data();
    return error_of([&] { plan.run(args, whole.subspan(4096, 2048)); });
  };
  const auto error = run_with_o_at(4096);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_STREQ(error->what(),
               "the workspace and o overlap in memory: the 1524 bytes that this plan needs must be its own.");
  const std::size_t o_bytes = small.o.size() * sizeof(float);
  EXPECT_TRUE(run_with_o_at(4096 - o_bytes + 4));
  EXPECT_TRUE(run_with_o_at(4096 + 1520));
  EXPECT_EQ(fake.engine->kernel(0).runs, 0);
  // Beside it there is room on both sides, and behind the bytes that the plan uses.
  EXPECT_FALSE(run_with_o_at(4096 - o_bytes));
  EXPECT_FALSE(run_with_o_at(4096 + 1524));
  EXPECT_EQ(fake.engine->kernel(0).runs, 2);
}

// One buffer for everything: the workspace lies between the entries of a batch.
TEST(Plan, runs_in_a_workspace_that_lies_in_the_gaps_of_a_tensor) {
  struct alignas(64) Memory {
    std::array<float, 8192> numbers{};
  } memory;
  SmallProblem small;
  FakeContext fake({split_and_combine()});
  ForwardArgs args = small.args();
  ASSERT_GT(args.q.size(0), 1);
  args.q.data = memory.numbers.data();
  args.q.strides[0] = 4096;
  const Plan plan = fake.context->plan(Problem::of(args));
  const auto whole = std::as_writable_bytes(std::span(memory.numbers));
  plan.run(args, whole.subspan(8192, 2048));
  EXPECT_EQ(fake.engine->kernel(0).runs, 1);
  const auto error = error_of([&] { plan.run(args, whole.subspan(4096 * sizeof(float), 2048)); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("the workspace and q overlap"));
}

TEST(Plan, without_workspace_needs_none) {
  SmallProblem small;
  FakeContext fake({FakeSpec{}});
  const Plan plan = fake.context->plan(Problem::of(small.args()));
  EXPECT_EQ(plan.workspace_bytes(), 0u);
  plan.run(small.args(), {});
  EXPECT_EQ(fake.engine->kernel(0).runs, 1);
}

TEST(Plan, refuses_an_executor_that_brings_more_workers_than_it_has_scratch_for) {
  SmallProblem small;
  FakeContext fake({FakeSpec{}});
  const Plan plan = fake.context->plan(Problem::of(small.args()), {.threads = 2});
  ThreadPool three(3), two(2);
  const auto error = error_of([&] { plan.run(small.args(), {}, &three); });
  ASSERT_TRUE(error);
  EXPECT_STREQ(error->what(), "the executor brings 3 workers, this plan was made for 1 to 2 (PlanOptions::threads).");
  plan.run(small.args(), {}, &two);
}

TEST(Plan, refuses_invalid_arguments_before_anything_else) {
  SmallProblem small;
  FakeContext fake({FakeSpec{}});
  const Plan plan = fake.context->plan(Problem::of(small.args()));
  auto args = small.args();
  args.k.data = nullptr;
  const auto error = error_of([&] { plan.run(args, {}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_EQ(fake.engine->kernel(0).runs, 0);
}

TEST(Plan, of_an_invalid_problem_is_refused) {
  FakeContext fake({FakeSpec{}});
  const auto error = error_of([&] { fake.context->plan(Problem::forward().type(f32).heads(6, 4)); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
}

// A kernel whose table of stages is wrong would write where another stage reads.
TEST(Plan, a_stage_that_begins_askew_in_the_workspace_is_a_defect) {
  SmallProblem small;
  FakeContext fake(
      {FakeSpec{.stages = {{.kernel = "a", .purpose = "main", .workspace_offset = 8, .workspace_bytes = 8}}}});
  const auto error = error_of([&] { fake.context->plan(Problem::of(small.args())); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::internal);
}

TEST(ProblemDifference, names_each_property) {
  const auto base = [] { return Problem::forward().type(f32).batch(2).heads(8, 2).lengths(16, 32).head_dims(64, 32); };
  EXPECT_EQ(first_difference(base(), base()), "");
  EXPECT_EQ(first_difference(base(), base().lengths(16, 33)), "s_k is 33, the plan was made for 32");
  EXPECT_EQ(first_difference(base(), base().type(bf16)), "the type of q, k and v is bf16, the plan was made for f32");
  EXPECT_EQ(first_difference(base(), base().lse(true)), "lse given is yes, the plan was made for no");
  EXPECT_EQ(first_difference(base(), base().scale(2)), "the scale is 2, the plan was made for 0.125");
  EXPECT_EQ(first_difference(base(), base().bias(BiasSpec{f32, {.head = true}})),
            "the bias is f32 [1, h, 1, s_k], the plan was made for none");
  EXPECT_EQ(
      first_difference(base(), base().layout(Layout::bhsd)),
      "(batch, sequence, head, dim) strides of q is (8192, 64, 1024, 1), the plan was made for (8192, 512, 64, 1)");
}

TEST(ProblemDifference, does_not_name_what_is_only_told_differently) {
  // The window of a mask without left edge hides nothing that a sink could bring back.
  const auto base = [] { return Problem::forward().type(f32).batch(1).lengths(16, 32); };
  const auto plan = base().bias(BiasSpec{f32, {.batch = true}});
  const auto call = base().bias(BiasSpec{f32, {.batch = false}}).lse(true);
  EXPECT_EQ(first_difference(plan, call), "lse given is yes, the plan was made for no");
}

}  // namespace
}  // namespace heed
