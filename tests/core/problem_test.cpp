#include "core/expect_invalid.hpp"

#include <heed/problem.hpp>

#include <cmath>
#include <limits>
#include <set>
#include <unordered_set>

namespace heed {
namespace {

Problem typical() {
  return Problem::forward().type(bf16).batch(2).heads(32, 8).lengths(128, 256).head_dims(64, 32).mask(Mask::causal());
}

void expect_broken(const Problem& problem, std::initializer_list<const char*> pieces) {
  expect_invalid(
      [&] {
        if (auto error = problem.validate()) throw *error;
      },
      pieces);
}

void expect_fine(const Problem& problem) {
  const auto error = problem.validate();
  EXPECT_FALSE(error) << error->what();
}

void expect_same(const Problem& a, const Problem& b) {
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_TRUE((a <=> b) == 0);
}

void expect_different(const Problem& a, const Problem& b) {
  EXPECT_NE(a, b);
  EXPECT_NE(a.hash(), b.hash());
  EXPECT_TRUE((a < b) != (b < a));
}

TEST(Problem, DefaultsMakeSense) {
  expect_fine(Problem::forward());
  const Problem p = typical();
  EXPECT_EQ(p.output_type(), bf16);
  EXPECT_DOUBLE_EQ(p.scale(), 0.125);
  EXPECT_EQ(Problem::forward().heads(6).heads_k(), 6);
  EXPECT_EQ(Problem::forward().head_dims(80).d_v(), 80);
  EXPECT_EQ(Problem::forward().type(DataType::fp8_e4m3).output_type(), bf16);
}

TEST(Problem, DenseStridesFollowTheLayout) {
  const Problem p = typical();
  EXPECT_EQ(p.strides(Operand::q), (Strides{128 * 32 * 64, 32 * 64, 64, 1}));
  EXPECT_EQ(p.strides(Operand::v), (Strides{256 * 8 * 32, 8 * 32, 32, 1}));
  const Problem by_head = typical().layout(Layout::bhsd);
  EXPECT_EQ(by_head.strides(Operand::k), (Strides{8 * 256 * 64, 64, 256 * 64, 1}));
  EXPECT_EQ(by_head.strides(Operand::o), (Strides{32 * 128 * 32, 32, 128 * 32, 1}));
  const Problem group = typical().mode(Mode::group).total_rows(200, 300);
  EXPECT_EQ(group.strides(Operand::q), (Strides{0, 32 * 64, 64, 1}));
  EXPECT_EQ(Problem(group).layout(Layout::bhsd).strides(Operand::v), (Strides{0, 32, 300 * 32, 1}));
}

TEST(Problem, StridesOfSingleElementsDoNotMatter) {
  const Problem one = Problem::forward().lengths(1, 7).heads(4, 1).head_dims(1, 1);
  EXPECT_EQ(one.strides(Operand::q), (Strides{0, 0, 1, 1}));
  EXPECT_EQ(one.strides(Operand::k), (Strides{0, 1, 0, 1}));
  expect_same(one, Problem(one).strides(Operand::q, {17, -4, 1, 99}));
  expect_fine(Problem(one).strides(Operand::q, {17, -4, 1, 99}));
}

TEST(Problem, EqualHoweverTheSameThingWasTold) {
  expect_same(typical(), typical());
  expect_same(typical(), typical().scale(1 / std::sqrt(64.0)));
  expect_same(typical(), typical().output_type(bf16));
  expect_same(typical().heads(4), typical().heads(4, 4));
  expect_same(typical().head_dims(64), typical().head_dims(64, 64));
  expect_same(typical().layout(Layout::bhsd), typical()
                                                  .strides(Operand::q, {128 * 32 * 64, 64, 128 * 64, 1})
                                                  .strides(Operand::k, {8 * 256 * 64, 64, 256 * 64, 1})
                                                  .strides(Operand::v, {8 * 256 * 32, 32, 256 * 32, 1})
                                                  .strides(Operand::o, {32 * 128 * 32, 32, 128 * 32, 1}));
  expect_same(typical().strides(Operand::q, {1, 2, 3, 1}).layout(Layout::bshd), typical());
  expect_same(typical().mask(Mask::none()), typical().mask(Mask::window(-1, -1, 4)));
  expect_same(typical(), typical().mask(Mask::window(-1, 0, 4)));
  expect_same(typical().soft_cap(0.0), typical().soft_cap(-0.0));
  const BiasSpec row{f32, {.batch = false, .head = false, .query = false, .key = true}};
  const BiasSpec row_by_batch{f32, {.batch = true, .head = false, .query = false, .key = true}};
  expect_same(typical().batch(1).bias(row), typical().batch(1).bias(row_by_batch));
  expect_different(typical().bias(row), typical().bias(row_by_batch));
}

TEST(Problem, EverySetterMakesAnotherProblem) {
  const std::array variants{
      typical(),
      typical().operation(Operation::backward),
      typical().type(f16),
      typical().output_type(f32),
      typical().mode(Mode::group).total_rows(256, 512),
      typical().mode(Mode::group).total_rows(256, 513),
      typical().mode(Mode::group).total_rows(257, 512),
      typical().batch(3),
      typical().heads(32, 4),
      typical().heads(16, 8),
      typical().lengths(127, 256),
      typical().lengths(128, 255),
      typical().logical_lengths(true, false),
      typical().logical_lengths(false, true),
      typical().head_dims(64, 64),
      typical().head_dims(32, 32),
      typical().layout(Layout::bhsd),
      typical().strides(Operand::q, {0, 32 * 64, 64, 1}),
      typical().strides(Operand::o, {128 * 33 * 32, 33 * 32, 32, 1}),
      typical().mask(Mask::causal_top_left()),
      typical().mask(Mask::window(4, 0)),
      typical().mask(Mask::window(4, 0, 2)),
      typical().mask(Mask::raw(4, 1)),
      typical().bool_mask(Broadcast{}),
      typical().bool_mask(Broadcast{.head = true}),
      typical().block_mask(BlockMaskSpec{64, 32, {}}),
      typical().block_mask(BlockMaskSpec{32, 64, {}}),
      typical().bias(BiasSpec{}),
      typical().bias(BiasSpec{bf16, {}}),
      typical().bias(BiasSpec{f32, {.query = true}}),
      typical().alibi(Alibi::per_head),
      typical().alibi(Alibi::per_batch_and_head),
      typical().sink(true),
      typical().soft_cap(30),
      typical().scale(0.3),
      typical().dropout(0.1),
      typical().randval(true),
      typical().lse(true),
      typical().math(Math::accurate),
      typical().accumulate(f16),
      typical().deterministic(false),
  };
  for (std::size_t i = 0; i < variants.size(); ++i)
    for (std::size_t j = 0; j < variants.size(); ++j)
      if (i != j) {
        SCOPED_TRACE(testing::Message() << i << " and " << j);
        expect_different(variants[i], variants[j]);
      }
  EXPECT_EQ(std::set<Problem>(variants.begin(), variants.end()).size(), variants.size());
  EXPECT_EQ(std::unordered_set<Problem>(variants.begin(), variants.end()).size(), variants.size());
}

TEST(Problem, ZeroSizesAreOrdinary) {
  expect_fine(typical().batch(0));
  expect_fine(typical().heads(0, 0));
  expect_fine(typical().heads(0, 4));
  expect_fine(typical().lengths(0, 256));
  expect_fine(typical().lengths(128, 0));
  expect_fine(typical().mode(Mode::group).batch(0).lengths(0, 0).total_rows(0, 0));
}

TEST(Problem, BadSizesAreNamed) {
  expect_broken(typical().batch(-1), {"b = -1", "0 or more"});
  expect_broken(typical().heads(-3), {"h = -3"});
  expect_broken(typical().heads(8, -2), {"h_k = -2"});
  expect_broken(typical().lengths(-5, 1), {"s_q = -5"});
  expect_broken(typical().lengths(5, -1), {"s_k = -1"});
  expect_broken(typical().head_dims(0), {"d = 0", "1 or more"});
  expect_broken(typical().head_dims(8, 0), {"d_v = 0", "1 or more"});
  expect_broken(typical().lengths(5, std::int64_t{1} << 41), {"s_k = 2199023255552", "2^40"});
  expect_broken(typical().batch(std::int64_t{1} << 40).heads(std::int64_t{1} << 40).lengths(0, 0), {"2^56"});
}

TEST(Problem, HeadsThatCannotBeSharedAreRefusedWithThoseThatCould) {
  const auto error = typical().heads(6, 4).validate();
  ASSERT_TRUE(error);
  EXPECT_STREQ(
      error->what(),
      "h = 6 query heads cannot be shared by h_k = 4 key/value heads: h must be a multiple of h_k (here: 1, 2, 3 or "
      "6).");
  expect_broken(typical().heads(7, 0), {"h = 7", "h_k = 0", "1 or 7"});
  expect_broken(typical().heads(1, 2), {"(here: 1)"});
  expect_broken(typical().heads(3, 9), {"1 or 3"});
  expect_broken(typical().heads(65536, 48), {"h_k = 48", "32 or 64"});
}

TEST(Problem, TypesThatHoldNoAttentionDataAreRefused) {
  expect_broken(typical().type(i32), {"cannot be i32", "bf16"});
  expect_broken(typical().type(f64), {"cannot be f64"});
  expect_broken(typical().output_type(u8), {"o cannot be u8", "f32"});
  expect_fine(typical().output_type(f64));
  expect_fine(typical().type(DataType::fp8_e5m2));
  expect_broken(typical().accumulate(f16), {"accumulate = f16", "f32"});
  expect_fine(typical().operation(Operation::backward).lse(true).type(f16).accumulate(f16));
  expect_broken(typical().operation(Operation::backward).accumulate(i64), {"dq_accumulation = i64", "f32"});
}

TEST(Problem, RowsOfPackedTensorsBelongToGroupMode) {
  expect_broken(typical().total_rows(3, 4), {"total_rows(3, 4)", "group mode"});
  expect_broken(typical().mode(Mode::group), {"total_q = 0", "s_q = 128"});
  expect_broken(typical().mode(Mode::group).total_rows(128, 255), {"total_k = 255", "s_k = 256"});
  expect_broken(typical().mode(Mode::group).total_rows(-1, 255), {"total_q = -1"});
  expect_fine(typical().mode(Mode::group).total_rows(128, 256));
}

TEST(Problem, NumbersOutOfRangeAreRefused) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  expect_broken(typical().soft_cap(-1), {"soft_cap = -1", "0 for none"});
  expect_broken(typical().soft_cap(inf), {"soft_cap = inf"});
  expect_broken(typical().soft_cap(nan), {"soft_cap = nan"});
  expect_broken(typical().scale(inf), {"scale = inf", "0.125"});
  expect_broken(typical().scale(nan), {"scale = nan"});
  expect_fine(typical().scale(-2));
  for (const double p : {-0.1, 1.0, 2.0, nan, inf})
    expect_broken(typical().dropout(p), {"dropout p = ", "less than 1"});
  expect_fine(typical().dropout(0.999));
}

TEST(Problem, FeaturesAreChecked) {
  expect_broken(typical().bias(BiasSpec{f16, {}}), {"bias of type f16", "bf16"});
  expect_fine(typical().bias(BiasSpec{bf16, {}}));
  expect_broken(typical().block_mask(BlockMaskSpec{0, 64, {}}), {"block_q = 0"});
  expect_broken(typical().block_mask(BlockMaskSpec{64, -1, {}}), {"block_k = -1"});
}

TEST(Problem, InnermostStridesAreOneExceptForColumnMajorV) {
  expect_broken(typical().strides(Operand::q, {8, 4, 2, 2}), {"q: the stride of the head dim is 2", "must be 1"});
  expect_broken(typical().strides(Operand::k, {8, 1, 2, 256}), {"k: the stride of the head dim is 256"});
  expect_broken(typical().strides(Operand::v, {8, 4, 2, 2}), {"v: the strides", "2 and 4", "column-major"});
  expect_fine(typical().strides(Operand::v, {8 * 32 * 256, 1, 32 * 256, 256}));
  // One row of a column-major cache: the sequence stride says nothing.
  expect_fine(typical().lengths(128, 1).strides(Operand::v, {8 * 32 * 256, 1, 32 * 256, 256}));
}

// Libraries tell any strides of a tensor without elements: NumPy zeros, for one.
TEST(Problem, StridesOfTensorsWithoutElementsDoNotMatter) {
  const Strides zeros{0, 0, 0, 0};
  const Problem no_queries = typical().lengths(0, 256);
  expect_fine(Problem(no_queries).strides(Operand::q, zeros).strides(Operand::o, zeros));
  expect_fine(typical().lengths(128, 0).strides(Operand::k, zeros).strides(Operand::v, zeros));
  expect_fine(typical().batch(0).strides(Operand::q, zeros).strides(Operand::k, zeros));
  expect_fine(typical().mode(Mode::group).batch(0).lengths(0, 0).total_rows(0, 0).strides(Operand::q, zeros));
  EXPECT_EQ(Problem(no_queries).strides(Operand::o, {1, 2, 3, 0}), no_queries);
  EXPECT_EQ(Problem(no_queries).strides(Operand::o, {1, 2, 3, 0}).to_json(), no_queries.to_json());
  expect_broken(Problem(no_queries).strides(Operand::k, {0, 0, 0, 0}), {"k: the stride of the head dim is 0"});
}

TEST(Problem, InputsMayOverlapThemselvesButOutputsMayNot) {
  expect_fine(typical().strides(Operand::k, {0, 0, 0, 1}));
  expect_fine(typical().strides(Operand::v, {0, 64, 0, 1}));
  expect_broken(typical().strides(Operand::o, {0, 32 * 32, 32, 1}), {"o overlaps itself", "strides 0, 1024, 32, 1"});
  expect_broken(typical().strides(Operand::o, {128 * 32 * 32, 32 * 32, 31, 1}), {"o overlaps itself"});
  expect_fine(typical().strides(Operand::o, {128 * 32 * 32, -32 * 32, 32, 1}));
}

TEST(Problem, StridesBeyondAnyMemoryAreRefused) {
  expect_broken(typical().strides(Operand::k, {INT64_MAX, 64, 64, 1}), {"k: strides 9223372036854775807", "2^56"});
  expect_broken(typical().strides(Operand::k, {INT64_MIN, 64, 64, 1}), {"k: strides -9223372036854775808"});
  expect_broken(typical().batch(std::int64_t{1} << 20).strides(Operand::k, {std::int64_t{1} << 40, 64, 64, 1}),
                {"2^56"});
  expect_fine(typical().strides(Operand::k, {std::int64_t{1} << 33, 64, 64, 1}));
}

TEST(Problem, TextIsOneLineInTheWordsOfTheCommand) {
  EXPECT_EQ(
      Problem::forward()
          .type(bf16)
          .heads(16)
          .lengths(4096, 4096)
          .head_dims(128)
          .mask(Mask::causal())
          .layout(Layout::bhsd)
          .to_string(),
      "[bf16|batch|bhsd] b:1, h:16/16, s:4096/4096, d:128/128, scale_s:0.0883883, bias:n, p_drop:0, lse:0, mask:b, "
      "v:r");
  EXPECT_EQ(
      typical()
          .mode(Mode::group)
          .total_rows(200, 300)
          .logical_lengths(false, true)
          .output_type(f32)
          .bias(BiasSpec{bf16, {.head = true, .query = true}})
          .alibi(Alibi::per_head)
          .sink(true)
          .soft_cap(30)
          .dropout(0.25)
          .randval(true)
          .lse(true)
          .math(Math::accurate)
          .bool_mask(Broadcast{.batch = true})
          .block_mask(BlockMaskSpec{64, 32, {.query = true}})
          .to_string(),
      "[bf16-f32|group|bshd] b:2, h:32/8, s:128/256, d:64/32, scale_s:0.125, bias:e:1*h*s*s:bf16+a:1*h, p_drop:0.25, "
      "lse:1, mask:b, v:r, rows:200/300, seqlen:k, bool_mask:b*1*1*s, block_mask:64x32:1*1*s*s, sink:1, soft_cap:30, "
      "randval:1, math:accurate");
}

TEST(Problem, TextTellsTheLayout) {
  const auto layout = [](const Problem& p) {
    const std::string text = p.to_string();
    return text.substr(0, text.find(']') + 1);
  };
  EXPECT_EQ(layout(typical()), "[bf16|batch|bshd]");
  Problem mixed = typical().layout(Layout::bhsd);
  mixed.strides(Operand::o, typical().strides(Operand::o));
  EXPECT_EQ(layout(mixed), "[bf16|batch|bhsd-bshd]");
  const Problem column_major = typical().layout(Layout::bhsd).strides(Operand::v, {8 * 32 * 256, 1, 32 * 256, 256});
  EXPECT_EQ(layout(column_major), "[bf16|batch|bhsd]");
  EXPECT_THAT(column_major.to_string(), testing::HasSubstr("v:c"));
  // Where sizes of 1 make two layouts fit, one of them is named.
  EXPECT_EQ(layout(Problem::forward().heads(1).lengths(4, 4).batch(2).layout(Layout::bhsd)), "[f16|batch|bshd]");
  EXPECT_EQ(layout(Problem::forward().heads(4, 1).lengths(1, 4).layout(Layout::bhsd)), "[f16|batch|bshd]");
  EXPECT_EQ(layout(Problem::forward().heads(4, 1).lengths(3, 4).layout(Layout::bhsd)), "[f16|batch|bhsd]");
  const Problem strided = typical().strides(Operand::k, {1 << 20, 1024, 64, 1});
  EXPECT_EQ(layout(strided), "[bf16|batch|strided]");
  EXPECT_THAT(strided.to_string(), testing::HasSubstr("k:1048576/1024/64/1"));
}

}  // namespace
}  // namespace heed
