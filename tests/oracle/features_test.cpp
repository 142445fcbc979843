/// The oracle's features, each against its definition.

#include "oracle/small.hpp"

#include <heed/philox.hpp>

#include <gtest/gtest.h>

#include <cmath>

namespace heed::test {
namespace {

TEST(OracleFeatures, add_a_bias_of_every_broadcast_shape) {
  const Small base = Small{.b = 2, .s_q = 3, .s_k = 4, .h = 2, .h_k = 1, .d = 2, .d_v = 2}.fill();
  for (int shape = 0; shape < 8; ++shape) {
    const std::int64_t b = shape & 1 ? 2 : 1, h = shape & 2 ? 2 : 1, s = shape & 4 ? 3 : 1;
    std::vector<float> bias(static_cast<std::size_t>(b * h * s * 4)), full(2 * 2 * 3 * 4);
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(std::sin(3.1 * static_cast<double>(i)));
    for (std::int64_t i = 0; i < 48; ++i) {
      const std::int64_t key = i % 4, query = i / 4 % 3 % s, head = i / 12 % 2 % h, entry = i / 24 % b;
      full[static_cast<std::size_t>(i)] = bias[static_cast<std::size_t>(((entry * h + head) * s + query) * 4 + key)];
    }
    Small broadcast = base, repeated = base;
    ForwardArgs args = broadcast.args();
    args.bias = {bias.data(), f32, {b, h, s, 4}};
    oracle::forward(args);
    args = repeated.args();
    args.bias = {full.data(), f32, {2, 2, 3, 4}};
    oracle::forward(args);
    EXPECT_EQ(broadcast.o, repeated.o) << shape;
    EXPECT_EQ(broadcast.lse, repeated.lse) << shape;
  }
}

TEST(OracleFeatures, take_a_bias_of_minus_infinity_as_hidden) {
  Small p = Small{.s_q = 3, .s_k = 3, .d = 2, .d_v = 2}.fill(), causal = p;
  const float no = -INFINITY;
  const std::vector<float> bias{0, no, no, 0, 0, no, no, no, no};
  ForwardArgs args = p.args();
  args.bias = {bias.data(), f32, {3, 3}};
  oracle::forward(args);
  args = causal.args();
  args.mask = Mask::causal();
  oracle::forward(args);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(p.o[i], causal.o[i]);
  EXPECT_EQ(p.o[4], 0);
  EXPECT_EQ(p.o[5], 0);
  EXPECT_EQ(p.lse[2], -INFINITY);
}

TEST(OracleFeatures, apply_alibi_from_the_bottom_right_corner) {
  Small p = Small{.s_q = 2, .s_k = 4, .h = 2, .h_k = 2, .d = 2, .d_v = 2}.fill(), biased = p;
  const std::vector<float> slopes{0.5F, 0.25F};
  ForwardArgs args = p.args();
  args.alibi_slopes = {slopes.data(), f32, {2}};
  oracle::forward(args);
  // |i + 4 - 2 - j|: the last query is at distance 0 from the last key.
  const std::vector<float> distance{2, 1, 0, 1, 3, 2, 1, 0};
  std::vector<float> bias;
  for (const float slope : slopes)
    for (const float each : distance) bias.push_back(-slope * each);
  args = biased.args();
  args.bias = {bias.data(), f32, {2, 2, 4}};
  oracle::forward(args);
  EXPECT_EQ(p.o, biased.o);
  EXPECT_EQ(p.lse, biased.lse);
}

TEST(OracleFeatures, cap_the_scores_softly) {
  Small plain = Small{.s_q = 3, .s_k = 5, .d = 2, .d_v = 2}.fill(), wide = plain, narrow = plain;
  oracle::forward(plain.args());
  ForwardArgs args = wide.args();
  args.soft_cap = 1e7;  // tanh(x) = x for small x
  oracle::forward(args);
  args = narrow.args();
  args.soft_cap = 1e-9;  // all scores are equal
  oracle::forward(args);
  for (std::size_t i = 0; i < plain.o.size(); ++i) EXPECT_NEAR(plain.o[i], wide.o[i], 1e-9);
  for (std::size_t e = 0; e < 2; ++e) {
    double mean = 0;
    for (std::size_t j = 0; j < 5; ++j) mean += static_cast<double>(plain.v[j * 2 + e]) / 5;
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(narrow.o[i * 2 + e], mean, 1e-8);
  }
}

TEST(OracleFeatures, cap_before_they_add_the_bias) {
  Small p{.s_k = 2};
  p.q = {1};
  p.k = {0, 1000};
  p.v = {0, 1};
  const std::vector<float> bias{0, -2};
  ForwardArgs args = p.args();
  args.soft_cap = 2;
  args.bias = {bias.data(), f32, {2}};
  oracle::forward(args);  // scores 0 and 2 * tanh(500) - 2 = 0
  EXPECT_NEAR(p.o[0], 0.5, kTiny);
  EXPECT_NEAR(p.lse[0], std::log(2), kTiny);
}

TEST(OracleFeatures, let_a_sink_join_the_denominator_only) {
  Small p = Small{.s_q = 2, .s_k = 3, .h = 2, .h_k = 1, .d = 2, .d_v = 2}.fill(), with = p;
  const std::vector<float> sink{1.5F, -INFINITY};
  oracle::forward(p.args());
  ForwardArgs args = with.args();
  args.sink = {sink.data(), f32, {2}};
  oracle::forward(args);
  for (std::int64_t i = 0; i < 2; ++i) {
    const double all = std::exp(p.lse_at(0, 0, i)), share = all / (all + std::exp(1.5));
    EXPECT_NEAR(with.lse_at(0, 0, i), std::log(all + std::exp(1.5)), kTiny);
    EXPECT_EQ(with.lse_at(0, 1, i), p.lse_at(0, 1, i));
    for (std::int64_t e = 0; e < 2; ++e) {
      EXPECT_NEAR(with.o_at(0, 0, i, e), share * p.o_at(0, 0, i, e), kTiny);
      EXPECT_EQ(with.o_at(0, 1, i, e), p.o_at(0, 1, i, e));
    }
  }
}

TEST(OracleFeatures, give_the_sink_as_LSE_of_a_row_without_visible_keys) {
  Small p = Small{.s_q = 3, .s_k = 1, .d = 2, .d_v = 2}.fill();
  const std::vector<float> sink{4};
  ForwardArgs args = p.args();
  args.sink = {sink.data(), f32, {1}};
  args.mask = Mask::causal();
  oracle::forward(args);
  EXPECT_EQ(p.lse[0], 4);
  EXPECT_EQ(p.lse[1], 4);
  EXPECT_GT(p.lse[2], 4);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(p.o[i], 0);
}

TEST(OracleFeatures, take_masks_as_factors) {
  const Small base = Small{.s_q = 4, .s_k = 4, .h = 2, .h_k = 2, .d = 2, .d_v = 2}.fill();
  // The boolean mask hides column 1 of head 0 and the whole row 3 of head 1; the mask is causal.
  std::vector<std::uint8_t> keep(2 * 4 * 4, 7);
  for (std::size_t i = 0; i < 4; ++i) keep[i * 4 + 1] = 0;
  for (std::size_t j = 0; j < 4; ++j) keep[16 + 12 + j] = 0;
  std::vector<float> bias(32);
  for (std::size_t at = 0; at < 32; ++at) bias[at] = keep[at] == 0 || at % 4 > at / 4 % 4 ? -INFINITY : 0.0F;
  Small masked = base, biased = base;
  ForwardArgs args = masked.args();
  args.mask = Mask::causal();
  args.bool_mask = {keep.data(), u8, {2, 4, 4}};
  oracle::forward(args);
  args = biased.args();
  args.bias = {bias.data(), f32, {2, 4, 4}};
  oracle::forward(args);
  EXPECT_EQ(masked.o, biased.o);
  EXPECT_EQ(masked.lse, biased.lse);
  EXPECT_EQ(masked.lse_at(0, 1, 3), -INFINITY);
}

TEST(OracleFeatures, spread_a_block_mask_over_its_blocks) {
  const Small base = Small{.s_q = 5, .s_k = 7, .h = 1, .h_k = 1, .d = 2, .d_v = 2}.fill();
  const std::vector<std::uint8_t> blocks{1, 0, 1, 0, 1, 1};  // [ceil(5 / 3), ceil(7 / 3)]
  std::vector<std::uint8_t> keep;
  for (std::size_t i = 0; i < 5; ++i)
    for (std::size_t j = 0; j < 7; ++j) keep.push_back(blocks[i / 3 * 3 + j / 3]);
  Small blocked = base, single = base;
  ForwardArgs args = blocked.args();
  args.block_mask = {{blocks.data(), u8, {1, 1, 2, 3}}, 3, 3};
  oracle::forward(args);
  args = single.args();
  args.bool_mask = {keep.data(), u8, {5, 7}};
  oracle::forward(args);
  EXPECT_EQ(blocked.o, single.o);
  EXPECT_EQ(blocked.lse, single.lse);
}

// With V the identity, a row of O is the row of P.
TEST(OracleFeatures, drop_exactly_the_entries_that_randval_says) {
  Small p = Small{.b = 2, .s_q = 20, .s_k = 24, .h = 2, .h_k = 1, .d = 3, .d_v = 24}.fill();
  for (std::size_t at = 0; at < p.v.size(); ++at) p.v[at] = at / 24 % 24 == at % 24 ? 1.0F : 0.0F;
  Small dropped = p;
  oracle::forward(p.args());
  std::vector<std::uint16_t> words(2 * 2 * 20 * 24, 0);
  ForwardArgs args = dropped.args();
  args.dropout = {.p = 0.3, .seed = 0x123456789ABCDEFu, .offset = 77, .randval = {words.data(), u16, {2, 2, 20, 24}}};
  oracle::forward(args);
  int kept = 0;
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < 20; ++i)
        for (std::int64_t j = 0; j < 24; ++j) {
          const std::uint16_t word = words[static_cast<std::size_t>(((b * 2 + h) * 20 + i) * 24 + j)];
          EXPECT_EQ(word, dropout_word(0x123456789ABCDEFu, 77, static_cast<std::uint64_t>(b * 2 + h),
                                       static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j)));
          const bool keep = word >= dropout_threshold(0.3);
          kept += keep ? 1 : 0;
          EXPECT_NEAR(dropped.o_at(b, h, i, j), keep ? p.o_at(b, h, i, j) / 0.7 : 0, kTiny);
        }
  EXPECT_EQ(dropped.lse, p.lse);  // taken before dropout
  EXPECT_NEAR(kept / 1920.0, 0.7, 0.05);
}

