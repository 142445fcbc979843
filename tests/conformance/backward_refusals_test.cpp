/// Bad input of the backward pass is refused before anything is written, with a text that names what is wrong.

#include "conformance/backward.hpp"
#include "verify/device_buffers.hpp"

#include <span>
#include <utility>

namespace heed::conformance {
namespace {

BACKWARD(bad_input_is_refused_before_anything_is_written) {
  Case c = small_backward();
  c.bias = BiasSpec{f32, {.query = true}}, c.dbias = f32;
  const auto move = [](OutputView& view, const TensorView& to) { view.data = const_cast<void*>(to.data); };
  expect_refused(
      c, [](BackwardArgs& a) { a.forward.lse = {}; }, "lse is not given");
  expect_refused(
      c, [](BackwardArgs& a) { a.d_o = {}; }, "d_o is not given");
  expect_refused(
      c, [](BackwardArgs& a) { a.d_o.sizes[3] -= 1; }, "like o");
  expect_refused(
      c, [](BackwardArgs& a) { a.forward.o.sizes[1] -= 1; }, "o is");
  expect_refused(
      c, [](BackwardArgs& a) { a.forward.lse.sizes[2] -= 1; }, "lse is");
  expect_refused(
      c, [](BackwardArgs& a) { a.forward.lse.type = f16; }, "lse is f16");
  expect_refused(
      c, [](BackwardArgs& a) { a.dk.sizes[2] = 4; }, "dk is");
  expect_refused(
      c, [](BackwardArgs& a) { a.dq.strides[3] = 2; }, "stride of the head dim is 2");
  expect_refused(
      c, [](BackwardArgs& a) { a.forward.bias = {}; }, "there is no bias");
  expect_refused(
      c, [](BackwardArgs& a) { a.dq_accumulation = f16; }, "dq_accumulation = f16");
  expect_refused(
      c, [&](BackwardArgs& a) { move(a.dq, a.forward.q); }, "dq and q overlap");
  expect_refused(
      c, [&](BackwardArgs& a) { move(a.dv, a.dk); }, "dk and dv overlap");
  expect_refused(
      c, [](BackwardArgs& a) { a.forward.dropout.p = 1; }, "dropout p = 1");
  expect_refused(
      c, [](BackwardArgs& a) { a.d_o.strides[3] = 2; }, "d_o: the stride of the head dim is 2");
  expect_refused(
      c, [](BackwardArgs& a) { a.forward.o.strides[3] = 2; }, "o: the stride of the head dim is 2");
  expect_refused(
      c, [](BackwardArgs& a) { a.dv.strides[3] = a.dv.stride(2), a.dv.strides[2] = 1; },
      "dv: the stride of the head dim");
}

BACKWARD(gradients_of_features_that_share_memory_are_refused_before_anything_is_written) {
  Case c = small_backward();
  c.bias = BiasSpec{f32, {.head = true, .query = true}};
  c.sink = SinkInit::normal, c.alibi = Alibi::per_head;
  c = with_every_gradient(c);
  const auto move = [](OutputView& view, const TensorView& to) { view.data = const_cast<void*>(to.data); };
  expect_refused(
      c, [&](BackwardArgs& a) { move(a.dbias, a.forward.bias); }, "dbias and bias overlap");
  expect_refused(
      c, [&](BackwardArgs& a) { move(a.dbias, a.dq); }, "dq and dbias overlap");
  expect_refused(
      c, [&](BackwardArgs& a) { move(a.dsink, a.forward.sink); }, "dsink and sink overlap");
  expect_refused(
      c, [&](BackwardArgs& a) { move(a.dsink, a.dbias); }, "dbias and dsink overlap");
  expect_refused(
      c, [&](BackwardArgs& a) { move(a.dslopes, a.forward.alibi_slopes); }, "dslopes and alibi_slopes overlap");
  expect_refused(
      c, [&](BackwardArgs& a) { move(a.dslopes, a.dsink); }, "dsink and dslopes overlap");
  expect_refused(
      c, [&](BackwardArgs& a) { move(a.dsink, a.forward.lse); }, "dsink and lse overlap");
  expect_refused(
      c, [](BackwardArgs& a) { a.dbias.strides[1] = 0; }, "dbias overlaps itself");
  expect_refused(
      c, [](BackwardArgs& a) { a.dsink.strides[0] = 0; }, "dsink overlaps itself");
  expect_refused(
      c, [](BackwardArgs& a) { a.dslopes.strides[0] = 0; }, "dslopes overlaps itself");
}

/// Runs a plan in a workspace of another size, or in another place, than it asks for, and expects that nothing happens.
/// `workspace` is told the plan's bytes and the arguments as the engine sees them.
template <class Args>
void expect_workspace_refused(const Buffers& buffers, const Args& args, Context& context, EngineChoice engine,
                              const std::function<std::span<std::byte>(const Args&, std::size_t)>& workspace,
                              const std::function<void(const std::function<void()>&)>& expect) {
  if (engine == EngineChoice::cuda) {
    verify::DeviceBuffers device;
    device.upload(buffers);
    const Args there = device.translated(args);
    const Plan plan = context.plan(Problem::of(there, Memory::gpu), {.engine = engine});
    if (plan.workspace_bytes() == 0) return;
    expect([&] { plan.run_on_stream(there, workspace(there, plan.workspace_bytes()), device.stream()); });
    device.download(buffers);
  } else {
    const Plan plan = context.plan(Problem::of(args), {.engine = engine, .threads = 2});
    if (plan.workspace_bytes() == 0) return;
    ThreadPool pool(2);
    expect([&] { plan.run(args, workspace(args, plan.workspace_bytes()), &pool); });
  }
  EXPECT_TRUE(buffers.outputs_untouched());
  EXPECT_TRUE(buffers.check_guards().empty());
}

BACKWARD(a_workspace_that_is_too_small_is_refused_before_anything_is_written) {
  for (Case c : various_backward_cases()) {
    c.deterministic = true;
    const Buffers buffers(c);
    verify::DeviceMemory on_the_gpu(0);
    std::vector<std::byte> memory;
    expect_workspace_refused<BackwardArgs>(
        buffers, buffers.backward_args(), context(), GetParam().choice,
        [&](const BackwardArgs&, std::size_t bytes) {
          if (on_gpu()) return std::span(on_the_gpu.reserve(bytes), bytes - 1);
          memory.resize(bytes + 64);
          const std::size_t shift = 64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
          return std::span(memory).subspan(shift, bytes - 1);
        },
        [](const std::function<void()>& run) { expect_error(run, "the workspace holds"); });
  }
}

BACKWARD(a_workspace_that_overlaps_a_tensor_is_refused_before_anything_is_written) {
  Case c = small_backward();
  c.type = bf16, c.bias = BiasSpec{f32, {.query = true}}, c.sink = SinkInit::normal;
  c = with_every_gradient(c);
  c.deterministic = true;
  using Pick = std::function<TensorView(const BackwardArgs&)>;
  for (const auto& [name, pick] :
       std::vector<std::pair<std::string, Pick>>{{"q", [](const BackwardArgs& a) { return a.forward.q; }},
                                                 {"v", [](const BackwardArgs& a) { return a.forward.v; }},
                                                 {"o", [](const BackwardArgs& a) { return a.forward.o; }},
                                                 {"lse", [](const BackwardArgs& a) { return a.forward.lse; }},
                                                 {"sink", [](const BackwardArgs& a) { return a.forward.sink; }},
                                                 {"d_o", [](const BackwardArgs& a) { return a.d_o; }},
                                                 {"dq", [](const BackwardArgs& a) { return a.dq; }},
                                                 {"dbias", [](const BackwardArgs& a) { return a.dbias; }},
                                                 {"dsink", [](const BackwardArgs& a) { return a.dsink; }}}) {
    const Buffers buffers(c);
    expect_workspace_refused<BackwardArgs>(
        buffers, buffers.backward_args(), context(), GetParam().choice,
        // It is refused by its address: nobody looks at what is there, nor how much of it.
        [&](const BackwardArgs& args, std::size_t bytes) {
          return std::span(static_cast<std::byte*>(const_cast<void*>(pick(args).data)), bytes);
        },
        [&](const std::function<void()>& run) { expect_error(run, "overlap"); });
  }
  Case forward = small();
  forward.s_q = {1}, forward.s_k = {3000};  // few queries: the keys are divided, and the parts are in the workspace
  const Buffers buffers(forward);
  expect_workspace_refused<ForwardArgs>(
      buffers, buffers.args(), context(), GetParam().choice,
      [](const ForwardArgs& args, std::size_t bytes) { return std::span(static_cast<std::byte*>(args.o.data), bytes); },
      [](const std::function<void()>& run) { expect_error(run, "the workspace and o overlap"); });
}

}  // namespace
}  // namespace heed::conformance
