#include <heed/plan.hpp>

#include "dispatch/fakes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>

namespace heed {
namespace {

using testing::error_of;
using testing::FakeContext;
using testing::FakeSpec;
using ::testing::HasSubstr;
using testing::SmallProblem;

/// An environment variable for the length of one test.
class WithVariable {
 public:
  WithVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value, 1);
  }
  ~WithVariable() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }
  WithVariable(const WithVariable&) = delete;
  WithVariable& operator=(const WithVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(Context, forward_finds_a_plan_and_brings_workspace_and_threads) {
  SmallProblem small;
  FakeContext fake({FakeSpec{.stages = {{.kernel = "a", .purpose = "main", .workspace_bytes = 5000}},
                             .run =
                                 [&](const dispatch::ForwardCall& call) {
                                   EXPECT_EQ(call.problem, Problem::of(small.args()));
                                   EXPECT_GE(call.workspace.size(), 5000u);
                                   EXPECT_EQ(reinterpret_cast<std::uintptr_t>(call.workspace.data()) % 64, 0u);
                                   EXPECT_EQ(call.executor.concurrency(), 2);
                                   EXPECT_EQ(call.threads, 2);
                                 }}},
                   2);
  fake.context->forward(small.args());
  fake.context->forward(small.args());
  EXPECT_EQ(fake.engine->kernel(0).runs, 2);
  EXPECT_EQ(fake.engine->kernel(0).plans_made, 1);
  EXPECT_EQ(fake.context->impl().workspaces.idle_buffers(), 1u);
}

TEST(Context, forward_runs_on_the_executor_it_is_given) {
  SmallProblem small;
  ThreadPool five(5);
  FakeContext fake({FakeSpec{.run = [&](const dispatch::ForwardCall& call) {
    EXPECT_EQ(&call.executor, &five);
    EXPECT_EQ(call.threads, 5);
  }}});
  fake.context->forward(small.args(), {.executor = &five});
  EXPECT_EQ(fake.engine->kernel(0).runs, 1);
}

TEST(Context, forward_gives_the_workspace_back_when_a_kernel_throws) {
  SmallProblem small;
  FakeContext fake({FakeSpec{.stages = {{.kernel = "a", .purpose = "main", .workspace_bytes = 100}},
                             .run = [](const dispatch::ForwardCall&) { throw Error(ErrorCode::internal, "broken"); }}});
  EXPECT_TRUE(error_of([&] { fake.context->forward(small.args()); }));
  EXPECT_EQ(fake.context->impl().workspaces.idle_buffers(), 1u);
}

TEST(Context, forward_refuses_invalid_arguments_and_runs_nothing) {
  SmallProblem small;
  FakeContext fake({FakeSpec{}});
  auto args = small.args();
  args.soft_cap = -1;
  const auto error = error_of([&] { fake.context->forward(args); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_EQ(fake.engine->kernel(0).runs, 0);
}

TEST(Context, forward_on_cuda_is_not_supported_by_a_build_without_it) {
  SmallProblem small;
  FakeContext fake({FakeSpec{}});
  const auto error = error_of([&] { fake.context->forward(small.args(), {.engine = EngineChoice::cuda}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::unsupported);
  EXPECT_THAT(error->what(), HasSubstr("this build has no CUDA engine"));
}

TEST(Context, an_engine_that_is_not_available_is_missing_with_its_reason) {
  dispatch::Engines engines;
  engines.present.push_back(std::make_unique<testing::FakeEngine>(std::vector<FakeSpec>{FakeSpec{}}, "it sleeps"));
  Context context(std::make_unique<Context::Impl>(std::move(engines), 1, false));
  EXPECT_TRUE(context.kernels().empty());
  const auto error = error_of([&] { context.plan(Problem::forward().type(f32)); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("cpu   missing   it sleeps"));
}

TEST(Context, lists_kernels_filtered_and_as_json) {
  FakeContext fake({FakeSpec{.stem = "one"}, FakeSpec{.stem = "two", .lacks = "needs luck"}});
  ASSERT_EQ(fake.context->kernels().size(), 2u);
  EXPECT_EQ(fake.context->kernels()[0].name, "cpu/baseline/one");
  EXPECT_EQ(fake.context->kernels()[0].lacks, "");
  EXPECT_EQ(fake.context->kernels("*/two")[0].lacks, "needs luck");
  EXPECT_EQ(nlohmann::json::parse(fake.context->kernels_json("*/two"))["kernels"].size(), 1u);
}

TEST(Context, explains_what_plan_would_take_and_refuses_what_it_would_refuse) {
  FakeContext fake({FakeSpec{.stem = "slow", .seconds = 1}, FakeSpec{.stem = "quick"}});
  const Problem problem = Problem::forward().type(f32);
  EXPECT_EQ(fake.context->explain(problem).chosen()->kernel.name, fake.context->plan(problem).kernel());
  EXPECT_TRUE(error_of([&] { fake.context->explain(Problem::forward().heads(6, 4)); }));
  EXPECT_TRUE(error_of([&] { fake.context->explain(problem, {.threads = -1}); }));
  EXPECT_TRUE(error_of([&] { fake.context->plan(problem, {.threads = ThreadPool::kMaxThreads + 1}); }));
}

TEST(Context, logs_one_line_per_call_when_asked) {
  SmallProblem small;
  FakeContext fake({FakeSpec{}}, 2, /*log=*/true);
  ::testing::internal::CaptureStderr();
  fake.context->forward(small.args());
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(line, ::testing::StartsWith("heed: cpu/baseline/fwd_fake " + Problem::of(small.args()).to_string() +
                                          ", 2 threads, "));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
}

TEST(Context, is_silent_otherwise) {
  SmallProblem small;
  FakeContext fake({FakeSpec{}});
  ::testing::internal::CaptureStderr();
  fake.context->forward(small.args());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Environment, an_unknown_isa_is_refused_with_the_names_that_exist) {
  const WithVariable variable("HEED_MAX_CPU_ISA", "sse9");
  const auto error = error_of([] { Context(Context::Options{}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error->what(), HasSubstr("HEED_MAX_CPU_ISA=sse9 : "));
  EXPECT_THAT(error->what(), HasSubstr("baseline, avx2, avx512, avx512bf16, amx"));
}

TEST(Environment, an_empty_isa_is_no_wish_and_options_come_first) {
  {
    const WithVariable variable("HEED_MAX_CPU_ISA", "");
    EXPECT_FALSE(error_of([] { Context(Context::Options{.threads = 1}); }));
  }
  const WithVariable variable("HEED_MAX_CPU_ISA", "sse9");
  EXPECT_FALSE(error_of([] { Context(Context::Options{.threads = 1, .max_cpu_isa = "baseline"}); }));
  EXPECT_TRUE(error_of([] { Context(Context::Options{.threads = 1, .max_cpu_isa = "sse8"}); }));
}

TEST(Environment, the_isa_limits_which_kernels_run) {
  const WithVariable variable("HEED_MAX_CPU_ISA", "baseline");
  Context context(Context::Options{.threads = 1});
  for (const KernelInfo& kernel : context.kernels()) {
    const bool above = kernel.engine == "cpu" && kernel.arch != "baseline";
    EXPECT_TRUE(!above || !kernel.lacks.empty()) << kernel.name;
  }
}

TEST(Environment, a_family_of_CUDA_kernels_that_does_not_exist_is_refused) {
  {
    const WithVariable variable("HEED_CUDA_FAMILY", "volta");
    const auto error = error_of([] { Context(Context::Options{.threads = 1}); });
    ASSERT_TRUE(error);
    EXPECT_STREQ(error->what(),
                 "HEED_CUDA_FAMILY=volta : the CUDA engine's families are hopper, portable, and portable_ptx, which is "
                 "portable as "
                 "PTX for sm_80; nothing means hopper and portable.");
    EXPECT_FALSE(error_of([] { Context(Context::Options{.threads = 1, .cuda_family = "portable_ptx"}); }));
    EXPECT_FALSE(error_of([] { Context(Context::Options{.threads = 1, .cuda_family = "portable"}); }));
  }
  const auto error = error_of([] { Context(Context::Options{.threads = 1, .cuda_family = "Hopper"}); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("cuda_family=Hopper : "));
}

TEST(Environment, knobs_of_CUDA_kernels_are_told_for_each_pass) {
  {
    const WithVariable variable("HEED_CUDA_BACKWARD_ALGO", "stages:3");
    const auto error = error_of([] { Context(Context::Options{.threads = 1}); });
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("algo stages : no such knob; there are tile_q, pipeline"));
    EXPECT_FALSE(error_of([] { Context(Context::Options{.threads = 1, .cuda_backward_algo = "section:600"}); }));
  }
  EXPECT_FALSE(error_of([] { Context(Context::Options{.threads = 1, .cuda_algo = "stages:3"}); }));
  EXPECT_TRUE(error_of([] { Context(Context::Options{.threads = 1, .cuda_algo = "section:600"}); }));
}

TEST(Environment, a_log_wish_that_means_nothing_is_refused) {
  const WithVariable variable("HEED_LOG", "loud");
  const auto error = error_of([] { Context(Context::Options{.threads = 1}); });
  ASSERT_TRUE(error);
  EXPECT_STREQ(error->what(), "HEED_LOG=loud : 1 prints a line for every call, 0 or nothing does not.");
}

TEST(DefaultContext, is_one_and_the_same_from_call_to_call) {
  EXPECT_EQ(default_context(), default_context());
  EXPECT_EQ(default_context()->explain(Problem::forward().type(f32)).to_json(),
            explain(Problem::forward().type(f32)).to_json());
}

}  // namespace
}  // namespace heed
