/// The harness catches what it is there to catch. The engine here is the oracle itself, with defects put in by hand.

#include "verify/judge.hpp"
#include "core/float_bits.hpp"
#include "core/sequences.hpp"
#include "verify/buffers.hpp"
#include "verify/fuzz.hpp"
#include "verify/run.hpp"

#include <heed/error.hpp>
#include <heed/oracle.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

namespace heed::verify {
namespace {

using testing::HasSubstr;

/// The plain computation as an engine, and something done to its outputs.
Target plain_and(std::function<void(const ForwardArgs&)> defect = {}) {
  return {.name = "plain", .forward = [defect](const Buffers&, const ForwardArgs& args) {
            oracle::plain_forward(args);
            if (defect) defect(args);
          }};
}

Case small_case(DataType type = f32) {
  Case c;
  c.b = 2, c.h = 2, c.h_k = 1, c.s_q = {9}, c.s_k = {14}, c.d = 16, c.d_v = 8;
  c.type = type;
  c.lse = true;
  return c;
}

/// Element (b, h, i, e) of o.
std::int64_t o_at(const ForwardArgs& args, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t e) {
  const Strides steps = core::strides_of(args.o);
  return b * steps.batch + i * steps.sequence + h * steps.head + e * steps.dim;
}

void expect_complaint(const Case& c, const Target& target, const std::string& text) {
  const Verdict verdict = run_case(c, target);
  EXPECT_EQ(verdict.status, Verdict::Status::wrong);
  EXPECT_THAT(verdict.to_string(), HasSubstr(text));
}

TEST(Judge, accepts_a_plain_computation) {
  for (const DataType type : {f32, f16, bf16}) {
    const Verdict verdict = run_case(small_case(type), plain_and());
    EXPECT_TRUE(verdict.valid()) << verdict.to_string();
    EXPECT_EQ(verdict.rows_checked, 36);
    EXPECT_TRUE(verdict.all_rows());
    EXPECT_GT(verdict.o.max_error, 0);
    EXPECT_LT(verdict.o.max_error, verdict.o.allowed);
    EXPECT_TRUE(verdict.has_lse);
  }
}

TEST(Judge, reports_an_error_and_its_place) {
  const auto nudge = [](const ForwardArgs& args) {
    const std::int64_t at = o_at(args, 1, 0, 4, 7);
    core::store(args.o.data, args.o.type, at, core::load(args.o.data, args.o.type, at) + 0.05);
  };
  for (const DataType type : {f32, f16, bf16}) {
    expect_complaint(small_case(type), plain_and(nudge), "o at (1, 0, 4, 7)");
    const Verdict verdict = run_case(small_case(type), plain_and(nudge));
    EXPECT_NEAR(verdict.o.max_error, 0.05, 0.01);
    EXPECT_EQ(verdict.o.at.to_string(), "(1, 0, 4, 7)");
  }
}

TEST(Judge, sees_a_small_f32_error) {
  expect_complaint(small_case(), plain_and([](const ForwardArgs& args) {
                     const std::int64_t at = o_at(args, 0, 0, 0, 0);
                     core::store(args.o.data, args.o.type, at, core::load(args.o.data, args.o.type, at) + 2e-5);
                   }),
                   "o at (0, 0, 0, 0)");
}

// Products of size 300 that add up to 0: an engine that multiplies Q by the scale and log2(e) first rounds them.
TEST(Judge, knows_what_a_logit_near_zero_is_the_sum_of) {
  Case c;
  c.b = c.h = c.h_k = 1, c.s_q = {42}, c.s_k = {1}, c.d = 96, c.d_v = 1;
  c.type = f32, c.scale = 2, c.sink = SinkInit::normal;
  c.distribution = Distribution::normal_int, c.seed = 1726954830168670619u;
  const auto off_by = [](double error) {
    return plain_and([error](const ForwardArgs& args) {
      const std::int64_t at = o_at(args, 0, 0, 41, 0);
      core::store(args.o.data, args.o.type, at, core::load(args.o.data, args.o.type, at) + error);
    });
  };
  EXPECT_TRUE(run_case(c, off_by(1.3e-5)).valid()) << run_case(c, off_by(1.3e-5)).to_string();
  expect_complaint(c, off_by(2e-4), "o at (0, 0, 41, 0)");
}

// A weight of e^-100 is no normal number of f32; times a value of 2^50 it is one.
TEST(Judge, lets_weights_vanish_that_f32_cannot_hold_whatever_they_are_multiplied_by) {
  Case c;
  c.b = c.h = c.h_k = 1, c.s_q = {9}, c.s_k = {3}, c.d = 127, c.d_v = 1;
  c.type = f32, c.soft_cap = 50, c.p_drop = 0.99, c.drop_seed = 8178708804776254466u, c.drop_offset = 84;
  c.distribution = Distribution::extreme, c.seed = 5144505285584305433u;
  const auto becomes = [](double value) {
    return plain_and(
        [value](const ForwardArgs& args) { core::store(args.o.data, args.o.type, o_at(args, 0, 0, 8, 0), value); });
  };
  EXPECT_TRUE(run_case(c, becomes(0)).valid()) << run_case(c, becomes(0)).to_string();
  expect_complaint(c, becomes(1e-15), "o at (0, 0, 8, 0)");
}

// A weighted mean of equal values is that value; weights of bf16 that add up to less or more than 1 make it the next
// number.
TEST(Judge, lets_a_mean_of_equal_values_be_a_step_off) {
  Case c;
  c.b = 1, c.h = c.h_k = 2, c.s_q = {128}, c.s_k = {35}, c.d = 47, c.d_v = 109;
  c.type = bf16, c.scale = 0.3, c.distribution = Distribution::const_v, c.seed = 8748541114772754677u;
  const auto becomes = [](double value) {
    return plain_and(
        [value](const ForwardArgs& args) { core::store(args.o.data, args.o.type, o_at(args, 0, 0, 52, 58), value); });
  };
  EXPECT_TRUE(run_case(c, becomes(-2.9375)).valid()) << run_case(c, becomes(-2.9375)).to_string();
  expect_complaint(c, becomes(-2.96875), "o at (0, 0, 52, 58)");
}

TEST(Judge, knows_that_one_head_has_all_the_errors_beside_large_sinks) {
  // Of 16 heads the one with the smallest sink has weights a hundred times as large as most. That the plain computation
  // is lucky there says nothing, however many rows the other heads have.
  Case c;
  c.mode = Mode::group;
  c.b = 4, c.h = 16, c.h_k = 1, c.s_q = {0, 1, 1, 57}, c.s_k = {1, 1, 0, 121}, c.d = c.d_v = 1;
  c.mask = Mask::parse("b:48,48");
  c.sink = SinkInit::large;
  c.type = bf16;
  c.seed = 4518754610701652069;
  const auto by = [&](double factor) {
    return run_case(c, plain_and([factor](const ForwardArgs& args) {
                      const std::int64_t at = o_at(args, 0, 7, 25, 0);
                      core::store(args.o.data, args.o.type, at, core::load(args.o.data, args.o.type, at) * factor);
                    }));
  };
  EXPECT_TRUE(by(0.99).valid()) << by(0.99).to_string();
  EXPECT_FALSE(by(0.9).valid());
}

TEST(Judge, finds_an_element_that_was_never_written) {
  for (const DataType type : {f32, f16, bf16})
    expect_complaint(small_case(type), plain_and([](const ForwardArgs& args) {
                       const std::int64_t bytes = bits(args.o.type) / 8;
                       std::memset(static_cast<char*>(args.o.data) + o_at(args, 0, 1, 8, 3) * bytes, 0xFF,
                                   static_cast<std::size_t>(bytes));
                     }),
                     "o at (0, 1, 8, 3) is -nan, must be");
  expect_complaint(small_case(), plain_and([](const ForwardArgs& args) {
                     const float nan = std::bit_cast<float>(0xFFFFFFFFu);
                     core::store_raw(args.lse.data, 5, nan);
                   }),
                   "it was never written");
}

TEST(Judge, finds_writes_before_and_behind_the_output) {
  expect_complaint(small_case(), plain_and([](const ForwardArgs& args) { core::store_raw(args.o.data, -3, 1.0F); }),
                   "o was underrun: a byte 12 before");
  expect_complaint(small_case(),
                   plain_and([](const ForwardArgs& args) { core::store_raw(args.o.data, 2 * 2 * 9 * 8 + 2, 1.0F); }),
                   "o was overrun: a byte 8 behind");
  expect_complaint(small_case(), plain_and([](const ForwardArgs& args) { core::store_raw(args.lse.data, 36, 1.0F); }),
                   "lse was overrun");
}

TEST(Judge, finds_writes_into_gaps_padding_and_inputs) {
  Case gaps = small_case();
  gaps.row_gap = 3;
  expect_complaint(gaps, plain_and([](const ForwardArgs& args) { core::store_raw(args.o.data, 9, 1.0F); }),
                   "o changed at element 9");
  Case padding = small_case();
  padding.q_eff_lens = {9, 5};
  expect_complaint(
      padding, plain_and([](const ForwardArgs& args) { core::store_raw(args.o.data, o_at(args, 1, 0, 6, 0), 0.0F); }),
      "not an output of the problem: it now holds 0");
  expect_complaint(small_case(),
                   plain_and([](const ForwardArgs& args) { core::store_raw(const_cast<void*>(args.k.data), 2, 0.0F); }),
                   "k changed at element 2");
}

TEST(Judge, wants_infinities_and_NaN_where_the_oracle_has_them) {
  Case c = small_case();
  c.s_k = {4};
  c.mask = Mask::causal();  // rows 0 to 4 see nothing
  EXPECT_TRUE(run_case(c, plain_and()).valid());
  for (const float wrong : {INFINITY, -1e30F, NAN})
    expect_complaint(c, plain_and([wrong](const ForwardArgs& args) { core::store_raw(args.lse.data, 0, wrong); }),
                     "lse at (0, 0, 0)");
  expect_complaint(c, plain_and([](const ForwardArgs& args) { core::store_raw(args.o.data, 0, NAN); }), "must be 0");
}

TEST(Judge, checks_the_random_words_exactly) {
  Case c = small_case();
  c.p_drop = 0.5;
  c.randval = true;
  EXPECT_TRUE(run_case(c, plain_and()).valid());
  expect_complaint(c, plain_and([](const ForwardArgs& args) {
                     core::store_raw(
                         args.dropout.randval.data, 20,
                         static_cast<std::uint16_t>(core::load_raw<std::uint16_t>(args.dropout.randval.data, 20) ^ 1));
                   }),
                   "randval at (0, 0, 1, 6)");
}

TEST(Judge, notices_a_key_that_is_lost_or_too_many) {
  for (const DataType type : {f32, f16, bf16})
    for (const std::int64_t extra : {-1, 1}) {
      Case c = small_case(type);
      c.s_q = c.s_k = {70};
      c.mask = Mask::causal();
      const Verdict verdict =
          run_case(c, {.name = "off by one", .forward = [extra](const Buffers&, const ForwardArgs& args) {
                         ForwardArgs wrong = args;
                         wrong.mask = Mask::raw(70, 1 + extra);
                         oracle::plain_forward(wrong);
                       }});
      EXPECT_FALSE(verdict.valid()) << name(type) << extra;
    }
}

TEST(Judge, checks_boundary_rows_and_a_sample_when_all_are_too_many) {
  Case c = small_case();
  c.s_q = {300};
  const Verdict verdict = run_case(c, plain_and(), {.budget = 1.5e5});
  EXPECT_TRUE(verdict.valid()) << verdict.to_string();
  EXPECT_LT(verdict.rows_checked, verdict.rows_total);
  EXPECT_GT(verdict.rows_checked, 100);
  EXPECT_THAT(verdict.to_string(), HasSubstr("of 1200 rows checked"));
  // The last row of each head is among them.
  const auto spoil_last = [](const ForwardArgs& args) { core::store_raw(args.o.data, o_at(args, 1, 1, 299, 0), 9.0F); };
  EXPECT_FALSE(run_case(c, plain_and(spoil_last), {.budget = 1.5e5}).valid());
}

TEST(RunCase, reports_a_refusal_and_what_was_written_all_the_same) {
  const Target refuses{.name = "none", .forward = [](const Buffers&, const ForwardArgs&) {
                         throw Error(ErrorCode::unsupported, "not today");
                       }};
  Verdict verdict = run_case(small_case(), refuses);
  EXPECT_EQ(verdict.status, Verdict::Status::refused);
  EXPECT_EQ(verdict.to_string(), "not today");
  const Target scribbles{.name = "none", .forward = [](const Buffers&, const ForwardArgs& args) {
                           core::store_raw(args.o.data, 0, 1.0F);
                           throw Error(ErrorCode::unsupported, "not today");
                         }};
  EXPECT_THAT(run_case(small_case(), scribbles).to_string(), HasSubstr("an output was written"));
}

TEST(Fuzz, finds_nothing_wrong_with_a_plain_computation) {
  const FuzzResult result = fuzz(plain_and(), {.seed = 3, .cases = 150});
  EXPECT_EQ(result.cases, 150);
  for (const FuzzFailure& failure : result.failures) ADD_FAILURE() << failure.to_string();
}

TEST(Fuzz, finds_the_same_failures_however_many_jobs_search) {
  const auto with = [](int jobs) {
    const Target refuses_dropout{.name = "none", .forward = [](const Buffers&, const ForwardArgs& args) {
                                   if (args.dropout.p > 0) throw Error(ErrorCode::unsupported, "not today");
                                   oracle::plain_forward(args);
                                 }};
    std::vector<std::int64_t> numbers;
    const FuzzResult result = fuzz(refuses_dropout, {.seed = 3, .cases = 60, .most_failures = 100, .jobs = jobs});
    EXPECT_EQ(result.cases, 60);
    EXPECT_FALSE(result.target_lost);
    for (const FuzzFailure& failure : result.failures) numbers.push_back(failure.number);
    return numbers;
  };
  const auto expected = with(1);
  EXPECT_GT(expected.size(), 2U);
  EXPECT_EQ(with(3), expected);
}

TEST(Fuzz, counts_what_a_target_may_refuse) {
  const Target refuses_dropout{.name = "none", .forward = [](const Buffers&, const ForwardArgs& args) {
                                 if (args.dropout.p > 0) throw Error(ErrorCode::unsupported, "not today");
                                 oracle::plain_forward(args);
                               }};
  const FuzzResult result = fuzz(refuses_dropout, {.seed = 3, .cases = 60, .may_refuse = true});
  EXPECT_EQ(result.cases, 60);
  EXPECT_GT(result.refused, 2);
  for (const FuzzFailure& failure : result.failures) ADD_FAILURE() << failure.to_string();
  // An output that was written is wrong all the same.
  const Target scribbles{.name = "none", .forward = [](const Buffers&, const ForwardArgs& args) {
                           core::store_raw(args.o.data, 0, 1.0F);
                           throw Error(ErrorCode::unsupported, "not today");
                         }};
  EXPECT_EQ(fuzz(scribbles, {.seed = 3, .cases = 60, .may_refuse = true}).failures.size(), 1U);
}

TEST(Fuzz, shrinks_nothing_once_the_device_is_lost) {
  const Target breaks{.name = "none",
                      .forward = [lost = std::make_shared<bool>(false)](const Buffers&, const ForwardArgs& args) {
                        *lost = *lost || args.sink.given();
                        if (*lost) throw Error(ErrorCode::device_failed, "gone");
                        oracle::plain_forward(args);
                      }};
  const FuzzResult result = fuzz(breaks, {.seed = 1, .cases = 200});
  EXPECT_TRUE(result.target_lost);
  ASSERT_EQ(result.failures.size(), 1U);
  EXPECT_EQ(result.failures[0].shrunk, result.failures[0].found);
  EXPECT_NE(result.failures[0].found.sink, SinkInit::none);
}

// An engine that forgets the sink logits: the fuzzer must find it, and say it in one short line.
TEST(Fuzz, shrinks_a_failure_to_what_matters) {
  const Target forgetful{.name = "forgetful", .forward = [](const Buffers&, const ForwardArgs& args) {
                           ForwardArgs wrong = args;
                           wrong.sink = {};
                           oracle::plain_forward(wrong);
                         }};
  const FuzzResult result = fuzz(forgetful, {.seed = 1, .cases = 200});
  ASSERT_EQ(result.failures.size(), 1U);
  const Case& c = result.failures[0].shrunk;
  EXPECT_NE(c.sink, SinkInit::none);
  Case simplest;
  simplest.b = simplest.h = simplest.h_k = 1;
  simplest.s_q = simplest.s_k = {1};
  simplest.d = simplest.d_v = 1;
  simplest.type = f32;
  simplest.sink = c.sink;
  simplest.seed = c.seed;
  EXPECT_EQ(c, simplest) << c.to_command();
}

}  // namespace
}  // namespace heed::verify
