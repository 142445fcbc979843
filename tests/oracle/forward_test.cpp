/// The oracle against numbers worked out by hand, and against identities of softmax(Q K^T) V.

#include "oracle/small.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace heed::test {
namespace {

constexpr double kInfinity = INFINITY;

// One query against two keys with scores 0 and ln 3: weights 1/4 and 3/4.
TEST(Oracle, weighs_two_keys_as_computed_by_hand) {
  Small p{.s_k = 2, .d_v = 2};
  p.q = {1};
  p.k = {0, std::log(3.0F)};
  p.v = {1, 10, 5, 20};
  oracle::forward(p.args());
  const double third = std::exp(static_cast<double>(std::log(3.0F)));  // 3, up to the rounding of ln 3 to f32
  EXPECT_NEAR(p.o_at(0, 0, 0, 0), (1 + third * 5) / (1 + third), kTiny);
  EXPECT_NEAR(p.o_at(0, 0, 0, 1), (10 + third * 20) / (1 + third), kTiny);
  EXPECT_NEAR(p.lse_at(0, 0, 0), std::log(1 + third), kTiny);
  EXPECT_NEAR(p.o_at(0, 0, 0, 0), 4, 1e-6);
  EXPECT_NEAR(p.o_at(0, 0, 0, 1), 17.5, 1e-6);
  EXPECT_NEAR(p.lse_at(0, 0, 0), std::log(4), 1e-6);
}

// The default scale is 1 / sqrt(d) = 1/2: scores 1 and 2 from products 2 and 4.
TEST(Oracle, scales_by_one_over_the_root_of_d_unless_told) {
  Small p{.s_k = 2, .d = 4};
  p.q = {1, 1, 1, 1};
  p.k = {2, 0, 0, 0, 1, 1, 1, 1};
  p.v = {0, 1};
  oracle::forward(p.args());
  EXPECT_NEAR(p.o[0], 1 / (1 + std::exp(-1.0)), kTiny);
  EXPECT_NEAR(p.lse[0], std::log(std::exp(1.0) + std::exp(2.0)), kTiny);

  ForwardArgs args = p.args();
  args.scale = -1;
  oracle::forward(args);
  EXPECT_NEAR(p.o[0], 1 / (1 + std::exp(2.0)), kTiny);
  EXPECT_NEAR(p.lse[0], std::log(std::exp(-2.0) + std::exp(-4.0)), kTiny);
}

TEST(Oracle, returns_the_row_of_V_of_the_only_visible_key) {
  Small p{.s_q = 5, .s_k = 5, .d = 3, .d_v = 4};
  p.fill();
  ForwardArgs args = p.args();
  args.mask = Mask::window_top_left(0, 0);
  oracle::forward(args);
  for (std::int64_t i = 0; i < 5; ++i)
    for (std::int64_t e = 0; e < 4; ++e)
      EXPECT_EQ(p.o_at(0, 0, i, e), static_cast<double>(p.v[static_cast<std::size_t>(i * 4 + e)])) << i;
}

TEST(Oracle, returns_the_constant_of_a_constant_V) {
  Small p{.b = 2, .s_q = 7, .s_k = 19, .h = 2, .h_k = 2, .d = 5, .d_v = 3};
  p.fill();
  std::fill(p.v.begin(), p.v.end(), 0.625F);
  ForwardArgs args = p.args();
  args.mask = Mask::causal();
  oracle::forward(args);
  for (const double each : p.o) EXPECT_NEAR(each, 0.625, kTiny);
}

// softmax(S + c) = softmax(S): here the shift is a key component shared by all keys.
TEST(Oracle, does_not_change_when_all_scores_of_a_row_shift) {
  Small p{.s_q = 4, .s_k = 9, .d = 3, .d_v = 2};
  p.fill();
  for (std::size_t j = 0; j < 9; ++j) p.k[j * 3] = 0;
  oracle::forward(p.args());
  const auto before = p.o;
  const auto lse_before = p.lse;
  for (std::size_t j = 0; j < 9; ++j) p.k[j * 3] = 64;
  for (std::size_t i = 0; i < 4; ++i) p.q[i * 3] = 8;
  oracle::forward(p.args());
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(p.o[i], before[i], 1e-10);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(p.lse[i] - lse_before[i], 512 / std::sqrt(3), 1e-10);
}

TEST(Oracle, agrees_with_a_direct_log_sum_exp) {
  Small p{.b = 2, .s_q = 3, .s_k = 11, .h = 2, .h_k = 2, .d = 4};
  p.fill();
  oracle::forward(p.args());
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < 3; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < 11; ++j) {
          double score = 0;
          for (std::int64_t e = 0; e < 4; ++e)
            score += static_cast<double>(p.q[static_cast<std::size_t>(((b * 3 + i) * 2 + h) * 4 + e)]) *
                     static_cast<double>(p.k[static_cast<std::size_t>(((b * 11 + j) * 2 + h) * 4 + e)]);
          sum += std::exp(score / 2);
        }
        EXPECT_NEAR(p.lse_at(b, h, i), std::log(sum), kTiny);
      }
}

TEST(Oracle, gives_zero_and_minus_infinity_to_a_row_without_visible_keys) {
  Small p{.s_q = 5, .s_k = 2, .d = 2, .d_v = 3};
  p.fill();
  ForwardArgs args = p.args();
  args.mask = Mask::causal();  // bottom-right: rows 0 to 2 see nothing
  oracle::forward(args);
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(p.lse_at(0, 0, i), -kInfinity);
    for (std::int64_t e = 0; e < 3; ++e) EXPECT_EQ(p.o_at(0, 0, i, e), 0);
  }
  for (std::int64_t e = 0; e < 3; ++e)
    EXPECT_EQ(p.o_at(0, 0, 3, e), static_cast<double>(p.v[static_cast<std::size_t>(e)]));
}

