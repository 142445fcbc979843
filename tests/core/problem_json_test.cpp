#include "core/expect_invalid.hpp"

#include <heed/problem.hpp>

#include <cmath>
#include <random>

namespace heed {
namespace {

/// A problem with everything drawn at random, sensible or not: JSON does not judge.
Problem random_problem(std::mt19937_64& random) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto coin = [&] { return pick(0, 1) == 1; };
  const auto shape = [&] { return Broadcast{coin(), coin(), coin(), coin()}; };
  const auto real = [&] {
    return std::ldexp(std::uniform_real_distribution<double>(-1, 1)(random), static_cast<int>(pick(-60, 60)));
  };
  const std::array types{f32, f16, bf16, DataType::fp8_e4m3, DataType::int8};
  const auto type = [&] { return types[static_cast<std::size_t>(pick(0, 4))]; };

  Problem p = Problem::forward().type(type()).batch(pick(0, 5)).heads(pick(0, 9), pick(-1, 9));
  if (coin()) p.operation(Operation::backward);
  if (coin()) p.output_type(type());
  if (coin()) p.mode(Mode::group).total_rows(pick(0, 1000), pick(0, 1000));
  p.lengths(pick(0, 100), pick(0, INT64_MAX / 2))
      .logical_lengths(coin(), coin())
      .head_dims(pick(1, 300), pick(-1, 300));
  if (coin()) p.layout(Layout::bhsd);
  if (coin())
    p.strides(static_cast<Operand>(pick(0, 3)), {pick(-99, 99), pick(-99, 99), pick(INT64_MIN, INT64_MAX), 1});
  p.mask(coin() ? Mask::window(pick(-1, 9), pick(-1, 9), pick(0, 9)) : Mask::raw(pick(-9, 9), pick(-9, 9)));
  if (coin()) p.bool_mask(shape());
  if (coin()) p.block_mask(BlockMaskSpec{pick(0, 128), pick(0, 128), shape()});
  if (coin()) p.bias(BiasSpec{type(), shape()});
  p.alibi(static_cast<Alibi>(pick(0, 2))).sink(coin()).soft_cap(real()).scale(real()).dropout(real());
  p.randval(coin())
      .lse(coin())
      .math(coin() ? Math::fast : Math::accurate)
      .accumulate(type())
      .deterministic(coin())
      .aligned(coin());
  return p;
}

TEST(ProblemJson, ReadsBackToAnEqualProblem) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 3000; ++round) {
    const Problem p = random_problem(random);
    const std::string text = p.to_json();
    const Problem back = Problem::from_json(text);
    ASSERT_EQ(back, p) << text;
    ASSERT_EQ(back.to_json(), text);
    ASSERT_EQ(back.to_string(), p.to_string());
  }
}

TEST(ProblemJson, IsReadable) {
  EXPECT_EQ(
      Problem::forward().type(f16).batch(2).heads(8, 2).lengths(16, 32).head_dims(64).mask(Mask::causal()).to_json(),
      R"({"operation":"forward","type":"f16","output_type":"f16","mode":"batch","batch":2,"heads_q":8,"heads_k":2,)"
      R"("s_q":16,"s_k":32,"total_q":0,"total_k":0,"logical_q":false,"logical_k":false,"d":64,"d_v":64,)"
      R"("layout":"bshd","mask":"b","bool_mask":null,"block_mask":null,"bias":null,"alibi":"none","sink":false,)"
      R"("soft_cap":0.0,"scale":0.125,"dropout":0.0,"randval":false,"lse":false,"math":"fast","accumulate":"f32",)"
      R"("deterministic":true,"aligned":true})");
}

TEST(ProblemJson, MissingKeysTakeTheirDefaultsAndOrderDoesNotMatter) {
  EXPECT_EQ(Problem::from_json("{}"), Problem::forward());
  EXPECT_EQ(Problem::from_json(R"({"heads_q": 6, "d": 96})"), Problem::forward().heads(6).head_dims(96));
  EXPECT_EQ(Problem::from_json(R"({"heads_k": 2, "heads_q": 6})"), Problem::forward().heads(6, 2));
  const Strides steps{0, 64, 128, 1};
  EXPECT_EQ(Problem::from_json(R"({"strides": {"k": [0, 64, 128, 1]}, "layout": "bhsd", "s_k": 4, "heads_q": 3})"),
            Problem::forward().heads(3).lengths(1, 4).layout(Layout::bhsd).strides(Operand::k, steps));
}

TEST(ProblemJson, WhatDoesNotBelongIsRefused) {
  const auto expect = [](const char* text, std::initializer_list<const char*> pieces) {
    SCOPED_TRACE(text);
    expect_invalid([&] { Problem::from_json(text); }, pieces);
  };
  expect("{\"batch\": 2,}", {"problem JSON", "line 1"});
  expect("", {"problem JSON"});
  expect("[]", {"[]", "an object"});
  expect(R"({"batches": 2})", {"'batches'", "heads_q"});
  expect(R"({"batch": "2"})", {"'batch' is \"2\"", "a whole number"});
  expect(R"({"batch": 2.5})", {"'batch' is 2.5"});
  expect(R"({"batch": 9223372036854775808})", {"'batch' is 9223372036854775808"});
  expect(R"({"lse": 1})", {"'lse' is 1", "true or false"});
  expect(R"({"scale": null})", {"'scale' is null", "a number"});
  expect(R"({"type": "f17"})", {"f17", "bf16"});
  expect(R"({"mode": "varlen"})", {"'mode' is \"varlen\"", "batch, group"});
  expect(R"({"mask": "t:4"})", {"t:4"});
  expect(R"({"strides": {"x": [1, 2, 3, 4]}})", {"'x'", "q, k, v, o"});
  expect(R"({"strides": {"q": [1, 2, 3]}})", {"[1,2,3]", "four strides"});
  expect(R"({"bias": {"shape": ["rows"]}})", {"\"rows\"", "s_q"});
  expect(R"({"bias": {"kind": 1}})", {"'kind'", "type, shape"});
  expect(R"({"bool_mask": {"type": "u8"}})", {"'type'", "shape"});
  expect(R"({"block_mask": {"block": 64}})", {"'block'", "block_q"});
}

}  // namespace
}  // namespace heed
