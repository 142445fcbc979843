/// The harness catches wrong gradients. The engine here is the oracle itself, with defects put in by hand.

#include "core/float_bits.hpp"
#include "core/sequences.hpp"
#include "verify/buffers.hpp"
#include "verify/judge.hpp"
#include "verify/run.hpp"

#include <heed/oracle.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

namespace heed::verify {
namespace {

using testing::HasSubstr;

using Change = std::function<void(BackwardArgs&)>;

/// The plain computation of changed arguments as an engine, and something done to its outputs.
Target plain_gradients(
    const Change& defect = [](BackwardArgs&) {}, const Change& before = [](BackwardArgs&) {}) {
  return {.name = "plain", .forward = {}, .backward = [=](const Buffers&, const BackwardArgs& args) {
            BackwardArgs changed = args;
            before(changed);
            oracle::plain_backward(changed);
            changed = args;
            defect(changed);
          }};
}

/// Every gradient is asked for; the bias is shared by the batch.
Case every_gradient(DataType type = f32) {
  Case c;
  c.operation = Operation::backward;
  c.b = 2, c.h = 4, c.h_k = 2, c.s_q = {9}, c.s_k = {14}, c.d = 16, c.d_v = 8;
  c.type = type, c.lse = true;
  c.bias = BiasSpec{f32, {.head = true, .query = true}}, c.dbias = f32;
  c.sink = SinkInit::normal, c.dsink = true;
  c.alibi = Alibi::per_head, c.dslopes = true;
  return c;
}

/// Of q, k and v alone.
Case gradients_of_operands(DataType type) {
  Case c = every_gradient(type);
  c.bias.reset(), c.dbias.reset(), c.sink = SinkInit::none, c.dsink = false, c.alibi = Alibi::none, c.dslopes = false;
  return c;
}

void expect_wrong(const Case& c, const Target& target, const std::string& text) {
  const Verdict verdict = run_case(c, target);
  EXPECT_EQ(verdict.status, Verdict::Status::wrong) << text;
  EXPECT_THAT(verdict.to_string(), HasSubstr(text));
}

void add_to(const OutputView& view, std::int64_t at, double error) {
  core::store(view.data, view.type, at, core::load(view.data, view.type, at) + error);
}

/// Of dq, dk or dv.
std::int64_t place(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t e) {
  const Strides steps = core::strides_of(view);
  return b * steps.batch + row * steps.sequence + h * steps.head + e * steps.dim;
}

TEST(JudgeBackward, accepts_a_plain_computation) {
  for (const DataType type : {f32, f16, bf16}) {
    const Verdict verdict = run_case(every_gradient(type), plain_gradients());
    EXPECT_TRUE(verdict.valid()) << verdict.to_string();
    EXPECT_TRUE(verdict.all_rows());
    ASSERT_EQ(verdict.gradients.size(), 6U);
    for (const auto& [name, distance] : verdict.gradients) {
      EXPECT_TRUE(distance.compared) << name;
      EXPECT_LT(distance.max_error, distance.allowed) << name;
    }
    EXPECT_TRUE(verdict.not_compared.empty());
  }
}

TEST(JudgeBackward, reports_an_error_of_each_gradient_and_its_place) {
  for (const DataType type : {f32, bf16}) {
    const double error = type == f32 ? 1e-4 : 0.3;
    const auto off = [&](const Change& nudge, const std::string& text) {
      expect_wrong(every_gradient(type), plain_gradients(nudge), text);
    };
    off([=](BackwardArgs& a) { add_to(a.dq, place(a.dq, 1, 3, 8, 15), error); }, "dq at (1, 3, 8, 15)");
    off([=](BackwardArgs& a) { add_to(a.dk, place(a.dk, 0, 1, 13, 2), error); }, "dk at (0, 1, 13, 2)");
    off([=](BackwardArgs& a) { add_to(a.dv, place(a.dv, 1, 0, 0, 7), error); }, "dv at (1, 0, 0, 7)");
    off([=](BackwardArgs& a) { add_to(a.dbias, core::broadcast_strides(a.dbias).at(0, 2, 8, 13), error); },
        "dbias at (0, 2, 8, 13)");
    off([=](BackwardArgs& a) { add_to(a.dsink, 3 * a.dsink.stride(0), 10 * error); }, "dsink at (0, 3, 0)");
    off([=](BackwardArgs& a) { add_to(a.dslopes, 1 * a.dslopes.stride(0), 10 * error); }, "dslopes at (0, 1, 0)");
  }
}

TEST(JudgeBackward, notices_a_key_that_is_lost_or_too_many) {
  for (const DataType type : {f32, f16, bf16})
    for (const std::int64_t extra : {-1, 1}) {
      Case c = every_gradient(type);
      c.s_q = c.s_k = {70};
      c.mask = Mask::causal();
      const Change other_mask = [extra](BackwardArgs& args) { args.forward.mask = Mask::raw(70, 1 + extra); };
      EXPECT_FALSE(run_case(c, plain_gradients({[](BackwardArgs&) {}}, other_mask)).valid()) << name(type) << extra;
    }
}

/// Where o.sum() is trained, all rows of dO are one, and with a single key dP and D of all rows are the same number: so
/// is their rounding, which adds up in dK and does not average out.
TEST(JudgeBackward, expects_rows_that_are_the_same_to_have_the_same_errors) {
  Case c = gradients_of_operands(f32);
  c.s_q = {64}, c.s_k = {1}, c.d_v = 16, c.distribution = Distribution::uniform;
  const auto with_d_off_by = [&c](float error, bool same_rows) {
    const Change before = [&](BackwardArgs& args) {
      args.d_lse = TensorView(&error, f32, {c.b, c.h, c.s_q[0]}, {0, 0, 0});
    };
    c.zero_strides.clear();
    if (same_rows) c.zero_strides = {{ZeroStride::Tensor::d_o, 's'}, {ZeroStride::Tensor::d_o, 'h'}};
    return run_case(c, plain_gradients([](BackwardArgs&) {}, before));
  };
  EXPECT_TRUE(with_d_off_by(0x1p-19F, true).valid()) << with_d_off_by(0x1p-19F, true).to_string();
  EXPECT_THAT(with_d_off_by(0x1p-19F, false).to_string(), HasSubstr("dk at (0, 0, 0, 0) is"));
  EXPECT_FALSE(with_d_off_by(0x1p-16F, true).valid());
}

/// With a single key dQ is 0, also of the plain computation. Another order of sums may leave more of it than half of
/// what f16 has next to 0, which is rounded to all of it.
TEST(JudgeBackward, allows_the_step_from_zero_to_the_next_number) {
  Case c = gradients_of_operands(f16);
  c.s_k = {1}, c.d = 1, c.d_v = 2, c.scale = 0.15;
  const auto with_dq_of = [&c](double steps) {
    return run_case(c, plain_gradients([=](BackwardArgs& args) {
                      core::store(args.dq.data, f16, place(args.dq, 0, 0, 0, 0), steps * 0x1p-24);
                    }));
  };
  EXPECT_TRUE(with_dq_of(1).valid()) << with_dq_of(1).to_string();
  EXPECT_THAT(with_dq_of(2).to_string(), HasSubstr("dq at (0, 0, 0, 0) is"));
}

/// What an engine computes that leaves out some query heads: as if their dO, and so all they add, were 0.
TEST(JudgeBackward, notices_a_query_head_that_is_missing_from_its_group) {
  for (const DataType type : {f32, bf16}) {
    const Case c = gradients_of_operands(type);
    const Target loses_one{.name = "plain", .forward = {}, .backward = [&c](const Buffers&, const BackwardArgs& args) {
                             oracle::plain_backward(args);
                             const Buffers others(c);  // dK and dV of the same case without one head
                             const BackwardArgs& lost = others.backward_args();
                             const Strides steps = core::strides_of(lost.d_o);
                             for (std::int64_t i = 0; i < c.s_q[0]; ++i)
                               for (std::int64_t e = 0; e < c.d_v; ++e)
                                 core::store(const_cast<void*>(lost.d_o.data), lost.d_o.type,
                                             place(lost.d_o, 1, 3, i, e), 0.0);
                             EXPECT_NE(steps.head, 0);
                             oracle::plain_backward(lost);
                             for (std::int64_t j = 0; j < c.s_k[0]; ++j)
                               for (std::int64_t e = 0; e < c.d; ++e)
                                 core::store(args.dk.data, args.dk.type, place(args.dk, 1, 1, j, e),
                                             core::load(lost.dk.data, lost.dk.type, place(lost.dk, 1, 1, j, e)));
                           }};
    const Verdict verdict = run_case(c, loses_one);
    EXPECT_FALSE(verdict.valid());
    EXPECT_THAT(verdict.to_string(), HasSubstr("dk at (1, 1, "));
    EXPECT_THAT(verdict.to_string(), testing::Not(HasSubstr("dv at (1, 1, 0, 0) is")));
  }
}

TEST(JudgeBackward, notices_a_batch_entry_that_is_missing_from_the_gradient_of_a_bias) {
  for (const DataType type : {f32, bf16}) {
    const Case c = every_gradient(type);
    const Target loses_one{.name = "plain", .forward = {}, .backward = [&c](const Buffers&, const BackwardArgs& args) {
                             oracle::plain_backward(args);
                             Case first = c;  // entry 0 has the same numbers in every case
                             first.b = 1;
                             const Buffers alone(first);
                             oracle::plain_backward(alone.backward_args());
                             const OutputView &from = alone.backward_args().dbias, &to = args.dbias;
                             for (std::int64_t at = 0; at < c.h * c.s_q[0] * c.s_k[0]; ++at)
                               core::store(to.data, to.type, at, core::load(from.data, from.type, at));
                           }};
    expect_wrong(c, loses_one, "dbias at (0, ");
  }
}

TEST(JudgeBackward, notices_what_was_never_written) {
  const auto unwritten = [](OutputView BackwardArgs::*gradient) {
    return plain_gradients([gradient](BackwardArgs& args) {
      const OutputView& view = args.*gradient;
      std::memset(view.data, 0xFF, static_cast<std::size_t>(bits(view.type) / 8));  // as it was before
    });
  };
  for (const DataType type : {f32, bf16}) {
    expect_wrong(every_gradient(type), unwritten(&BackwardArgs::dq), "it was never written");
    expect_wrong(every_gradient(type), unwritten(&BackwardArgs::dk), "it was never written");
    expect_wrong(every_gradient(type), unwritten(&BackwardArgs::dv), "it was never written");
    expect_wrong(every_gradient(type), unwritten(&BackwardArgs::dbias), "it was never written");
    expect_wrong(every_gradient(type), unwritten(&BackwardArgs::dsink), "it was never written");
    expect_wrong(every_gradient(type), unwritten(&BackwardArgs::dslopes), "it was never written");
  }
}

TEST(JudgeBackward, notices_memory_that_is_not_the_engines_to_write) {
  Case c = every_gradient();
  c.row_gap = 3;
  const auto scribble = [&](const Change& defect, const std::string& text) {
    expect_wrong(c, plain_gradients(defect), text);
  };
  scribble([](BackwardArgs& a) { core::store_raw(a.dq.data, -1, 1.0F); }, "dq was underrun");
  scribble([](BackwardArgs& a) { core::store_raw(a.dk.data, place(a.dk, 1, 1, 13, 15) + 1, 1.0F); }, "dk was overrun");
  scribble([](BackwardArgs& a) { core::store_raw(a.dv.data, place(a.dv, 0, 0, 0, 7) + 1, 1.0F); },
           "dv changed at element 8, which is not an output");
  scribble([](BackwardArgs& a) { core::store_raw(a.dsink.data, 4, 1.0F); }, "dsink was overrun");
  scribble([](BackwardArgs& a) { core::store_raw(a.forward.o.data, 5, 1.0F); }, "o changed at element 5");
  scribble([](BackwardArgs& a) { core::store_raw(const_cast<void*>(a.d_o.data), 5, 1.0F); },
           "d_o changed at element 5");
}

/// Rows that no sequence has, before, between and behind those that do.
TEST(JudgeBackward, notices_a_row_that_belongs_to_no_sequence) {
  Case c = every_gradient();
  c.mode = Mode::group, c.s_q = {5, 9}, c.s_k = {14, 3}, c.s_kpad = {15, 3};
  c.q_around = {2, 3}, c.k_around = {1, 4};
  EXPECT_TRUE(run_case(c, plain_gradients()).valid()) << run_case(c, plain_gradients()).to_string();
  for (const std::int64_t row : {0, 1, 16, 18})
    expect_wrong(
        c, plain_gradients([row](BackwardArgs& a) { core::store_raw(a.dq.data, place(a.dq, 0, 1, row, 0), 0.0F); }),
        "dq changed at");
  for (const std::int64_t row : {0, 15, 19, 22})
    expect_wrong(
        c, plain_gradients([row](BackwardArgs& a) { core::store_raw(a.dv.data, place(a.dv, 0, 1, row, 0), 0.0F); }),
        "dv changed at");
}

/// Of a table that is longer than every sequence the rest has no gradient, and yet one that is asked for: 0.
TEST(JudgeBackward, notices_a_gradient_of_a_bias_that_is_not_zero_behind_the_sequences) {
  Case c = every_gradient();
  c.mode = Mode::group, c.s_q = {5, 9}, c.s_k = {14, 3};
  c.table_more_q = 2, c.table_more_k = 3;
  EXPECT_TRUE(run_case(c, plain_gradients()).valid()) << run_case(c, plain_gradients()).to_string();
  const auto becomes = [](std::int64_t i, std::int64_t j, double value) {
    return plain_gradients([=](BackwardArgs& args) {
      core::store(args.dbias.data, args.dbias.type, core::broadcast_strides(args.dbias).at(0, 1, i, j), value);
    });
  };
  expect_wrong(c, becomes(0, 16, 1e-3), "dbias at (0, 1, 0, 16)");
  expect_wrong(c, becomes(10, 0, NAN), "dbias at (0, 1, 10, 0)");
}

// Without query heads dK and dV are sums of nothing, and there all the same.
TEST(JudgeBackward, wants_zeros_where_there_are_keys_but_no_query_heads) {
  Case c = every_gradient();
  c.h = 0, c.h_k = 2;
  const Verdict verdict = run_case(c, plain_gradients());
  EXPECT_TRUE(verdict.valid()) << verdict.to_string();
  EXPECT_GT(verdict.rows_checked, 0);
  const Target writes_nothing{.name = "none", .forward = {}, .backward = [](const Buffers&, const BackwardArgs&) {}};
  expect_wrong(c, writes_nothing, "it was never written");
}

/// A problem of which few rows are compared.
Case large_for(double& budget) {
  Case c = every_gradient();
  c.s_q = {300}, c.s_k = {90};
  budget = 2e6;
  return c;
}

TEST(JudgeBackward, says_which_gradients_a_choice_of_rows_tells_nothing_about) {
  double budget = 0;
  const Case c = large_for(budget);
  const Verdict verdict = run_case(c, plain_gradients(), {.budget = budget});
  EXPECT_TRUE(verdict.valid()) << verdict.to_string();
  EXPECT_LT(verdict.rows_checked, verdict.rows_total);
  EXPECT_EQ(verdict.not_compared, (std::vector<std::string>{"dbias", "dslopes"}));
}

TEST(JudgeBackward, compares_the_gradient_of_a_sink_whatever_the_size) {
  double budget = 0;
  const Case c = large_for(budget);
  const auto nudge = [](BackwardArgs& a) { add_to(a.dsink, 2 * a.dsink.stride(0), 0.05); };
  EXPECT_THAT(run_case(c, plain_gradients(nudge), {.budget = budget}).to_string(), HasSubstr("dsink at (0, 2, 0)"));
}

TEST(JudgeBackward, compares_rows_of_a_bias_that_no_two_queries_share_whatever_the_size) {
  double budget = 0;
  Case c = large_for(budget);
  c.bias->shape.batch = true;
  const Verdict verdict = run_case(c, plain_gradients(), {.budget = budget});
  EXPECT_TRUE(verdict.valid()) << verdict.to_string();
  EXPECT_EQ(verdict.not_compared, std::vector<std::string>{"dslopes"});
  // The last row of each head is always among those that are compared; all of its keys are.
  const auto nudge = [](BackwardArgs& a) { add_to(a.dbias, core::broadcast_strides(a.dbias).at(1, 3, 299, 89), 0.01); };
  EXPECT_THAT(run_case(c, plain_gradients(nudge), {.budget = budget}).to_string(),
              HasSubstr("dbias at (1, 3, 299, 89)"));
  // So are the rows behind a sequence, which are 0.
  c.q_eff_lens = {300, 200};
  const auto behind = [](BackwardArgs& a) { add_to(a.dbias, core::broadcast_strides(a.dbias).at(1, 0, 250, 3), 0.01); };
  EXPECT_THAT(run_case(c, plain_gradients(behind), {.budget = budget}).to_string(),
              HasSubstr("dbias at (1, 0, 250, 3)"));
}

}  // namespace
}  // namespace heed::verify
