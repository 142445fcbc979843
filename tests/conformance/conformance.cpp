#include "conformance/conformance.hpp"

#include "core/float_bits.hpp"
#include "core/sequences.hpp"

#include <cstdlib>
#include <map>
#include <string_view>

namespace heed::conformance {
namespace {

/// One context per engine for the whole run: making one per test would test less of the plan cache.
std::map<std::string, std::unique_ptr<Context>>& contexts() {
  static std::map<std::string, std::unique_ptr<Context>> map;
  return map;
}

}  // namespace

std::vector<Engine>& engines() {
  static std::vector<Engine> list;
  return list;
}

void Conformance::SetUpTestSuite() {}
void Conformance::TearDownTestSuite() { contexts().clear(); }

Context& Conformance::context() const {
  auto& context = contexts()[GetParam().name];
  if (context == nullptr) context = GetParam().make_context();
  return *context;
}

verify::Target Conformance::target(Executor* executor) const {
  return verify::Target::of(context(), GetParam().choice, executor);
}

void Conformance::expect_matches_oracle(const Case& c) const {
  const verify::Verdict verdict = verify::run_case(c, target());
  EXPECT_TRUE(verdict.valid()) << verdict.to_string() << "\n  " << c.to_command();
}

void Conformance::expect_matches_oracle(const Buffers& buffers, const std::string& what) const {
  target().forward(buffers.args());
  const verify::Verdict verdict = verify::judge(buffers, {.executor = &context().executor()});
  EXPECT_TRUE(verdict.valid()) << what << ": " << verdict.to_string() << "\n  " << buffers.get_case().to_command();
}

std::vector<std::byte> Conformance::run(const Case& c, Executor* executor) const {
  const Buffers buffers(c);
  target(executor).forward(buffers.args());
  return buffers.output_bytes();
}

std::vector<double> Conformance::output(const Case& c) const {
  const Buffers buffers(c);
  target().forward(buffers.args());
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
  target().forward(buffers.args());
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

bool small_scale() {
  const char* scale = std::getenv("HEED_TEST_SCALE");
  return scale != nullptr && std::string_view(scale) == "small";
}

std::int64_t sweep_step(std::int64_t thinned) { return small_scale() ? thinned : 1; }

INSTANTIATE_TEST_SUITE_P(On, Conformance, testing::ValuesIn(engines()),
                         [](const testing::TestParamInfo<Engine>& each) { return each.param.name; });

}  // namespace heed::conformance
