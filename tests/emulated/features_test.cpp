// The features as device code computes them, a thread's entries of a block at once, against what they mean for one
// entry.
#include "emulated/device.hpp"
//
#include "device/backward_features.cuh"
#include "device/forward_scores.cuh"
#include "device/shown_entries.cuh"

#include "cuda/forward_params.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <vector>

namespace heed::kernels {
namespace {

constexpr int kWarp = 32;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Row (of a warp's 16) and key (of a block) of entry i of a lane, as forward_features.cuh says.
int row_of(int lane, int i) { return lane / 4 + i / 2 % 2 * 8; }
int key_of(int lane, int i) { return i / 4 * 8 + lane % 4 * 2 + i % 2; }

/// One sequence of one head, and what its features are read from.
struct Inputs {
  static constexpr int kQueries = 40, kKeys = 420;
  std::mt19937 random{3};
  std::vector<std::uint8_t> keep, blocks;
  std::vector<std::uint16_t> bias;
  float slope = 0.1f;
  ForwardParams params{};
  Sequence sequence{0, 0, kQueries, kKeys, MaskParams::kUnlimited, MaskParams::kUnlimited, 0, 0};

  /// row_bytes: from one row of the boolean mask to the next.
  explicit Inputs(int row_bytes = 432, int column_step = 1, int block_k = 64) {
    keep.resize(std::size_t{kQueries} * static_cast<std::size_t>(row_bytes) * static_cast<std::size_t>(column_step));
    for (auto& x : keep) x = std::array<std::uint8_t, 6>{0, 0, 0, 1, 128, 255}[random() % 6];
    blocks.resize(std::size_t{10} * 100);
    for (auto& x : blocks) x = random() % 2;
    bias.resize(std::size_t{kQueries} * kKeys);
    for (auto& x : bias) x = from_float<bf16>(normal());
    params.keep = keep.data();
    params.keep_steps = {0, 0, row_bytes * column_step, column_step};
    params.blocks = blocks.data();
    params.block_steps = {0, 0, 100, 1};
    params.block_q = 8;
    params.block_k = block_k;
    params.bias = bias.data();
    params.bias_steps = {0, 0, kKeys, 1};
    params.slopes = &slope;
    params.scale = 0.125f;
    params.scale_log2 = params.scale * kLog2e;
    params.heads = 1;
    params.drop_threshold = 20000;
    params.drop_seed = 99;
    set_cap(30);
  }
  float normal() { return std::normal_distribution<float>(0, 1)(random); }
  void set_cap(float cap) {
    params.soft_cap = cap;
    cuda::set_polynomials_of_cap(params);
  }
};

template <ForwardFeatures F>
using Rows = RowFeatures<F, bf16>;
template <ForwardFeatures F>
void set_rows(Rows<F> (&rows)[2], const Inputs& in, int warp_row, int lane) {
  rows[0].set(in.params, in.sequence, 0, 0, warp_row + lane / 4);
  rows[1].set(in.params, in.sequence, 0, 0, warp_row + lane / 4 + 8);
}
/// Runs body(lane) in every lane of one warp.
template <class Body>
void in_a_warp(const Body& body) {
  emulated::launch(1, kWarp, [&] { body(emulated::thread_index()); });
}
/// What a thread has in its registers, for each lane.
template <int R>
using Registers = std::array<std::array<float, R>, kWarp>;

template <ForwardFeatures F, int R>
void expect_shown(const Inputs& in) {
  for (int first_key = 0; first_key < Inputs::kKeys; first_key += 2 * R)
    for (const int warp_row : {0, 16}) {
      std::array<std::array<bool, R>, kWarp> shown{};
      in_a_warp([&](int lane) {
        Rows<F> rows[2];
        set_rows<F>(rows, in, warp_row, lane);
        ShownEntries<F, bf16, R> entries;
        entries.fetch(in.params, rows, first_key, in.sequence.s_k, lane);
        entries.settle(in.params, rows, first_key, in.sequence.s_k, lane);
        for (int i = 0; i < R; ++i)
          shown[static_cast<std::size_t>(lane)][static_cast<std::size_t>(i)] = entries.bits.at(i);
      });
      for (int lane = 0; lane < kWarp; ++lane)
        for (int i = 0; i < R; ++i) {
          const int key = first_key + key_of(lane, i);
          if (key >= Inputs::kKeys) continue;  // hidden by the end of the sequence
          Rows<F> row;
          row.set(in.params, in.sequence, 0, 0, warp_row + row_of(lane, i));
          ASSERT_EQ(shown[static_cast<std::size_t>(lane)][static_cast<std::size_t>(i)], row.visible(in.params, key))
              << "key " << key << " row " << warp_row + row_of(lane, i);
        }
    }
}

TEST(EmulatedFeatures, boolean_masks_become_bits_wherever_rows_begin) {
  for (const int row_bytes : {432, 420, 421})
    for (const int step : {1, 3}) {
      SCOPED_TRACE(fmt::format("rows of {} bytes, every {}", row_bytes, step));
      const Inputs in(row_bytes, step);
      expect_shown<ForwardFeatures{.keep = true}, 32>(in);
      expect_shown<ForwardFeatures{.keep = true}, 48>(in);
      expect_shown<ForwardFeatures{.keep = true}, 16>(in);
    }
}

TEST(EmulatedFeatures, block_masks_become_bits_whatever_their_blocks) {
  for (const int block_k : {5, 16, 32, 48, 64, 96, 128, 1000}) {
    SCOPED_TRACE(fmt::format("blocks of {} keys", block_k));
    const Inputs in(432, 1, block_k);
    expect_shown<ForwardFeatures{.blocks = true}, 32>(in);
    expect_shown<ForwardFeatures{.blocks = true}, 48>(in);
    expect_shown<ForwardFeatures{.keep = true, .blocks = true}, 64>(in);
  }
}

TEST(EmulatedFeatures, masks_of_a_sequence_without_keys_are_not_read) {
  constexpr ForwardFeatures F{.keep = true, .blocks = true};
  Inputs in;
  in.sequence.s_k = 0;
  in.params.keep = in.params.blocks = nullptr;
  in_a_warp([&](int lane) {
    Rows<F> rows[2];
    set_rows<F>(rows, in, 0, lane);
    ShownEntries<F, bf16, 32> entries;
    entries.fetch(in.params, rows, 0, in.sequence.s_k, lane);
    entries.settle(in.params, rows, 0, in.sequence.s_k, lane);
  });
}

TEST(EmulatedFeatures, windows_hide_what_they_say) {
  constexpr ForwardFeatures F{.mask = MaskShape::window};
  constexpr int R = 32;
  Inputs in;
  for (const auto& [y, x, sink] :
       {std::array{30, 200, 0}, std::array{5, 1, 40}, std::array{400, 381, 3}, std::array{-3, 9, 70}}) {
    in.sequence.y = y, in.sequence.x = x, in.sequence.sink = sink;
    for (int first_key = 0; first_key < Inputs::kKeys; first_key += 64) {
      Registers<R> s{};
      in_a_warp([&](int lane) {
        Rows<F> rows[2];
        set_rows<F>(rows, in, 16, lane);
        float scores[R] = {};
        hide_outside_window<F, bf16>(rows, scores, first_key, lane);
        std::copy_n(scores, R, s[static_cast<std::size_t>(lane)].begin());
      });
      for (int lane = 0; lane < kWarp; ++lane)
        for (int i = 0; i < R; ++i) {
          Rows<F> row;
          row.set(in.params, in.sequence, 0, 0, 16 + row_of(lane, i));
          ASSERT_EQ(s[static_cast<std::size_t>(lane)][static_cast<std::size_t>(i)] == 0.0f,
                    row.in_window(first_key + key_of(lane, i)));
        }
    }
  }
}

/// Scores of blocks, and exponents made without them, against RowFeatures::score().
template <ForwardFeatures F>
void expect_scores(Inputs& in, float size, bool some_directly) {
  constexpr int R = 32;
  int directly = 0;
  for (int first_key = 0; first_key + 64 <= Inputs::kKeys; first_key += 64) {
    Registers<R> products{}, scores{}, exponents{};
    for (auto& lane : products)
      for (float& x : lane) x = size * in.normal();
    std::array<bool, kWarp> suits{};
    const float reference[2] = {3.5f, -2.25f};
    in_a_warp([&](int lane) {
      const auto at = static_cast<std::size_t>(lane);
      Rows<F> rows[2];
      set_rows<F>(rows, in, 16, lane);
      float s[R];
      std::copy_n(products[at].begin(), R, s);
      BlockBias<F, bf16, R> bias;
      bias.fetch(in.params, rows, first_key, in.sequence.s_k, lane);
      change_scores<F, bf16>(in.params, rows, bias, s, first_key, in.sequence.s_k, lane);
      std::copy_n(s, R, scores[at].begin());
      if constexpr (DirectExponents<F, bf16, R>::kPossible) {
        std::copy_n(products[at].begin(), R, s);
        bias.fetch(in.params, rows, first_key, in.sequence.s_k, lane);
        DirectExponents<F, bf16, R> direct{};
        suits[at] = direct.suits(in.params, rows, s, first_key, lane, reference);
        for (int half = 0; half < 2; ++half) bias.settle(in.params, rows[half], half, first_key, in.sequence.s_k, lane);
        if (suits[at])
          for (int i = 0; i < R; ++i) exponents[at][static_cast<std::size_t>(i)] = direct.of(in.params, bias, s[i], i);
      }
    });
    for (int lane = 0; lane < kWarp; ++lane) {
      const auto at = static_cast<std::size_t>(lane);
      ASSERT_EQ(suits[at], suits[0]);
      directly += suits[at];
      for (int i = 0; i < R; ++i) {
        Rows<F> row;
        row.set(in.params, in.sequence, 0, 0, 16 + row_of(lane, i));
        const int key = first_key + key_of(lane, i);
        float added = 0;
        if constexpr (F.bias != BiasType::none) added = row.bias_at(key);
        const float expected = row.score(in.params, products[at][static_cast<std::size_t>(i)], key, added);
        const float near = 4e-6f * (std::abs(expected) + 60);
        ASSERT_NEAR(scores[at][static_cast<std::size_t>(i)], expected, near) << "key " << key << " lane " << lane;
        if (!suits[at]) continue;
        ASSERT_NEAR(exponents[at][static_cast<std::size_t>(i)], expected - reference[i / 2 % 2], near) << "key " << key;
      }
    }
  }
  EXPECT_EQ(directly > 0, some_directly);
}

TEST(EmulatedFeatures, scores_and_exponents_are_those_of_single_entries) {
  Inputs in;
  expect_scores<ForwardFeatures{.alibi = true}>(in, 8, true);
  expect_scores<ForwardFeatures{.bias = BiasType::as_input}>(in, 8, true);
  expect_scores<ForwardFeatures{.negative_scale = true, .bias = BiasType::as_input, .alibi = true}>(in, 8, true);
  expect_scores<ForwardFeatures{.keep = true, .alibi = true}>(in, 8, false);
  for (const auto& [cap, small] :
       {std::pair{30.0f, true}, std::pair{4.0f, false}, std::pair{0.3f, false}, std::pair{1e4f, true}}) {
    in.set_cap(cap);
    expect_scores<ForwardFeatures{.soft_cap = true}>(in, 8, small);
    expect_scores<ForwardFeatures{.soft_cap = true, .bias = BiasType::as_input, .alibi = true}>(in, 8, small);
  }
}

TEST(EmulatedFeatures, dropout_takes_the_entries_that_its_words_say) {
  constexpr int R = 32;
  const Inputs in;
  const DropKey key = drop_key(in.params);
  Registers<R> forward{}, backward{};
  in_a_warp([&](int lane) {
    const auto at = static_cast<std::size_t>(lane);
    float weights[R];
    std::fill_n(weights, R, 1.0f);
    drop(in.params, key, 5, weights, 32, 64, lane);
    std::copy_n(weights, R, forward[at].begin());
    for (int t = 0; t < R / 8; ++t) {  // 16 queries at a time, from query 16 on, of keys 48 to 63
      DropWords words;
      words.draw(key, 5, static_cast<u32>(16 + 16 * t), 48, static_cast<u32>(lane));
      for (int e = 0; e < 8; ++e)
        backward[at][static_cast<std::size_t>(8 * t + e)] =
            words.lost(e >> 2, e >> 1 & 1, e & 1, in.params.drop_threshold) ? 0 : 1;
    }
  });
  const auto kept = [&](int row, int column) {
    return drop_word(key, 5, static_cast<u32>(row), static_cast<u32>(column)) >= in.params.drop_threshold ? 1.0f : 0.0f;
  };
  for (int lane = 0; lane < kWarp; ++lane)
    for (int i = 0; i < R; ++i) {
      const auto at = static_cast<std::size_t>(lane), entry = static_cast<std::size_t>(i);
      ASSERT_EQ(forward[at][entry], kept(32 + row_of(lane, i), 64 + key_of(lane, i)));
      const int query = 16 + i / 8 * 16 + (i >> 2 & 1) * 8 + lane % 4 * 2 + i % 2,
                column = 48 + lane / 4 + (i >> 1 & 1) * 8;
      ASSERT_EQ(backward[at][entry], kept(query, column));
    }
}

/// The backward pass has keys as rows: entry i is of this query and key.
template <ForwardFeatures F>
void expect_backward_scores(Inputs& in, float size) {
  constexpr int R = 32, kFirstQuery = 0, kFirstKey = 48;
  Registers<R> products{}, values{}, slopes{};
  for (auto& lane : products)
    for (float& x : lane) x = size * in.normal();
  in_a_warp([&](int lane) {
    const auto at = static_cast<std::size_t>(lane);
    KeyFeatures<F, bf16> keys;
    keys.set(in.params, 0, 0, kFirstKey + lane / 4);
    float s[R];
    std::copy_n(products[at].begin(), R, s);
    hide<F, bf16>(in.params, in.sequence, keys, s, kFirstQuery, lane);
    if constexpr (F.soft_cap) cap_scores<F>(in.params, s);
    const float distance = float(kFirstQuery + lane % 4 * 2 + in.sequence.s_k - in.sequence.s_q - keys.key);
    for (int i = 0; i < R; ++i) {
      const Score score =
          score_of<F, bf16>(in.params, keys, s[i], 0.0f, distance + float(i / 4 * 8 + i % 2 - i / 2 % 2 * 8));
      values[at][static_cast<std::size_t>(i)] = score.value;
      slopes[at][static_cast<std::size_t>(i)] = score.slope;
    }
  });
  for (int lane = 0; lane < kWarp; ++lane)
    for (int i = 0; i < R; ++i) {
      const int query = kFirstQuery + key_of(lane, i), key = kFirstKey + row_of(lane, i);
      if (query >= Inputs::kQueries) continue;  // its LSE is infinite
      Rows<F> row;
      row.set(in.params, in.sequence, 0, 0, query);
      const auto at = static_cast<std::size_t>(lane), entry = static_cast<std::size_t>(i);
      if (!row.visible(in.params, key)) {
        ASSERT_EQ(values[at][entry], -kInfinity) << "query " << query << " key " << key;
        ASSERT_EQ(std::isfinite(slopes[at][entry]), true);
        continue;
      }
      const float product = products[at][entry], expected = row.score(in.params, product, key, 0.0f);
      ASSERT_NEAR(values[at][entry], expected, 4e-6f * (std::abs(expected) + 60))
          << "query " << query << " key " << key;
      const float t = std::tanh(product * in.params.scale / in.params.soft_cap);
      ASSERT_NEAR(slopes[at][entry], F.soft_cap ? 1 - t * t : 1, 1e-5f);
    }
}

TEST(EmulatedFeatures, backward_scores_are_those_of_single_entries) {
  for (const int block_k : {5, 16, 64}) {
    Inputs in(432, 1, block_k);
    in.params.block_q = block_k;
    in.sequence.x = 30;
    in.sequence.y = 20;
    expect_backward_scores<ForwardFeatures{.alibi = true}>(in, 8);
    expect_backward_scores<ForwardFeatures{.mask = MaskShape::right, .blocks = true}>(in, 8);
    expect_backward_scores<ForwardFeatures{.mask = MaskShape::window, .blocks = true, .alibi = true}>(in, 8);
    for (const float cap : {0.3f, 4.0f, 30.0f}) {
      in.set_cap(cap);
      expect_backward_scores<ForwardFeatures{.soft_cap = true}>(in, 8);
      expect_backward_scores<ForwardFeatures{.mask = MaskShape::window, .soft_cap = true, .alibi = true}>(in, 8);
    }
  }
}

}  // namespace
}  // namespace heed::kernels
