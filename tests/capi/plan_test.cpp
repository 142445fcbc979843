#include "capi/c_args.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <array>
#include <string>

namespace heed {
namespace {

using testing::CContext;
using testing::CProblem;
using testing::FakeSpec;
using ::testing::HasSubstr;

const FakeSpec kNeedsScratch{.stages = {{.kernel = "a", .purpose = "main", .workspace_bytes = 256}}};

struct alignas(64) Scratch {
  std::array<std::byte, 256> bytes;
};

TEST(CPlan, is_made_run_and_destroyed) {
  CProblem problem;
  const auto args = problem.args();
  CContext context({kNeedsScratch});
  heed_plan* plan = nullptr;
  ASSERT_EQ(heed_plan_create(context, &args, nullptr, &plan), HEED_OK) << heed_last_error();
  EXPECT_EQ(heed_plan_workspace_bytes(plan), 256u);
  EXPECT_EQ(heed_plan_threads(plan), 2);
  EXPECT_STREQ(heed_plan_kernel(plan), "cpu/baseline/fwd_fake");
  Scratch scratch;
  EXPECT_EQ(heed_plan_run(plan, &args, scratch.bytes.data(), 256, nullptr), HEED_OK) << heed_last_error();
  EXPECT_EQ(context.fake.engine->kernel(0).runs, 1);
  heed_plan_destroy(plan);
}

TEST(CPlan, of_the_CPU_has_no_stream) {
  CProblem problem;
  const auto args = problem.args();
  CContext context;
  heed_plan* plan = nullptr;
  ASSERT_EQ(heed_plan_create(context, &args, nullptr, &plan), HEED_OK) << heed_last_error();
  EXPECT_EQ(heed_plan_memory(plan), HEED_MEMORY_HOST);
  EXPECT_EQ(heed_plan_run_on_stream(plan, &args, nullptr, 0, nullptr), HEED_INVALID_ARGUMENT);
  EXPECT_THAT(heed_last_error(), HasSubstr("cpu/baseline/fwd_fake runs on the CPU, which has no streams"));
  EXPECT_EQ(heed_plan_run_on_stream(nullptr, &args, nullptr, 0, nullptr), HEED_INVALID_ARGUMENT);
  EXPECT_EQ(context.fake.engine->kernel(0).runs, 0);
  heed_plan_destroy(plan);
}

// Without an engine that knows of GPU memory all of it is taken for what the caller says.
TEST(CPlan, of_a_GPU_is_given_the_stream) {
  CProblem problem;
  const auto args = problem.args();
  int marker = 0;
  void* seen = nullptr;
  CContext context({FakeSpec{.arch = dispatch::Sm{90},
                             .run = [&](const dispatch::ForwardCall& call) { seen = call.stream; },
                             .own_workspace = std::span<std::byte>{}}});
  heed_plan_options options{};
  options.struct_size = sizeof options;
  options.engine = HEED_ENGINE_CUDA;
  heed_plan* plan = nullptr;
  ASSERT_EQ(heed_plan_create(context, &args, &options, &plan), HEED_OK) << heed_last_error();
  EXPECT_EQ(heed_plan_memory(plan), HEED_MEMORY_GPU);
  EXPECT_EQ(heed_plan_run_on_stream(plan, &args, nullptr, 0, &marker), HEED_OK) << heed_last_error();
  EXPECT_EQ(seen, &marker);
  heed_plan_destroy(plan);

  heed_run_options run{};
  run.struct_size = sizeof run;
  run.engine = HEED_ENGINE_CUDA;
  run.stream = &run;
  EXPECT_EQ(heed_forward(context, &args, &run), HEED_OK) << heed_last_error();
  EXPECT_EQ(seen, &run);
}

TEST(CPlan, refuses_a_workspace_too_small_askew_or_null) {
  CProblem problem;
  const auto args = problem.args();
  CContext context({kNeedsScratch});
  heed_plan* plan = nullptr;
  ASSERT_EQ(heed_plan_create(context, &args, nullptr, &plan), HEED_OK);
  Scratch scratch;
  EXPECT_EQ(heed_plan_run(plan, &args, scratch.bytes.data(), 255, nullptr), HEED_INVALID_ARGUMENT);
  EXPECT_STREQ(heed_last_error(), "the workspace holds 255 bytes, this plan needs 256.");
  EXPECT_EQ(heed_plan_run(plan, &args, nullptr, 256, nullptr), HEED_INVALID_ARGUMENT);
  EXPECT_STREQ(heed_last_error(), "workspace is NULL, but workspace_bytes is 256.");
  EXPECT_EQ(heed_plan_run(plan, &args, nullptr, 0, nullptr), HEED_INVALID_ARGUMENT);
  heed_plan_destroy(plan);
}

TEST(CPlan, can_be_made_from_json_before_any_memory_exists) {
  CProblem problem;
  const auto args = problem.args();
  char* json = nullptr;
  ASSERT_EQ(heed_problem_json(&args, &json), HEED_OK) << heed_last_error();
  CContext context({kNeedsScratch});
  heed_plan* plan = nullptr;
  ASSERT_EQ(heed_plan_create_from_json(context, json, nullptr, &plan), HEED_OK) << heed_last_error();
  heed_string_free(json);
  Scratch scratch;
  EXPECT_EQ(heed_plan_run(plan, &args, scratch.bytes.data(), 256, nullptr), HEED_OK) << heed_last_error();
  heed_plan_destroy(plan);

  EXPECT_EQ(heed_plan_create_from_json(context, "{", nullptr, &plan), HEED_INVALID_ARGUMENT);
  EXPECT_EQ(heed_plan_create_from_json(context, nullptr, nullptr, &plan), HEED_INVALID_ARGUMENT);
  EXPECT_STREQ(heed_last_error(), "problem_json is NULL: it must be given.");
}

TEST(CPlan, takes_options) {
  CProblem problem;
  const auto args = problem.args();
  CContext context({FakeSpec{.stem = "a"}, FakeSpec{.stem = "b"}});
  heed_plan_options options{};
  options.struct_size = sizeof options;
  options.kernel = "cpu/baseline/b";
  options.threads = 5;
  heed_plan* plan = nullptr;
  ASSERT_EQ(heed_plan_create(context, &args, &options, &plan), HEED_OK) << heed_last_error();
  EXPECT_STREQ(heed_plan_kernel(plan), "cpu/baseline/b");
  EXPECT_EQ(heed_plan_threads(plan), 5);
  heed_plan_destroy(plan);
  options.kernel = "nobody";
  EXPECT_EQ(heed_plan_create(context, &args, &options, &plan), HEED_INVALID_ARGUMENT);
  EXPECT_THAT(heed_last_error(), HasSubstr("no kernel is called 'nobody'"));
}

TEST(CPlan, null_is_harmless_or_named) {
  CProblem problem;
  const auto args = problem.args();
  CContext context;
  EXPECT_EQ(heed_plan_create(context, &args, nullptr, nullptr), HEED_INVALID_ARGUMENT);
  EXPECT_STREQ(heed_last_error(), "plan is NULL: it must be given.");
  EXPECT_EQ(heed_plan_run(nullptr, &args, nullptr, 0, nullptr), HEED_INVALID_ARGUMENT);
  EXPECT_STREQ(heed_last_error(), "plan is NULL: it must be given.");
  EXPECT_EQ(heed_plan_workspace_bytes(nullptr), 0u);
  EXPECT_EQ(heed_plan_threads(nullptr), 0);
  EXPECT_STREQ(heed_plan_kernel(nullptr), "");
  heed_plan_destroy(nullptr);
  heed_context_destroy(nullptr);
  heed_string_free(nullptr);
}

TEST(CContext, is_made_with_options_and_destroyed) {
  heed_context_options options{};
  options.struct_size = sizeof options;
  options.threads = 1;
  options.max_cpu_isa = "baseline";
  heed_context* context = nullptr;
  ASSERT_EQ(heed_context_create(&options, &context), HEED_OK) << heed_last_error();
  heed_context_destroy(context);
  options.max_cpu_isa = "sse9";
  EXPECT_EQ(heed_context_create(&options, &context), HEED_INVALID_ARGUMENT);
  EXPECT_THAT(heed_last_error(), HasSubstr("avx512bf16"));
  options.max_cpu_isa = nullptr;
  options.cuda_algo = "stages:3";
  options.cuda_backward_algo = "tile_q:64,pipeline:ahead";
  ASSERT_EQ(heed_context_create(&options, &context), HEED_OK) << heed_last_error();
  heed_context_destroy(context);
  options.cuda_algo = "stages:99";
  EXPECT_EQ(heed_context_create(&options, &context), HEED_INVALID_ARGUMENT);
  EXPECT_THAT(heed_last_error(), HasSubstr("stages takes 1 to 8"));
  options.cuda_algo = nullptr;
  options.cuda_backward_algo = "stages:3";
  EXPECT_EQ(heed_context_create(&options, &context), HEED_INVALID_ARGUMENT);
  EXPECT_THAT(heed_last_error(), HasSubstr("no such knob; there are tile_q, pipeline"));
  options.cuda_backward_algo = nullptr;
  options.threads = -1;
  EXPECT_EQ(heed_context_create(&options, &context), HEED_INVALID_ARGUMENT);
  EXPECT_EQ(heed_context_create(nullptr, nullptr), HEED_INVALID_ARGUMENT);
}

/// The text that a function hands out, read as JSON.
template <class F>
nlohmann::json json_of(F&& f) {
  char* text = nullptr;
  EXPECT_EQ(f(&text), HEED_OK) << heed_last_error();
  if (text == nullptr) return {};
  auto json = nlohmann::json::parse(text);
  heed_string_free(text);
  return json;
}

TEST(CDescribe, explains_and_lists_as_json) {
  CProblem problem;
  const auto args = problem.args();
  CContext context({FakeSpec{.stem = "one"}, FakeSpec{.stem = "two", .seconds = 1}});
  const auto why = json_of([&](char** out) { return heed_explain_json(context, &args, nullptr, out); });
  EXPECT_EQ(why["chosen"]["name"], "cpu/baseline/one");
  EXPECT_EQ(why["others"][0]["rule"], "outranked");

  const auto posed = json_of([&](char** out) { return heed_problem_json(&args, out); });
  const std::string text = posed.dump();
  EXPECT_EQ(json_of([&](char** out) { return heed_explain_problem_json(context, text.c_str(), nullptr, out); }), why);

  EXPECT_EQ(json_of([&](char** out) { return heed_kernels_json(context, nullptr, out); })["kernels"].size(), 2u);
  EXPECT_EQ(json_of([&](char** out) { return heed_kernels_json(context, "*/two", out); })["kernels"].size(), 1u);
  EXPECT_EQ(heed_kernels_json(context, nullptr, nullptr), HEED_INVALID_ARGUMENT);
}

TEST(CMask, is_read_from_every_text) {
  heed_mask mask{};
  ASSERT_EQ(heed_mask_parse("b", &mask), HEED_OK);
  const heed_mask causal = HEED_MASK_CAUSAL;
  EXPECT_EQ(mask.kind, causal.kind);
  EXPECT_EQ(mask.left, causal.left);
  EXPECT_EQ(mask.right, causal.right);
  ASSERT_EQ(heed_mask_parse("t:4,0,2", &mask), HEED_OK);
  EXPECT_EQ(mask.kind, HEED_MASK_TOP_LEFT);
  EXPECT_EQ(mask.left, 4);
  EXPECT_EQ(mask.right, 0);
  EXPECT_EQ(mask.sink, 2);
  ASSERT_EQ(heed_mask_parse("g:3,5", &mask), HEED_OK);
  EXPECT_EQ(mask.kind, HEED_MASK_RAW);
  EXPECT_EQ(mask.left, 3);
  EXPECT_EQ(mask.right, 5);
}

// What parse writes must be readable as arguments: a mask that hides nothing has no edges to set.
TEST(CMask, that_was_parsed_can_be_passed) {
  CProblem problem;
  for (const char* text : {"0", "n", "t", "b", "t:4,0", "b:-1,-1", "t:-1,-1", "b:2,1,3", "xt:5", "xb:0", "g:3,5"}) {
    auto args = problem.args();
    ASSERT_EQ(heed_mask_parse(text, &args.mask), HEED_OK) << text;
    CContext context;
    EXPECT_EQ(heed_forward(context, &args, nullptr), HEED_OK) << text << ": " << heed_last_error();
  }
}

TEST(CMask, that_is_no_mask_is_refused_with_what_would_be_one) {
  EXPECT_EQ(heed_mask_check("b:4,0"), HEED_OK);
  EXPECT_EQ(heed_mask_check("t:4"), HEED_INVALID_ARGUMENT);
  EXPECT_THAT(heed_last_error(), HasSubstr("t:4"));
  EXPECT_EQ(heed_mask_check(nullptr), HEED_INVALID_ARGUMENT);
  EXPECT_EQ(heed_mask_parse("b", nullptr), HEED_INVALID_ARGUMENT);
}

TEST(CVersion, is_the_headers) { EXPECT_STREQ(heed_version(), HEED_VERSION_STRING); }

}  // namespace
}  // namespace heed