TEST(OracleFeatures, draw_from_a_state_in_memory_as_from_the_numbers_in_it) {
  const Small base = Small{.s_q = 20, .s_k = 24, .h = 2, .h_k = 1, .d = 3, .d_v = 4}.fill();
  Small by_number = base, by_state = base;
  std::vector<std::uint16_t> words(2 * 20 * 24, 0), words_by_state = words;
  ForwardArgs args = by_number.args();
  args.dropout = {.p = 0.3, .seed = 0xFEDCBA9876543210u, .offset = 77, .randval = {words.data(), u16, {1, 2, 20, 24}}};
  oracle::forward(args);
  const std::vector<std::int64_t> state{static_cast<std::int64_t>(0xFEDCBA9876543210u), 77};
  args = by_state.args();
  args.dropout = {.p = 0.3,
                  .seed = 5,
                  .offset = 6,
                  .randval = {words_by_state.data(), u16, {1, 2, 20, 24}},
                  .state = {state.data(), i64, {2}}};
  oracle::forward(args);
  EXPECT_EQ(by_state.o, by_number.o);
  EXPECT_EQ(words_by_state, words);
}

TEST(OracleFeatures, do_nothing_when_dropout_is_zero) {
  Small p = Small{.s_q = 4, .s_k = 6, .d = 2, .d_v = 2}.fill(), with = p;
  oracle::forward(p.args());
  ForwardArgs args = with.args();
  args.dropout = {.p = 0, .seed = 5, .offset = 6, .randval = {}};
  oracle::forward(args);
  EXPECT_EQ(p.o, with.o);
}

}  // namespace
}  // namespace heed::test
