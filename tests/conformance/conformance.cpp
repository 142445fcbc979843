#include "conformance/conformance.hpp"
#include "test_scale.hpp"

#include "core/float_bits.hpp"
#include "core/sequences.hpp"
#include "verify/device_buffers.hpp"

#include <algorithm>
#include <map>

namespace heed::conformance {
namespace {

/// One context per engine for the whole run: making one per test would test less of the plan cache. Its target keeps
/// memory of its own.
struct Running {
  std::unique_ptr<Context> context;
  verify::Target target;
};

std::map<std::string, Running>& running() {
  static std::map<std::string, Running> map;
  return map;
}

/// Of one test, which is run on one engine after the other; some tests have hundreds of cases.
constexpr std::size_t kMostReferenceBytes = std::size_t{512} << 20;

Running& running(const Engine& engine) {
  Running& found = running()[engine.name];
  if (found.context == nullptr) {
    found.context = engine.make_context();
    found.target = verify::Target::of(*found.context, engine.choice);
  }
  return found;
}

}  // namespace

std::vector<Engine>& engines() {
  static std::vector<Engine> list;
  return list;
}

void Conformance::SetUpTestSuite() {}
void Conformance::TearDownTestSuite() { running().clear(); }

void Conformance::SetUp() {
  static std::string sentence;
  std::string now = sentence_of(*testing::UnitTest::GetInstance()->current_test_info());
  if (now == sentence) return;
  sentence = std::move(now);
  references().clear();
}

Context& Conformance::context() const { return *running(GetParam()).context; }

verify::Target Conformance::target(Executor* executor) const {
  return executor == nullptr ? running(GetParam()).target : verify::Target::of(context(), GetParam().choice, executor);
}

verify::ReferenceCache& Conformance::references() {
  static verify::ReferenceCache cache(kMostReferenceBytes);
  return cache;
}

bool Conformance::on_gpu() const { return GetParam().choice == EngineChoice::cuda; }

bool Conformance::best_of_its_engine() const {
  const auto itself = std::find_if(engines().begin(), engines().end(),
                                   [&](const Engine& engine) { return engine.name == GetParam().name; });
  return on_gpu() || std::none_of(itself + 1, engines().end(), [&](const Engine& engine) {
           return engine.choice == GetParam().choice && !engine.emulated;
         });
}

void Conformance::run_plan_twice_on_the_gpu(const Buffers& buffers) const {
  verify::DeviceBuffers device;
  device.upload(buffers);
  const auto run = [&](const auto& args) {
    const Plan plan = context().plan(Problem::of(args, Memory::gpu), {.engine = GetParam().choice});
    const auto workspace = device.workspace(plan.workspace_bytes());
    for (int i = 0; i < 2; ++i) plan.run_on_stream(args, workspace, device.stream());
    EXPECT_FALSE(device.workspace_overrun()) << buffers.get_case().to_command();
  };
  if (buffers.get_case().backward()) {
    run(device.translated(buffers.backward_args()));
  } else {
    run(device.translated(buffers.args()));
  }
  device.download(buffers);
}

void Conformance::expect_matches_oracle(const Case& c) const {
  const verify::Verdict verdict = verify::run_case(c, target(), {.references = &references()});
  EXPECT_TRUE(verdict.valid()) << verdict.to_string() << "\n  " << c.to_command();
}

void Conformance::expect_matches_oracle(const Buffers& buffers, const std::string& what) const {
  if (buffers.get_case().operation == Operation::backward) {
    target().backward(buffers, buffers.backward_args());
  } else {
    target().forward(buffers, buffers.args());
  }
  const verify::Verdict verdict =
      verify::judge(buffers, {.executor = &context().executor(), .references = &references()});
  EXPECT_TRUE(verdict.valid()) << what << ": " << verdict.to_string() << "\n  " << buffers.get_case().to_command();
}

std::vector<std::byte> Conformance::run(const Case& c, Executor* executor) const {
  const Buffers buffers(c);
  target(executor).forward(buffers, buffers.args());
  return buffers.output_bytes();
}

std::vector<double> Conformance::output(const Case& c) const {
  const Buffers buffers(c);
  target().forward(buffers, buffers.args());
  const ForwardArgs& args = buffers.args();
  const core::Sequences sequences(args);
  const Strides steps = core::strides_of(args.o);
  std::vector<double> values;
  for (std::int64_t b = 0; b < c.b; ++b)
    for (std::int64_t h = 0; h < c.h; ++h)
      for (std::int64_t i = 0; i < c.logical_q(b); ++i)
        for (std::int64_t e = 0; e < c.d_v; ++e)
          values.push_back(
              core::load(args.o.data, args.o.type,
                         b * steps.batch + (sequences[b].q_row + i) * steps.sequence + h * steps.head + e * steps.dim));
  return values;
}

std::vector<double> Conformance::lse(const Case& c) const {
  const Buffers buffers(c);
  target().forward(buffers, buffers.args());
  const ForwardArgs& args = buffers.args();
  const core::Sequences sequences(args);
  const core::LseStrides steps = core::lse_strides(args.lse);
  std::vector<double> values;
  for (std::int64_t b = 0; b < c.b; ++b)
    for (std::int64_t h = 0; h < c.h; ++h)
      for (std::int64_t i = 0; i < c.logical_q(b); ++i)
        values.push_back(core::load(args.lse.data, args.lse.type,
                                    b * steps.batch + h * steps.head + (sequences[b].q_row + i) * steps.row));
  return values;
}

Case small() {
  Case c;
  c.b = 2, c.h = 4, c.h_k = 2, c.s_q = {33}, c.s_k = {70}, c.d = c.d_v = 16;
  c.type = f32;
  c.lse = true;
  return c;
}

std::vector<Case> various_cases() {
  std::vector<Case> cases;
  const auto add = [&](auto change) {
    Case c = small();
    change(c);
    cases.push_back(c);
  };
  add([](Case& c) { c.type = bf16, c.s_q = {150}, c.s_k = {150}, c.mask = Mask::causal(); });
  add([](Case& c) { c.s_q = {1}, c.s_k = {3000}, c.d = c.d_v = 32; });
  add([](Case& c) { c.type = bf16, c.s_q = {3}, c.s_k = {2500}, c.h = 8; });
  add([](Case& c) { c.s_q = {30}, c.s_k = {2100}, c.b = 1, c.h = 1, c.h_k = 1; });
  add([](Case& c) {
    c.type = f16, c.p_drop = 0.3, c.bias = BiasSpec{f32, {.query = true}}, c.alibi = Alibi::per_head;
  });
  add([](Case& c) {
    c.mode = Mode::group, c.b = 5, c.s_q = {1, 90, 0, 17, 64}, c.s_k = {1500, 90, 9, 0, 65};
    c.sink = SinkInit::normal, c.soft_cap = 10;
  });
  return cases;
}

std::string sentence_of(const testing::TestInfo& test) {
  const std::string full = std::string(test.test_suite_name()) + "." + test.name();
  return test.value_param() == nullptr ? full : full.substr(0, full.rfind('/'));
}

bool small_scale() { return test_scale() == "small"; }

std::int64_t sweep_step(std::int64_t thinned) { return small_scale() ? thinned : 1; }

INSTANTIATE_TEST_SUITE_P(On, Conformance, testing::ValuesIn(engines()),
                         [](const testing::TestParamInfo<Engine>& each) { return each.param.name; });

}  // namespace heed::conformance
