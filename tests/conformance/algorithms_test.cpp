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
  return list;
}

class ForcedAlgorithm : public testing::TestWithParam<const char*> {};

TEST_P(ForcedAlgorithm, computes_the_same_contract) {
  if (cuda::devices().empty() || cuda::devices().front().sm != 90) GTEST_SKIP() << "needs a GPU of sm_90";
  Context context(Context::Options{.cuda_algo = GetParam()});
  const verify::Target target = verify::Target::of(context, EngineChoice::cuda);
  const auto algo = cuda::HopperAlgo::parse(GetParam());
  for (const std::int64_t d : {64, 128, 256})
    for (const Case& c : problems(d)) {
      const Buffers buffers(c);
      const Problem problem = Problem::of(buffers.args(), Memory::gpu);
      const auto line = cuda::forced_line(static_cast<int>(d), static_cast<int>(d), algo);
      if (!cuda::broken_limit(cuda::hopper_config(line, problem)).empty()) {  // refused, by the rule that says so
        EXPECT_THROW(context.plan(problem, {.engine = EngineChoice::cuda}), Error);
        continue;
      }
      const verify::Verdict verdict = verify::run_case(c, target);
      EXPECT_TRUE(verdict.valid()) << verdict.to_string() << "\n  " << c.to_command() << " -algo=" << GetParam();
    }
}

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
        "p_in_shared:1,warpgroups:2,stages:2", "p_in_shared:1,warpgroups:2,tile_k:96,stages:2"));

}  // namespace
}  // namespace heed::conformance
