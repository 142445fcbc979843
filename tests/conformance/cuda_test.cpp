/// What only an engine in GPU memory can get wrong: streams, graphs, pointers of the wrong kind.

#include "conformance/conformance.hpp"
#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "verify/device_buffers.hpp"

#include <heed/error.hpp>

#include <gmock/gmock.h>

#include <functional>
#include <thread>

namespace heed::conformance {
namespace {

using verify::DeviceBuffers;

class OnGpu : public Conformance {
 public:
  static const cuda::Driver& driver() { return *cuda::Driver::get(); }
  static cuda::CUstream stream_of(const DeviceBuffers& device) { return static_cast<cuda::CUstream>(device.stream()); }

  void forward(const DeviceBuffers& device, const ForwardArgs& args) const {
    context().forward(args, {.engine = EngineChoice::cuda, .stream = device.stream()});
  }

  /// What is in `buffers` is right.
  static void expect_right(const Buffers& buffers) {
    const verify::Verdict verdict = verify::judge(buffers);
    EXPECT_TRUE(verdict.valid()) << verdict.to_string() << "\n  " << buffers.get_case().to_command();
  }

  /// The call is refused with these words in its text.
  static void expect_error(const std::function<void()>& call, const std::string& words) {
    try {
      call();
      ADD_FAILURE() << "accepted, though " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), testing::HasSubstr(words));
    }
  }
};

#define ON_GPU(sentence) TEST_P(OnGpu, sentence)

