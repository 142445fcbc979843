/// Where tensors lie decides which engine runs, and an engine touches only what it can reach.

#include "dispatch/place.hpp"
#include "dispatch/fakes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>

namespace heed {
namespace {

using dispatch::Place;
using testing::error_of;
using testing::FakeEngine;
using testing::FakeSpec;
using ::testing::HasSubstr;
using testing::SmallProblem;

/// What the fake engine takes for memory of a GPU, and for memory that both reach.
struct alignas(64) Fake {
  std::array<float, 1024> gpu, both;
};
Fake g_fake;

int g_asked = 0;

Place fake_place(const void* pointer) {
  ++g_asked;
  const auto in = [&](const auto& memory) {
    return pointer >= memory.data() && pointer < memory.data() + memory.size();
  };
  return in(g_fake.gpu) ? Place::gpu : in(g_fake.both) ? Place::both : Place::host;
}

/// A context with one kernel on the CPU and one on a GPU.
struct TwoEngines {
  explicit TwoEngines(std::function<void(const dispatch::ForwardCall&)> on_gpu = [](const auto&) {}) {
    auto made_cpu = std::make_unique<FakeEngine>(std::vector{FakeSpec{.seconds = 1e-6}});
    auto made_cuda = std::make_unique<FakeEngine>(
        std::vector{FakeSpec{.arch = dispatch::Sm{90},
                             .stages = {{.kernel = "a", .purpose = "main", .workspace_bytes = 128}},
                             .run = std::move(on_gpu),
                             .own_workspace = std::as_writable_bytes(std::span(g_fake.gpu).first(64))}},
        std::nullopt, fake_place);
    cpu = &made_cpu->kernel(0);
    cuda = &made_cuda->kernel(0);
    dispatch::Engines engines;
    engines.present.push_back(std::move(made_cpu));
    engines.present.push_back(std::move(made_cuda));
    context = std::make_unique<Context>(std::make_unique<Context::Impl>(std::move(engines), 2, false));
  }