TEST(Oracle, gives_zero_where_there_are_no_keys_at_all) {
  Small p{.s_q = 2, .s_k = 0, .d = 3, .d_v = 2};
  oracle::forward(p.args());
  for (const double each : p.o) EXPECT_EQ(each, 0);
  for (const double each : p.lse) EXPECT_EQ(each, -kInfinity);
}

TEST(Oracle, skips_hidden_keys_even_when_they_hold_NaN) {
  Small p{.s_q = 3, .s_k = 3, .d = 2, .d_v = 2};
  p.fill();
  p.k[4] = p.v[4] = NAN;  // key 2
  ForwardArgs args = p.args();
  args.mask = Mask::causal();
  oracle::forward(args);
  for (std::int64_t i = 0; i < 2; ++i)
    for (std::int64_t e = 0; e < 2; ++e) EXPECT_TRUE(std::isfinite(p.o_at(0, 0, i, e))) << i;
  EXPECT_TRUE(std::isnan(p.o_at(0, 0, 2, 0)));
  EXPECT_TRUE(std::isnan(p.lse_at(0, 0, 2)));
}

TEST(Oracle, carries_a_NaN_of_a_visible_key_into_the_row) {
  for (const std::size_t bad : {0U, 1U, 2U}) {
    Small p{.s_k = 3, .d_v = 2};
    p.fill();
    p.k[bad] = NAN;
    oracle::forward(p.args());
    EXPECT_TRUE(std::isnan(p.o[0]) && std::isnan(p.o[1]) && std::isnan(p.lse[0])) << bad;
  }
}

TEST(Oracle, carries_a_NaN_past_the_hidden_keys_behind_it) {
  for (const std::size_t hidden : {0U, 1U, 2U}) {
    Small p{.s_k = 3, .d_v = 2};
    p.fill();
    p.q[0] = NAN;
    std::vector<std::uint8_t> keep{1, 1, 1};
    keep[hidden] = 0;
    ForwardArgs args = p.args();
    args.bool_mask = {keep.data(), u8, {1, 1, 1, 3}};
    oracle::forward(args);
    EXPECT_TRUE(std::isnan(p.o[0]) && std::isnan(p.o[1]) && std::isnan(p.lse[0])) << hidden;
  }
}

TEST(Oracle, computes_only_the_rows_it_is_asked_for) {
  Small p{.b = 2, .s_q = 4, .s_k = 4, .h = 2, .h_k = 1, .d = 2, .d_v = 1};
  p.fill();
  oracle::forward(p.args());
  Small some = p;
  std::fill(some.o.begin(), some.o.end(), -777.0);
  std::fill(some.lse.begin(), some.lse.end(), -777.0);
  oracle::forward(some.args(), {.rows = [](std::int64_t b, std::int64_t h, std::int64_t i) {
                    return b == 1 && h == 0 && i % 2 == 1;
                  }});
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < 4; ++i) {
        const bool chosen = b == 1 && h == 0 && i % 2 == 1;
        EXPECT_EQ(some.o_at(b, h, i, 0), chosen ? p.o_at(b, h, i, 0) : -777.0);
        EXPECT_EQ(some.lse_at(b, h, i), chosen ? p.lse_at(b, h, i) : -777.0);
      }
}

TEST(Oracle, rounds_its_results_to_the_type_of_the_output) {
  Small p{.s_q = 3, .s_k = 7, .d = 4, .d_v = 5};
  p.fill();
  oracle::forward(p.args());
  std::vector<float> o(15), lse(3);
  ForwardArgs args = p.args();
  args.o = {o.data(), f32, {1, 3, 1, 5}};
  args.lse = {lse.data(), f32, {1, 1, 3}};
  oracle::forward(args);
  for (std::size_t i = 0; i < 15; ++i) EXPECT_EQ(o[i], static_cast<float>(p.o[i]));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(lse[i], static_cast<float>(p.lse[i]));
}

TEST(Oracle, refuses_what_is_no_problem) {
  Small p{.s_q = 2, .s_k = 2, .h = 3, .h_k = 2};
  EXPECT_THROW(oracle::forward(p.args()), Error);
  EXPECT_THROW(oracle::plain_forward(p.args()), Error);
  for (const double each : p.o) EXPECT_EQ(each, -777);
}

// The yardstick: close to the oracle, as close as f32 arithmetic lets it be, and not the same.
TEST(PlainForward, is_within_the_rounding_of_f32_of_the_oracle) {
  Small p{.b = 2, .s_q = 33, .s_k = 65, .h = 4, .h_k = 2, .d = 24, .d_v = 40};
  p.fill();
  ForwardArgs args = p.args();
  args.mask = Mask::causal();
  oracle::forward(args);
  std::vector<float> o(p.o.size()), lse(p.lse.size());
  args.o = {o.data(), f32, {2, 33, 4, 40}};
  args.lse = {lse.data(), f32, {2, 4, 33}};
  oracle::plain_forward(args);
  double error = 0, lse_error = 0;
  for (std::size_t i = 0; i < o.size(); ++i) error = std::max(error, std::abs(static_cast<double>(o[i]) - p.o[i]));
  for (std::size_t i = 0; i < lse.size(); ++i)
    lse_error = std::max(lse_error, std::abs(static_cast<double>(lse[i]) - p.lse[i]));
  EXPECT_LT(error, 2e-6);
  EXPECT_LT(lse_error, 5e-6);
  EXPECT_GT(error, 0);
}

}  // namespace
}  // namespace heed::test