/// A graph of what `work` puts on the stream.
class Graph {
 public:
  Graph(const DeviceBuffers& device, const std::function<void()>& work) : device_(device) {
    const cuda::DeviceGuard guard(device.ordinal());
    const cuda::Driver& driver = OnGpu::driver();
    cuda::CUgraph graph = nullptr;
    // Strict: a call that allocates or waits, on whatever thread, is an error.
    cuda::check(driver.cuStreamBeginCapture(OnGpu::stream_of(device), cuda::CaptureMode::global), "capturing");
    work();
    cuda::check(driver.cuStreamEndCapture(OnGpu::stream_of(device), &graph), "capturing");
    cuda::check(driver.cuGraphInstantiateWithFlags(&graph_, graph, 0), "making a graph");
    driver.cuGraphDestroy(graph);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { OnGpu::driver().cuGraphExecDestroy(graph_); }

  void launch() const {
    const cuda::DeviceGuard guard(device_.ordinal());
    cuda::check(OnGpu::driver().cuGraphLaunch(graph_, OnGpu::stream_of(device_)), "launching a graph");
  }

 private:
  const DeviceBuffers& device_;
  cuda::CUgraphExec graph_ = nullptr;
};

ON_GPU(a_thousand_runs_give_the_same_bits) {
  for (const Case& c : various_cases()) {
    Buffers buffers(c);
    target().forward(buffers, buffers.args());
    const auto expected = buffers.output_bytes();
    for (std::int64_t n = 0; n < 1000; n += sweep_step(50)) {
      buffers.clear_outputs();
      target().forward(buffers, buffers.args());
      ASSERT_EQ(buffers.output_bytes(), expected) << "run " << n << ": " << c.to_command();
    }
  }
}

ON_GPU(a_captured_graph_computes_what_is_in_memory_when_it_is_replayed) {
  std::vector<Case> cases = various_cases();
  Case random = small();  // a replay draws from the state it finds
  random.p_drop = 0.4, random.drop_state = true, random.randval = true;
  cases.push_back(random);
  for (const Case& c : cases) {
    DeviceBuffers device;
    const Buffers first(c);
    device.upload(first);
    const ForwardArgs args = device.translated(first.args());
    forward(device, args);  // what is compiled, loaded or allocated once is so before the capture
    const Graph graph(device, [&] { forward(device, args); });
    for (const std::uint64_t seed : {1, 2, 3}) {
      Case other = c;
      other.seed = seed;
      other.drop_seed = other.drop_state ? 1000 + seed : c.drop_seed;
      const Buffers buffers(other);
      device.upload(buffers);
      graph.launch();
      device.download(buffers);
      expect_right(buffers);
    }
  }
}

ON_GPU(a_plan_is_captured_without_having_run_before) {
  for (const Case& c : various_cases()) {
    DeviceBuffers device;
    const Buffers buffers(c);
    device.upload(buffers);
    const ForwardArgs args = device.translated(buffers.args());
    const Plan plan = context().plan(Problem::of(args, Memory::gpu), {.engine = EngineChoice::cuda});
    const auto workspace = device.workspace(plan.workspace_bytes());
    const Graph graph(device, [&] { plan.run_on_stream(args, workspace, device.stream()); });
    for (int replay = 0; replay < 2; ++replay) graph.launch();
    EXPECT_FALSE(device.workspace_overrun());
    device.download(buffers);
    expect_right(buffers);
  }
}

ON_GPU(two_streams_at_once_do_not_disturb_each_other) {
  const auto cases = various_cases();
  for (std::size_t n = 0; n < cases.size(); ++n) {
    const Case &one = cases[n], &two = cases[(n + 1) % cases.size()];
    const auto expected_one = run(one), expected_two = run(two);
    DeviceBuffers device_one, device_two;
    const Buffers buffers_one(one), buffers_two(two);
    device_one.upload(buffers_one);
    device_two.upload(buffers_two);
    const ForwardArgs args_one = device_one.translated(buffers_one.args());
    const ForwardArgs args_two = device_two.translated(buffers_two.args());
    for (int turn = 0; turn < 50; ++turn) {
      forward(device_one, args_one);
      forward(device_two, args_two);
    }
    device_one.download(buffers_one);
    device_two.download(buffers_two);
    EXPECT_EQ(buffers_one.output_bytes(), expected_one) << one.to_command();
    EXPECT_EQ(buffers_two.output_bytes(), expected_two) << two.to_command();
  }
}

ON_GPU(threads_that_share_a_stream_do_not_disturb_each_others_gradients) {
  // A run has several steps, and all runs on a stream the same workspace, which each problem divides in its own way.
  std::vector<Case> cases(4, small());
  for (std::size_t n = 0; n < cases.size(); ++n) {
    Case& c = cases[n];
    c.operation = Operation::backward;
    c.type = bf16;
    c.lse = c.deterministic = true;
    c.b = 2, c.h = 8, c.h_k = 4, c.d = c.d_v = 64 * (1 + static_cast<std::int64_t>(n) % 2);
    c.s_q = c.s_k = {300 + 200 * static_cast<std::int64_t>(n)};
    c.mask = Mask::parse(n < 2 ? "b" : "0");
  }
  const DeviceBuffers shared;
  std::vector<std::thread> threads;
  std::vector<int> wrong(cases.size(), 0);
  for (std::size_t n = 0; n < cases.size(); ++n)
    threads.emplace_back([&, n] {
      const Buffers buffers(cases[n]);
      DeviceBuffers device;
      std::vector<std::byte> expected;
      for (int turn = 0; turn < 50; ++turn) {
        device.upload(buffers);
        device.synchronize();
        const BackwardArgs args = device.translated(buffers.backward_args());
        for (int again = 0; again < 10; ++again)
          context().backward(args, {.engine = EngineChoice::cuda, .stream = shared.stream()});
        shared.synchronize();
        device.download(buffers);
        if (turn == 0) {
          expect_right(buffers);
          expected = buffers.output_bytes();
        }
        wrong[n] += buffers.output_bytes() != expected ? 1 : 0;
      }
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(wrong, std::vector<int>(cases.size(), 0));
}

ON_GPU(the_default_stream_works_and_the_engine_is_found_by_where_q_lies) {
  const Buffers buffers(small());
  DeviceBuffers device;
  device.upload(buffers);
  device.synchronize();  // it does not wait for the default stream, nor that one for it
  context().forward(device.translated(buffers.args()));
  const cuda::DeviceGuard guard(device.ordinal());
  cuda::check(driver().cuCtxSynchronize(), "waiting for the default stream");
  device.download(buffers);
  expect_right(buffers);
}

ON_GPU(a_tensor_in_host_memory_is_refused_by_name_before_anything_is_written) {
  Case c = small();
  c.mode = Mode::group, c.s_q = {5, 9}, c.s_k = {12, 3};
  c.bias = BiasSpec{f32, {.query = true}};
  const Buffers buffers(c);
  DeviceBuffers device;
  device.upload(buffers);
  expect_error([&] { context().forward(buffers.args(), {.engine = EngineChoice::cuda}); }, "lies in host memory");
  const ForwardArgs& host = buffers.args();
  const std::vector<std::pair<std::function<void(ForwardArgs&)>, std::string>> misplaced{
      {[&](ForwardArgs& args) { args.q = host.q; }, "q lies in host memory"},
      {[&](ForwardArgs& args) { args.o = host.o; }, "o lies in host memory"},
      {[&](ForwardArgs& args) { args.lse = host.lse; }, "lse lies in host memory"},
      {[&](ForwardArgs& args) { args.bias = host.bias; }, "bias lies in host memory"},
      {[&](ForwardArgs& args) { args.seqstart_k = host.seqstart_k; }, "seqstart_k lies in host memory"}};
  for (const auto& [misplace, words] : misplaced) {
    ForwardArgs args = device.translated(host);
    misplace(args);
    expect_error([&] { forward(device, args); }, words);
  }
  device.download(buffers);
  EXPECT_TRUE(buffers.outputs_untouched());
  EXPECT_TRUE(buffers.check_guards().empty());
  expect_matches_oracle(c);
}

ON_GPU(a_tensor_in_GPU_memory_is_refused_by_the_CPU_engine_before_anything_is_written) {
  const Buffers buffers(small());
  DeviceBuffers device;
  device.upload(buffers);
  const ForwardArgs there = device.translated(buffers.args());
  expect_error([&] { context().forward(there, {.engine = EngineChoice::cpu}); }, "lies in GPU memory");
  ForwardArgs mixed = buffers.args();
  mixed.v = there.v;
  expect_error([&] { context().forward(mixed); }, "v lies in GPU memory");
  device.download(buffers);
  EXPECT_TRUE(buffers.outputs_untouched());
  EXPECT_TRUE(buffers.check_guards().empty());
  context().forward(buffers.args(), {.engine = EngineChoice::cpu});
  expect_right(buffers);
}

ON_GPU(a_workspace_in_host_memory_is_refused) {
  for (const Case& c : various_cases()) {
    const Buffers buffers(c);
    DeviceBuffers device;
    device.upload(buffers);
    const ForwardArgs args = device.translated(buffers.args());
    const Plan plan = context().plan(Problem::of(args, Memory::gpu), {.engine = EngineChoice::cuda});
    if (plan.workspace_bytes() == 0) continue;
    std::vector<std::byte> memory(plan.workspace_bytes() + 64);
    const std::size_t shift = 64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
    expect_error([&] { plan.run_on_stream(args, std::span(memory).subspan(shift), device.stream()); },
                 "the workspace lies in host memory");
    device.download(buffers);
    EXPECT_TRUE(buffers.outputs_untouched());
  }
}

std::vector<Engine> gpu_engines() {
  std::vector<Engine> list;
  for (const Engine& engine : engines())
    if (engine.choice == EngineChoice::cuda) list.push_back(engine);
  return list;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OnGpu);
INSTANTIATE_TEST_SUITE_P(Of, OnGpu, testing::ValuesIn(gpu_engines()),
                         [](const testing::TestParamInfo<Engine>& each) { return each.param.name; });

}  // namespace
}  // namespace heed::conformance