  const testing::FakeKernel *cpu, *cuda;
  std::unique_ptr<Context> context;
};

/// The arguments of a SmallProblem with all of its tensors in such memory.
ForwardArgs moved(SmallProblem& small, std::array<float, 1024>& memory) {
  ForwardArgs args = small.args();
  float* next = memory.data() + 64;
  for (TensorView* view : {&args.q, &args.k, &args.v}) {
    view->data = next;
    next += small.q.size();
  }
  args.o.data = next;
  return args;
}

TEST(Place, of_q_chooses_the_engine_when_the_caller_does_not) {
  TwoEngines two;
  SmallProblem small;
  two.context->forward(small.args());
  EXPECT_EQ(two.cpu->runs, 1);
  two.context->forward(moved(small, g_fake.gpu));
  EXPECT_EQ(two.cuda->runs, 1);
  two.context->forward(moved(small, g_fake.both));
  EXPECT_EQ(two.cpu->runs, 2);
}

TEST(Place, that_both_reach_serves_both) {
  TwoEngines two;
  SmallProblem small;
  two.context->forward(moved(small, g_fake.both), {.engine = EngineChoice::cpu});
  two.context->forward(moved(small, g_fake.both), {.engine = EngineChoice::cuda});
  EXPECT_EQ(two.cpu->runs, 1);
  EXPECT_EQ(two.cuda->runs, 1);
}

TEST(Place, that_the_engine_cannot_reach_is_refused_by_name_before_anything_runs) {
  TwoEngines two;
  SmallProblem small;
  const ForwardArgs host = small.args(), gpu = moved(small, g_fake.gpu);
  const auto text = [&](const ForwardArgs& args, EngineChoice engine) {
    const auto error = error_of([&] { two.context->forward(args, {.engine = engine}); });
    EXPECT_TRUE(error && error->code() == ErrorCode::invalid_argument);
    return error ? std::string(error->what()) : "";
  };
  EXPECT_THAT(text(host, EngineChoice::cuda), HasSubstr("lies in host memory: the CUDA engine reads GPU memory."));
  EXPECT_THAT(text(gpu, EngineChoice::cpu), HasSubstr("lies in GPU memory: the CPU engine reads host memory."));
  ForwardArgs mixed = gpu;
  mixed.v = host.v;
  EXPECT_THAT(text(mixed, EngineChoice::automatic), HasSubstr("v lies in host memory"));
  mixed = host;
  mixed.o = gpu.o;
  EXPECT_THAT(text(mixed, EngineChoice::automatic), HasSubstr("o lies in GPU memory"));
  mixed = gpu;
  const std::array<std::int64_t, 2> state{1, 2};
  mixed.dropout = {.p = 0.5, .state = {state.data(), i64, {2}}};
  EXPECT_THAT(text(mixed, EngineChoice::automatic), HasSubstr("dropout.state lies in host memory"));
  EXPECT_EQ(two.cpu->runs, 0);
  EXPECT_EQ(two.cuda->runs, 0);
}

TEST(Place, of_lists_in_GPU_memory_leaves_them_unread) {
  TwoEngines two;
  SmallProblem small;
  ForwardArgs args = moved(small, g_fake.gpu);
  for (TensorView* view : {&args.q, &args.k, &args.v}) *view = {view->data, f32, {6, 4, 8}};
  args.o = {args.o.data, f32, {6, 4, 8}};
  // Row offsets that make no sense, which nobody has seen yet.
  auto* const starts = reinterpret_cast<std::int32_t*>(g_fake.gpu.data() + 1000);
  starts[0] = 99, starts[1] = -7, starts[2] = 5;
  args.seqstart_q = args.seqstart_k = {starts, i32, {3}};
  args.max_s_q = 4;
  const Problem problem = two.context->problem(args);
  EXPECT_EQ(problem.batch(), 2);
  EXPECT_EQ(problem.s_q(), 4);
  EXPECT_EQ(problem.s_k(), 6);
  two.context->forward(args);
  EXPECT_EQ(two.cuda->runs, 1);
}

TEST(Place, decides_where_a_plan_runs_and_on_what_stream) {
  int marker = 0;
  void* const stream = &marker;
  void* seen = nullptr;
  TwoEngines two([&](const dispatch::ForwardCall& call) { seen = call.stream; });
  SmallProblem small;
  const ForwardArgs host = small.args(), gpu = moved(small, g_fake.gpu);
  two.context->forward(gpu, {.stream = stream});
  EXPECT_EQ(seen, stream);

  const auto workspace = std::as_writable_bytes(std::span(g_fake.gpu).first(64));
  const Plan on_gpu = two.context->plan(two.context->problem(gpu), {.engine = EngineChoice::cuda});
  EXPECT_EQ(on_gpu.memory(), Memory::gpu);
  seen = nullptr;
  on_gpu.run_on_stream(gpu, workspace, stream);
  EXPECT_EQ(seen, stream);
  on_gpu.run(gpu, workspace);
  EXPECT_EQ(seen, nullptr);
  EXPECT_EQ(two.cuda->runs, 3);

  const Plan on_cpu = two.context->plan(two.context->problem(host), {.engine = EngineChoice::cpu});
  EXPECT_EQ(on_cpu.memory(), Memory::host);
  const auto error = error_of([&] { on_cpu.run_on_stream(host, {}, stream); });
  ASSERT_TRUE(error);
  EXPECT_STREQ(error->what(), "cpu/baseline/fwd_fake runs on the CPU, which has no streams: use Plan::run.");
  EXPECT_EQ(two.cpu->runs, 0);
}

TEST(Place, of_q_chooses_the_engine_of_a_plan_made_from_arguments) {
  TwoEngines two;  // where the CPU's kernel is the cheaper one
  SmallProblem small;
  const ForwardArgs host = small.args(), gpu = moved(small, g_fake.gpu);
  EXPECT_EQ(two.context->plan(gpu).memory(), Memory::gpu);
  EXPECT_EQ(two.context->plan(host).memory(), Memory::host);
  EXPECT_EQ(two.context->plan(gpu, {.engine = EngineChoice::cuda}).memory(), Memory::gpu);
  EXPECT_EQ(two.context->explain(gpu).chosen()->kernel.engine, "cuda");
  EXPECT_EQ(two.context->explain(host).chosen()->kernel.engine, "cpu");
  const auto error = error_of([&] { two.context->plan(gpu, {.engine = EngineChoice::cpu}); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("lies in GPU memory"));
}

TEST(Place, of_each_tensor_is_asked_for_once_in_a_call) {
  TwoEngines two;
  SmallProblem small;
  const ForwardArgs gpu = moved(small, g_fake.gpu);
  g_asked = 0;
  two.context->forward(gpu);
  EXPECT_EQ(g_asked, 4);  // q, k, v, o
}

TEST(Place, of_a_workspace_is_checked_too) {
  TwoEngines two;
  SmallProblem small;
  const ForwardArgs gpu = moved(small, g_fake.gpu);
  const Plan plan = two.context->plan(two.context->problem(gpu), {.engine = EngineChoice::cuda});
  alignas(64) std::array<std::byte, 128> workspace{};
  const auto error = error_of([&] { plan.run_on_stream(gpu, workspace, nullptr); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error->what(), HasSubstr("the workspace lies in host memory"));
  EXPECT_EQ(two.cuda->runs, 0);
}

}  // namespace
}  // namespace heed
