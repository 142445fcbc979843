#include "dispatch/forward_family.hpp"

#include "dispatch/fakes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace heed::dispatch {
namespace {

using heed::testing::FakeKernel;
using heed::testing::FakeSpec;

/// The first forward rule that excludes a kernel of this signature, with its reason; empty when it can.
std::string excluded_by(const ForwardSignature& signature, const Problem& problem) {
  Registry registry;
  registry.add(std::make_shared<FakeKernel>(FakeSpec{.signature = signature}));
  const auto verdict = kForwardFamily.judge(registry, problem, {}).front();
  return verdict.can() ? "" : verdict.rule + ": " + verdict.reason;
}

Problem plain() { return Problem::forward().type(f32).batch(1).heads(8, 2).lengths(4, 100).head_dims(64, 64); }

TEST(ForwardRules, the_widest_signature_takes_every_feature) {
  const ForwardSignature widest{.types = {f32}};
  EXPECT_EQ(excluded_by(widest, plain()), "");
  EXPECT_EQ(excluded_by(widest, plain()
                                    .mask(Mask::window(4, 0, 2))
                                    .bias(BiasSpec{})
                                    .bool_mask(Broadcast{})
                                    .block_mask(BlockMaskSpec{16, 16, {}})
                                    .alibi(Alibi::per_head)
                                    .sink(true)
                                    .soft_cap(30)
                                    .dropout(0.1)
                                    .randval(true)
                                    .lse(true)
                                    .logical_lengths(true, true)
                                    .math(Math::accurate)),
            "");
}

TEST(ForwardRules, each_has_a_name_of_its_own_and_a_sentence) {
  std::set<std::string_view> names;
  for (const ForwardRule& rule : kForwardFamily.rules) {
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    EXPECT_GT(rule.sentence.size(), 20u) << rule.name;
  }
  EXPECT_GE(names.size(), 10u);
}

TEST(ForwardRules, operation) {
  EXPECT_EQ(excluded_by({.types = {f32}}, plain().operation(Operation::backward)),
            "operation: the operation is backward; this family computes the forward pass");
}

TEST(ForwardRules, types) {
  EXPECT_EQ(excluded_by({.types = {f16, bf16}}, plain()),
            "types: q, k and v are f32, this kernel takes f16,bf16; a kernel reads the types it was written for");
}

TEST(ForwardRules, output_types) {
  EXPECT_EQ(excluded_by({.types = {f32}, .output_types = {f32}}, plain().output_type(bf16)),
            "output-types: o is bf16, this kernel takes f32; a kernel writes the types it was written for");
}

TEST(ForwardRules, head_dims) {
  EXPECT_EQ(excluded_by({.types = {f32}, .d = up_to(63)}, plain()),
            "head-dim: d is 64, this kernel takes 1..63; a kernel holds rows of q and k of certain lengths");
  EXPECT_EQ(excluded_by({.types = {f32}, .d = exactly(64), .d_v = multiples(8, 128)}, plain().head_dims(64, 60)),
            "head-dim-v: d_v is 60, this kernel takes 8..128 by 8; a kernel holds rows of v and o of certain lengths");
  EXPECT_EQ(excluded_by({.types = {f32}, .d = exactly(64), .d_v = multiples(8, 128)}, plain().head_dims(64, 72)), "");
}

TEST(ForwardRules, math) {
  EXPECT_EQ(excluded_by({.types = {f32}, .math = {Math::fast}}, plain().math(Math::accurate)),
            "math: math is accurate, this kernel takes fast; accurate math wants every product in f32");
}

TEST(ForwardRules, mode) {
  EXPECT_THAT(excluded_by({.types = {f32}, .modes = {Mode::batch}}, plain().mode(Mode::group)),
              ::testing::StartsWith("mode: the mode is group, this kernel takes batch; "));
}

TEST(ForwardRules, mask) {
  const ForwardSignature causal{.types = {f32}, .masks = {MaskClass::none, MaskClass::causal}};
  EXPECT_EQ(excluded_by(causal, plain()), "");
  EXPECT_EQ(excluded_by(causal, plain().mask(Mask::causal())), "");
  EXPECT_EQ(excluded_by(causal, plain().mask(Mask::causal_top_left())), "");
  EXPECT_EQ(excluded_by(causal, plain().mask(Mask::window(3, 0))),
            "mask: the mask is b:3,0 (window), this kernel takes none,causal; a kernel knows certain kinds of mask");
}

TEST(ForwardRules, features) {
  const ForwardSignature few{.types = {f32}, .features = {Feature::lse, Feature::bias}};
  EXPECT_EQ(excluded_by(few, plain().lse(true).bias(BiasSpec{})), "");
  EXPECT_EQ(excluded_by(few, plain().lse(true).dropout(0.5).sink(true)),
            "features: it has no sink,dropout; every feature asked for must be in the kernel");
}

TEST(ForwardRules, row_count) {
  const ForwardSignature decode{.types = {f32}, .rows_per_kv_head = up_to(15)};
  EXPECT_EQ(excluded_by(decode, plain().lengths(3, 100)), "");
  EXPECT_EQ(
      excluded_by(decode, plain()),
      "row-count: s_q * h / h_k is 16, this kernel takes 1..15; a kernel for decoding takes few query rows per K/V "
      "head");
}

TEST(ForwardRules, a_row_count_beyond_64_bits_is_many) {
  const ForwardSignature decode{.types = {f32}, .rows_per_kv_head = up_to(15)};
  EXPECT_NE(excluded_by(decode, plain().lengths(std::int64_t{1} << 62, 1)), "");
}

TEST(ForwardRules, accumulate) {
  EXPECT_THAT(excluded_by({.types = {f32}}, plain().accumulate(f16)), ::testing::StartsWith("accumulate: "));
}

TEST(ForwardRules, determinism) {
  const ForwardSignature atomic{.types = {f32}, .deterministic = false};
  EXPECT_THAT(excluded_by(atomic, plain()), ::testing::StartsWith("determinism: "));
  EXPECT_EQ(excluded_by(atomic, plain().deterministic(false)), "");
}

TEST(MaskClass, of_every_kind_of_mask) {
  EXPECT_EQ(mask_class(Mask::none()), MaskClass::none);
  EXPECT_EQ(mask_class(Mask::window(-1, -1)), MaskClass::none);
  EXPECT_EQ(mask_class(Mask::causal()), MaskClass::causal);
  EXPECT_EQ(mask_class(Mask::causal_top_left()), MaskClass::causal);
  EXPECT_EQ(mask_class(Mask::window(0, 0)), MaskClass::window);
  EXPECT_EQ(mask_class(Mask::window(-1, 4)), MaskClass::window);
  EXPECT_EQ(mask_class(Mask::window(16, 0, 4)), MaskClass::window_with_sink);
  EXPECT_EQ(mask_class(Mask::raw(3, 5)), MaskClass::raw);
}

TEST(Features, column_major_v_is_told_by_its_strides) {
  const auto columns = plain().strides(Operand::v, {.batch = 0, .sequence = 1, .head = 6400, .dim = 100});
  EXPECT_TRUE(features_of(columns).has(Feature::column_major_v));
  EXPECT_FALSE(features_of(plain()).has(Feature::column_major_v));
}

}  // namespace
}  // namespace heed::dispatch
