/// Knobs change how the CUDA engine computes, and nothing about what.

#include "conformance/conformance.hpp"
#include "cuda/device.hpp"
#include "cuda/hopper_lines.hpp"
#include "cuda/kernel_text.hpp"

#include <heed/error.hpp>

namespace heed::conformance {
namespace {

/// Problems that take different ways through a Hopper kernel.
std::vector<Case> problems(std::int64_t d) {
  std::vector<Case> list;
  const auto add = [&](auto change) {
    Case c;
    c.b = 2, c.h = 4, c.h_k = 2, c.s_q = {333}, c.s_k = {700}, c.d = c.d_v = d;
    c.type = f16, c.lse = true;
    change(c);
    list.push_back(c);
  };
  add([](Case&) {});
  add([](Case& c) { c.mask = Mask::causal(), c.s_q = c.s_k = {1000}, c.type = bf16; });
  add([](Case& c) { c.mask = Mask::window(100, 20, 3), c.s_q = {700}; });
  add([](Case& c) {
    c.mode = Mode::group, c.b = 3, c.s_q = {1, 400, 65}, c.s_k = {300, 400, 0}, c.mask = Mask::causal();
  });
  add([](Case& c) { c.distribution = Distribution::hot_key, c.s_k = {1500}; });
  add([](Case& c) { c.v_column_major = true, c.s_k = {704}; });
  add([](Case& c) { c.v_column_major = true, c.mask = Mask::causal(), c.s_q = c.s_k = {1000}; });
  add([](Case& c) { c.block_mask = BlockMaskSpec{64, 64, {.query = true}}; });
  for (const std::uint64_t seed : {7, 4, 8})  // in Q, K and V
    add([=](Case& c) { c.mask = Mask::causal(), c.distribution = Distribution::one_nan, c.seed = seed; });
  return list;
}

/// Biases whose rows begin at multiples of sixteen bytes, of four and of two, of which some keys or rows have none.
std::vector<Case> biased_problems(std::int64_t d) {
  std::vector<Case> list;
  const auto add = [&](auto change) {
    Case c;
    c.b = 2, c.h = 4, c.h_k = 2, c.s_q = {333}, c.s_k = {704}, c.d = c.d_v = d;
    c.type = bf16, c.lse = true, c.bias = BiasSpec{bf16, {.head = true, .query = true}};
    change(c);
    list.push_back(c);
  };
  add([](Case&) {});
  add([](Case& c) { c.s_k = {700}, c.mask = Mask::causal(); });
  add([](Case& c) { c.s_k = {701}, c.bias_inf = true; });
  add([](Case& c) { c.mask = Mask::causal(), c.s_q = c.s_k = {1000}, c.bias->shape.batch = true; });
  add([](Case& c) { c.bias->shape.query = false, c.distribution = Distribution::hot_key, c.s_k = {1504}; });
  add([](Case& c) { c.mask = Mask::window(100, 20, 3), c.s_q = {704}; });
  add([](Case& c) {
    c.mode = Mode::group, c.b = 3, c.s_q = {1, 400, 65}, c.s_k = {300, 400, 0}, c.mask = Mask::causal();
  });
  add([](Case& c) { c.bool_mask = Broadcast{.query = true}; });
  return list;
}

/// And through a Hopper kernel of the backward pass: partial blocks of every size, groups of heads, an order for dQ.
std::vector<Case> backward_problems(std::int64_t d) {
  std::vector<Case> list;
  const auto add = [&](auto change) {
    Case c;
    c.operation = Operation::backward;
    c.b = 2, c.h = 4, c.h_k = 2, c.s_q = {333}, c.s_k = {470}, c.d = c.d_v = d;
    c.type = f16;
    change(c);
    list.push_back(c);
  };
  add([](Case&) {});
  add([](Case& c) { c.mask = Mask::causal(), c.s_q = c.s_k = {500}, c.type = bf16; });
  add([](Case& c) { c.mask = Mask::causal(), c.s_q = c.s_k = {700}, c.deterministic = true; });
  add([](Case& c) { c.deterministic = true, c.h_k = 4; });
  add([](Case& c) { c.mask = Mask::window(150, 20), c.s_q = c.s_k = {900}, c.deterministic = true; });
  add([](Case& c) { c.mask = Mask::window(100, 20, 3), c.s_q = {470}; });
  add([](Case& c) {
    c.mode = Mode::group, c.b = 3, c.s_q = {1, 400, 65}, c.s_k = {300, 400, 7}, c.mask = Mask::causal();
  });
  add([](Case& c) { c.soft_cap = 5, c.s_q = {129}; });
  add([](Case& c) { c.s_q = {1}, c.s_k = {1}; });
  add([](Case& c) { c.s_q = {1000}, c.s_k = {40}, c.b = 5; });
  for (const std::uint64_t seed : {5, 7, 10, 9})  // in Q, K, V and dO
    add([=](Case& c) { c.mask = Mask::causal(), c.distribution = Distribution::one_nan, c.seed = seed; });
  return list;
}

bool has_hopper() { return !cuda::devices().empty() && cuda::devices().front().sm == 90; }

void expect_contract(const char* knobs, std::int64_t d, const std::vector<Case>& cases) {
  Context context(Context::Options{.cuda_algo = knobs});
  const verify::Target target = verify::Target::of(context, EngineChoice::cuda);
  const auto algo = cuda::HopperAlgo::parse(knobs);
  for (const Case& c : cases) {
    const Buffers buffers(c);
    const Problem problem = Problem::of(buffers.args(), Memory::gpu);
    const auto line = cuda::forced_line(static_cast<int>(d), static_cast<int>(d), algo);
    if (!cuda::broken_limit(cuda::hopper_config(line, problem)).empty()) {  // refused, by the rule that says so
      EXPECT_THROW(context.plan(problem, {.engine = EngineChoice::cuda}), Error);
      continue;
    }
    const verify::Verdict verdict = verify::run_case(c, target);
    EXPECT_TRUE(verdict.valid()) << verdict.to_string() << "\n  " << c.to_command() << " -algo=" << knobs;
  }
}

class ForcedAlgorithm : public testing::TestWithParam<const char*> {};

TEST_P(ForcedAlgorithm, computes_the_same_contract) {
  if (!has_hopper()) GTEST_SKIP() << "needs a GPU of sm_90";
  for (const std::int64_t d : {64, 128, 256}) expect_contract(GetParam(), d, problems(d));
}

class ForcedBiasRoute : public testing::TestWithParam<const char*> {};

TEST_P(ForcedBiasRoute, computes_the_same_contract) {
  if (!has_hopper()) GTEST_SKIP() << "needs a GPU of sm_90";
  for (const std::int64_t d : {64, 128}) expect_contract(GetParam(), d, biased_problems(d));
}

INSTANTIATE_TEST_SUITE_P(On, ForcedBiasRoute,
                         testing::Values("bias_route:copied,stages:3,bias_stages:1",
                                         "bias_route:copied,warpgroups:2,tile_k:96,stages:2",
                                         "bias_route:copied,warpgroups:2,tile_k:128,stages:2,bias_stages:1",
                                         "bias_route:copied,warpgroups:1,stages:2,bias_stages:4",
                                         "bias_route:copied,warpgroups:4,stages:4,turns:products"));

/// Each value of each knob, by itself or with what it needs.
INSTANTIATE_TEST_SUITE_P(
    On, ForcedAlgorithm,
    testing::Values(
        "warpgroups:1,stages:2", "warpgroups:2,stages:2", "warpgroups:3,stages:3,tile_k:64",
        "warpgroups:4,tile_k:64,stages:4", "warpgroups:2,tile_k:128,stages:2", "warpgroups:1,tile_k:176,stages:2",
        "warpgroups:2,tile_k:80,stages:2", "warpgroups:2,tile_k:96,stages:2", "warpgroups:2,tile_k:112,stages:2",
        "warpgroups:1,tile_k:160,stages:2", "k_stages:2,v_stages:4,warpgroups:2", "q_buffers:1,warpgroups:2,stages:2",
        "turns:products", "turns:softmax", "persistence:off", "persistence:static", "lazy_maximum:0",
        "lazy_maximum:0,rescale_threshold:0", "rescale_threshold:3,warpgroups:2,stages:2",
        "q_in_registers:1,warpgroups:2,stages:2", "own_o_memory:1,warpgroups:2,stages:2,q_buffers:1",
        "cluster:2,persistence:static,warpgroups:2,stages:2", "cluster:2,persistence:off,stages:3,warpgroups:2",
        "specialised:0,warpgroups:2,stages:2", "specialised:0,warpgroups:1,stages:2,tile_k:64,q_buffers:1",
        "specialised:0,warpgroups:2,stages:3,persistence:static",
        "specialised:0,warpgroups:3,tile_k:32,stages:4,persistence:off", "p_in_shared:1,warpgroups:2,stages:2",
        "p_in_shared:1,warpgroups:2,tile_k:96,stages:2"));

class ForcedBackwardAlgorithm : public testing::TestWithParam<const char*> {};

TEST_P(ForcedBackwardAlgorithm, computes_the_same_contract) {
  if (!has_hopper()) GTEST_SKIP() << "needs a GPU of sm_90";
  Context context(Context::Options{.cuda_backward_algo = GetParam()});
  const verify::Target target = verify::Target::of(context, EngineChoice::cuda);
  const std::string forced = "cuda/sm_90/hopper_bwd_d";
  int computed = 0;
  for (const std::int64_t d : {64, 128, 192, 256})
    for (const Case& c : backward_problems(d)) {
      const verify::Verdict verdict = verify::run_case(c, target);
      if (verdict.unsupported) continue;  // refused, by the rule that says so
      ++computed;
      EXPECT_TRUE(verdict.valid()) << verdict.to_string() << "\n  " << c.to_command() << " -algo=" << GetParam();
      const Buffers buffers(c);
      const Plan plan = context.plan(Problem::of(buffers.backward_args(), Memory::gpu), {.engine = EngineChoice::cuda});
      EXPECT_EQ(plan.kernel().substr(0, forced.size()), forced) << c.to_command();
      EXPECT_NE(plan.kernel().find(GetParam()), std::string::npos) << plan.kernel();
    }
  EXPECT_GE(computed, 5);
}

/// Each combination that can be, sections that hold one head, some, and all of them, and groups whole and divided.
INSTANTIATE_TEST_SUITE_P(
    On, ForcedBackwardAlgorithm,
    testing::Values("tile_q:32,pipeline:in_step", "tile_q:32,pipeline:ahead", "tile_q:48,pipeline:in_step",
                    "tile_q:48,pipeline:ahead", "tile_q:64,pipeline:in_step", "tile_q:64,pipeline:ahead",
                    "tile_q:96,pipeline:in_step", "tile_q:96,pipeline:ahead", "tile_q:128,pipeline:in_step",
                    "tile_q:128,pipeline:ahead", "q_stages:1,o_stages:1", "q_stages:1,o_stages:2",
                    "q_stages:2,o_stages:1", "q_stages:2,o_stages:2", "dq:added", "dq:owned",
                    "q_stages:1,o_stages:2,dq:owned", "section:1", "section:8", "section:2112", "parts:1", "parts:2"));

class ForcedBackwardBiasRoute : public testing::TestWithParam<const char*> {};

TEST_P(ForcedBackwardBiasRoute, computes_the_same_contract) {
  if (!has_hopper()) GTEST_SKIP() << "needs a GPU of sm_90";
  Context context(Context::Options{.cuda_backward_algo = GetParam()});
  const verify::Target target = verify::Target::of(context, EngineChoice::cuda);
  int computed = 0;
  for (const std::int64_t d : {64, 128})
    for (Case c : biased_problems(d)) {
      c.operation = Operation::backward;
      const verify::Verdict verdict = verify::run_case(c, target);
      if (verdict.unsupported) continue;  // refused, by the rule that says so
      ++computed;
      EXPECT_TRUE(verdict.valid()) << verdict.to_string() << "\n  " << c.to_command() << " -algo=" << GetParam();
    }
  EXPECT_GE(computed, 4);
}

INSTANTIATE_TEST_SUITE_P(On, ForcedBackwardBiasRoute,
                         testing::Values("bias_route:copied", "tile_q:64,pipeline:ahead,bias_route:copied",
                                         "tile_q:64,pipeline:in_step,bias_route:copied",
                                         "tile_q:96,pipeline:ahead,bias_route:copied",
                                         "tile_q:32,pipeline:in_step,bias_route:copied"));

/// What every kernel refuses for one reason only is told with the reason.
TEST(ForcedBackward, says_which_limit_knobs_break) {
  if (!has_hopper()) GTEST_SKIP() << "needs a GPU of sm_90";
  Context context(Context::Options{.cuda_backward_algo = "tile_q:96"});
  const Problem problem =
      Problem::backward().type(f16).batch(1).heads(2).lengths(256, 256).head_dims(128, 128).lse(true);
  try {
    context.plan(problem, {.engine = EngineChoice::cuda});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string_view(error.what()).find("shared memory: more than the 227 KB"), std::string_view::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace heed::conformance
