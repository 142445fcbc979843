#include "capi/c_args.hpp"
#include "capi/convert.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace heed {
namespace {

using testing::CContext;
using testing::CProblem;
using testing::FakeSpec;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Of heed_forward_args in the first release.
constexpr std::size_t kFirstSize = 1304;

/// What heed_forward says to these arguments: "" when it runs.
std::string refusal(const heed_forward_args* args, const heed_run_options* options = nullptr) {
  CContext context;
  const heed_status status = heed_forward(context, args, options);
  EXPECT_EQ(context.fake.engine->kernel(0).runs, status == HEED_OK ? 1 : 0);
  if (status == HEED_OK) return "";
  EXPECT_EQ(status, HEED_INVALID_ARGUMENT);
  return heed_last_error();
}

TEST(CForward, runs_what_the_arguments_pose) {
  CProblem problem;
  heed_forward_args args = problem.args();
  args.mask = HEED_MASK_CAUSAL;
  args.scale = 0.5;
  args.math = HEED_MATH_ACCURATE;
  CContext context({FakeSpec{.run = [&](const dispatch::ForwardCall& call) {
    EXPECT_EQ(call.problem.batch(), CProblem::b);
    EXPECT_EQ(call.problem.mask(), Mask::causal());
    EXPECT_EQ(call.problem.scale(), 0.5);
    EXPECT_EQ(call.problem.math(), Math::accurate);
    EXPECT_EQ(call.args.o.data, problem.o.data());
  }}});
  EXPECT_EQ(heed_forward(context, &args, nullptr), HEED_OK) << heed_last_error();
  EXPECT_EQ(context.fake.engine->kernel(0).runs, 1);
}

TEST(CForward, null_arguments_are_named) {
  EXPECT_EQ(refusal(nullptr), "args is NULL: it must be given.");
  CProblem problem;
  auto args = problem.args();
  args.v.data = nullptr;
  EXPECT_THAT(refusal(&args), StartsWith("v"));
}

TEST(CForward, a_struct_size_that_is_too_small_is_refused) {
  CProblem problem;
  auto args = problem.args();
  args.struct_size = 0;
  EXPECT_EQ(refusal(&args),
            "heed_forward_args: struct_size = 0 : it must be sizeof(heed_forward_args), 1400 in this version and never "
            "less than 1304.");
  args.struct_size = kFirstSize - 1;
  EXPECT_THAT(refusal(&args), HasSubstr("struct_size = 1303"));
}

// A program built with the first header knows nothing of what was added, and what lies behind its struct is not read.
TEST(CForward, a_smaller_struct_of_an_older_program_is_taken) {
  CProblem problem;
  auto args = problem.args();
  args.max_s_q = -7;
  args.dropout_state.rank = 99;
  EXPECT_THAT(refusal(&args), HasSubstr("dropout_state.rank = 99"));
  args.struct_size = kFirstSize;
  EXPECT_EQ(refusal(&args), "");
}

TEST(CForward, bounds_and_a_dropout_state_arrive) {
  CProblem problem;
  auto args = problem.args();
  args.max_s_k = 3;
  EXPECT_THAT(refusal(&args), HasSubstr("max_s_k = 3: in batch mode"));
  args.max_s_k = 0;
  std::int64_t state[2] = {5, 6};
  args.dropout_p = 0.5;
  args.dropout_state = {state, HEED_I64, 1, {2}, {1}};
  CContext context({FakeSpec{.run = [&](const dispatch::ForwardCall& call) {
    EXPECT_EQ(call.args.dropout.state.data, state);
    EXPECT_EQ(call.args.dropout.state.type, i64);
    EXPECT_EQ(call.args.dropout.state.size(0), 2);
  }}});
  EXPECT_EQ(heed_forward(context, &args, nullptr), HEED_OK) << heed_last_error();
}

// A program built with a later header sends fields this library has not heard of.
TEST(CForward, a_larger_struct_is_taken_when_what_is_new_in_it_is_not_used) {
  struct Newer {
    heed_forward_args known;
    double feature;
  };
  CProblem problem;
  Newer newer{problem.args(), 0};
  newer.known.struct_size = sizeof newer;
  EXPECT_EQ(refusal(&newer.known), "");
  newer.feature = 1;
  EXPECT_THAT(refusal(&newer.known), HasSubstr("a field behind byte 1400 is set; this library (version "));
}

TEST(CForward, numbers_that_name_nothing_are_refused_with_the_field) {
  CProblem problem;
  const auto with = [&](auto&& change) {
    auto args = problem.args();
    change(args);
    return refusal(&args);
  };
  EXPECT_EQ(with([](auto& a) { a.k.type = 12; }), "k.type = 12 : a heed_type is 0 to 11.");
  EXPECT_EQ(with([](auto& a) { a.k.type = -1; }), "k.type = -1 : a heed_type is 0 to 11.");
  EXPECT_EQ(with([](auto& a) { a.o.rank = 5; }), "o.rank = 5 : it must be 0 (not given) to 4.");
  EXPECT_EQ(with([](auto& a) { a.lse.rank = -1; }), "lse.rank = -1 : it must be 0 (not given) to 4.");
  float bias = 0;
  EXPECT_EQ(with([&](auto& a) {
              a.bias = {&bias, HEED_F32, 0, {}, {}};
            }),
            "bias: a pointer with no sizes; give its shape, or leave it out altogether.");
  EXPECT_EQ(with([](auto& a) { a.math = 2; }), "math = 2 : a heed_math is 0 to 1.");
  EXPECT_EQ(with([](auto& a) { a.mask.kind = 4; }), "mask.kind = 4 : a heed_mask_kind is 0 to 3.");
  EXPECT_EQ(with([](auto& a) { a.reserved = 1; }), "args.reserved = 1 : it must be 0.");
  EXPECT_EQ(with([](auto& a) { a.mask.left = 3; }),
            "mask.kind is HEED_MASK_NONE, but left, right or sink is set (3, 0, 0).");
  EXPECT_EQ(with([](auto& a) {
              a.mask = {HEED_MASK_RAW, 0, 1, 1, 4};
            }),
            "mask.sink = 4 : raw coordinates have no sink.");
}

TEST(CForward, a_rule_of_the_contract_is_told_as_in_cpp) {
  CProblem problem;
  auto args = problem.args();
  args.soft_cap = -2;
  const std::string told = refusal(&args);
  const auto error = testing::error_of([&] { Problem::of(capi::forward_args(&args)); });
  ASSERT_TRUE(error);
  EXPECT_EQ(told, error->what());
}

TEST(CForward, an_engine_that_is_not_there_is_unsupported) {
  CProblem problem;
  auto args = problem.args();
  CContext context;
  heed_run_options options{};
  options.struct_size = sizeof options;
  options.engine = HEED_ENGINE_CUDA;
  EXPECT_EQ(heed_forward(context, &args, &options), HEED_UNSUPPORTED);
  EXPECT_THAT(heed_last_error(), HasSubstr("this build has no CUDA engine"));
  options.engine = 3;
  EXPECT_EQ(heed_forward(context, &args, &options), HEED_INVALID_ARGUMENT);
  EXPECT_STREQ(heed_last_error(), "options.engine = 3 : a heed_engine is 0 to 2.");
  options.struct_size = 8;
  EXPECT_EQ(heed_forward(context, &args, &options), HEED_INVALID_ARGUMENT);
  EXPECT_THAT(heed_last_error(), StartsWith("heed_run_options: struct_size = 8 : "));
}

TEST(CForward, no_exception_crosses_the_border) {
  CProblem problem;
  const auto args = problem.args();
  const auto status_of = [&](auto thrown) {
    CContext context({FakeSpec{.run = [&](const dispatch::ForwardCall&) { throw thrown; }}});
    return heed_forward(context, &args, nullptr);
  };
  EXPECT_EQ(status_of(std::bad_alloc()), HEED_OUT_OF_MEMORY);
  EXPECT_EQ(status_of(std::runtime_error("surprise")), HEED_INTERNAL);
  EXPECT_STREQ(heed_last_error(), "surprise");
  EXPECT_EQ(status_of(42), HEED_INTERNAL);
}

TEST(CForward, each_thread_has_its_own_last_error) {
  heed_forward(nullptr, nullptr, nullptr);
  const std::string mine = heed_last_error();
  std::string theirs = "not asked";
  std::thread([&] { theirs = heed_last_error(); }).join();
  EXPECT_EQ(mine, "args is NULL: it must be given.");
  EXPECT_EQ(theirs, "");
}

TEST(CForward, every_field_arrives_where_it_belongs) {
  heed_forward_args c{};
  c.struct_size = sizeof c;
  int place[16] = {};
  heed_tensor* tensors[] = {&c.q,          &c.k,        &c.v,
                            &c.o,          &c.lse,      &c.bool_mask,
                            &c.block_mask, &c.bias,     &c.alibi_slopes,
                            &c.sink,       &c.randval,  &c.seqstart_q,
                            &c.seqstart_k, &c.seqlen_q, &c.seqlen_k};
  for (int i = 0; i < 15; ++i) *tensors[i] = {&place[i], i % 12, 2, {i, 100}, {i + 50, 1}};
  c.mask = {HEED_MASK_TOP_LEFT, 0, 7, 2, 3};
  c.block_q = 16;
  c.block_k = 32;
  c.scale = 0.25;
  c.soft_cap = 30;
  c.dropout_p = 0.125;
  c.dropout_seed = 11;
  c.dropout_offset = 12;
  c.math = HEED_MATH_ACCURATE;

  const ForwardArgs args = capi::forward_args(&c);
  const TensorView views[] = {args.q,
                              args.k,
                              args.v,
                              args.o,
                              args.lse,
                              args.bool_mask,
                              args.block_mask.keep,
                              args.bias,
                              args.alibi_slopes,
                              args.sink,
                              args.dropout.randval,
                              args.seqstart_q,
                              args.seqstart_k,
                              args.seqlen_q,
                              args.seqlen_k};
  for (int i = 0; i < 15; ++i) {
    EXPECT_EQ(views[i].data, &place[i]) << i;
    EXPECT_EQ(static_cast<int>(views[i].type), i % 12) << i;
    EXPECT_EQ(views[i].rank, 2) << i;
    EXPECT_EQ(views[i].size(0), i) << i;
    EXPECT_EQ(views[i].stride(0), i + 50) << i;
  }
  EXPECT_EQ(args.mask, Mask::window_top_left(7, 2, 3));
  EXPECT_EQ(args.block_mask.block_q, 16);
  EXPECT_EQ(args.block_mask.block_k, 32);
  EXPECT_EQ(args.scale, 0.25);
  EXPECT_EQ(args.soft_cap, 30);
  EXPECT_EQ(args.dropout.p, 0.125);
  EXPECT_EQ(args.dropout.seed, 11u);
  EXPECT_EQ(args.dropout.offset, 12u);
  EXPECT_EQ(args.math, Math::accurate);
}

}  // namespace
}  // namespace heed
