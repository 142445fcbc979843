#include "dispatch/backward_family.hpp"
#include "dispatch/forward_family.hpp"

#include <gtest/gtest.h>

namespace heed::dispatch {
namespace {

class FakeBackwardKernel final : public BackwardKernel {
 public:
  explicit FakeBackwardKernel(const BackwardSignature& signature)
      : BackwardKernel({.stem = "bwd_fake", .signature = signature, .algorithm = {.arch = CpuIsa::baseline}}) {}
  double expected_seconds(const Problem&) const override { return 1; }
  std::vector<Plan::Stage> stages(const Problem&, int) const override { return {}; }
  void run(const BackwardCall&) const override {}
};

/// A problem in f32.
Problem plain_backward() { return Problem::backward().type(f32); }

/// The rule that excludes a kernel of this signature from the problem; empty when none does.
std::string backward_excluded_by(const BackwardSignature& signature, const Problem& problem) {
  Registry registry;
  registry.add(std::make_shared<FakeBackwardKernel>(signature));
  return kBackwardFamily.judge(registry, problem, {}).front().rule;
}

TEST(BackwardFamily, takes_what_the_signature_holds) {
  EXPECT_EQ(backward_excluded_by({.types = {f32}}, plain_backward()), "");
  EXPECT_EQ(backward_excluded_by({.types = {f32}}, Problem::forward()), "operation");
  EXPECT_EQ(backward_excluded_by({.types = {f32}}, Problem::backward().type(f16)), "types");
  EXPECT_EQ(backward_excluded_by({.types = {f32}}, plain_backward().gradient_type(f64)), "gradient-types");
}

TEST(BackwardFamily, never_ignores_what_was_asked_of_the_sums) {
  const BackwardSignature fast{.types = {f32, f16}, .deterministic = false};
  EXPECT_EQ(backward_excluded_by(fast, plain_backward()), "");
  EXPECT_EQ(backward_excluded_by(fast, plain_backward().deterministic(true)), "determinism");
  EXPECT_EQ(backward_excluded_by(fast, Problem::backward().type(f16).accumulate(f16)), "accumulate");
  EXPECT_EQ(
      backward_excluded_by({.types = {f16}, .accumulate = {f32, f16}}, Problem::backward().type(f16).accumulate(f16)),
      "");
}

TEST(BackwardFamily, counts_gradients_beyond_the_operands_as_features) {
  const BackwardSignature few{.types = {f32}, .features = {Feature::bias, Feature::sink, Feature::alibi}};
  const BiasSpec bias{f32, {.query = true}};
  EXPECT_EQ(backward_excluded_by(few, plain_backward().bias(bias)), "");
  EXPECT_EQ(backward_excluded_by(few, plain_backward().bias(bias).dbias(f32)), "features");
  EXPECT_EQ(backward_excluded_by(few, plain_backward().sink(true).dsink(true)), "features");
  EXPECT_EQ(backward_excluded_by(few, plain_backward().alibi(Alibi::per_head).dslopes(true)), "features");
  EXPECT_EQ(backward_excluded_by(few, plain_backward().d_lse(true)), "features");
}

TEST(BackwardFamily, asks_all_eight_operands_for_strides_that_TMA_can_step) {
  const BackwardSignature tma{.types = {f16}, .tma = true};
  const Problem fine = Problem::backward().type(f16).heads(4).lengths(64, 64).head_dims(64);
  EXPECT_EQ(backward_excluded_by(tma, fine), "");
  for (const Operand operand : fine.operands()) {
    Strides odd = fine.strides(operand);
    odd.sequence += 4;
    EXPECT_EQ(backward_excluded_by(tma, Problem(fine).strides(operand, odd)), "tma-stride") << name(operand);
  }
}

}  // namespace
}  // namespace heed::dispatch
