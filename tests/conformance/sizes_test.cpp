/// Sizes: lengths around the edges of tiles, head dims, head counts, nothing at all.

#include "conformance/conformance.hpp"

namespace heed::conformance {
namespace {

/// One query against the keys, and enough of them for a tile.
constexpr std::int64_t kOneQuery = 1, kTileOfQueries = 70;

CONFORMANCE(museum_07_every_number_of_keys_up_to_300_is_right) {
  for (const DataType type : {f32, bf16})
    for (const std::int64_t s_q : {kOneQuery, std::int64_t{5}, kTileOfQueries})
      for (std::int64_t s_k = 1; s_k <= 300; s_k += sweep_step(7)) {
        if (s_q == kTileOfQueries && s_k % 3 != 0 && s_k % 32 > 1 && s_k % 32 < 31) continue;
        Case c = small();
        c.b = c.h = c.h_k = 1;
        c.s_q = {s_q}, c.s_k = {s_k};
        c.d = c.d_v = 24;
        c.type = type;
        expect_matches_oracle(c);
      }
}

CONFORMANCE(every_number_of_queries_up_to_200_is_right) {
  for (const DataType type : {f32, f16, bf16})
    for (std::int64_t s_q = 1; s_q <= 200; s_q += s_q < 80 ? sweep_step(7) : 3 * sweep_step(5)) {
      Case c = small();
      c.b = 1, c.h = 2, c.h_k = 1;
      c.s_q = {s_q}, c.s_k = {45};
      c.mask = Mask::causal();
      c.type = type;
      expect_matches_oracle(c);
    }
}

CONFORMANCE(museum_07_long_keys_are_right_around_the_edges_of_splits) {
  for (const DataType type : {f32, bf16})
    for (const std::int64_t s_q : {1, 3, 40})
      for (const std::int64_t s_k : {1023, 1024, 1025, 1152, 2047, 2048, 2049, 3333, 4100}) {
        if (small_scale() && s_k > 2047) continue;
        Case c = small();
        c.b = 1, c.h = 2, c.h_k = 1;
        c.s_q = {s_q}, c.s_k = {s_k};
        c.d = 16, c.d_v = 8;
        c.type = type;
        c.mask = s_k % 2 == 0 ? Mask::none() : Mask::causal();
        expect_matches_oracle(c);
        c.mask = Mask::window(1000, 0, 5);
        c.sink = SinkInit::normal;
        expect_matches_oracle(c);
      }
}

CONFORMANCE(every_head_dim_is_right) {
  std::vector<std::int64_t> dims{96, 111, 128, 160, 192, 224, 256, 320, 511, 512};
  for (std::int64_t d = 1; d <= 80; d += sweep_step(9)) dims.push_back(d);
  for (const std::int64_t d : dims)
    for (const DataType type : {f32, f16, bf16})
      for (const std::int64_t s_q : {kOneQuery, kTileOfQueries}) {
        Case c = small();
        c.b = c.h = c.h_k = 1;
        c.s_q = {s_q}, c.s_k = {40};
        c.d = c.d_v = d;
        c.type = type;
        expect_matches_oracle(c);
      }
}

CONFORMANCE(head_dims_of_keys_and_values_may_differ) {
  for (const auto& [d, d_v] :
       {std::pair{1, 512}, std::pair{512, 1}, std::pair{576, 512}, std::pair{1024, 700}, std::pair{192, 128},
        std::pair{64, 80}, std::pair{17, 3}, std::pair{3, 65}, std::pair{128, 96}, std::pair{40, 129}})
    for (const DataType type : {f32, f16, bf16})
      for (const std::int64_t s_q : {kOneQuery, kTileOfQueries}) {
        Case c = small();
        c.b = 1, c.h = 2, c.h_k = 1;
        c.s_q = {s_q}, c.s_k = {50};
        c.d = d, c.d_v = d_v;
        c.type = type;
        expect_matches_oracle(c);
      }
}

CONFORMANCE(museum_08_every_ratio_of_heads_is_right) {
  for (const std::int64_t h_k : {1, 2, 3})
    for (const std::int64_t ratio : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 32})
      for (const std::int64_t s_q : {1, 2, 9, 40}) {
        if (small_scale() && s_q > 2) continue;
        Case c = small();
        c.b = 1, c.h_k = h_k, c.h = h_k * ratio;
        c.s_q = {s_q}, c.s_k = {37};
        c.d = c.d_v = 12;
        c.type = ratio % 2 == 0 ? bf16 : f32;
        c.mask = Mask::causal();
        expect_matches_oracle(c);
      }
}

/// Rows that see nothing in one block of keys after the other, beside rows that do.
CONFORMANCE(rows_that_a_bias_hides_for_many_blocks_are_right) {
  for (const std::int64_t d : {64, 128})
    for (const std::int64_t s_k : {129, 300, 513})
      for (const DataType bias : {f32, bf16})
        for (const Mask& mask : {Mask::none(), Mask::causal()}) {
          Case c = small();
          c.s_q = {20}, c.s_k = {s_k}, c.d = c.d_v = d, c.type = bf16, c.mask = mask;
          c.bias = BiasSpec{bias, {.batch = true, .head = true, .query = true}}, c.bias_inf = true;
          expect_matches_oracle(c);
        }
}

/// Rows of masks that begin anywhere, over whole blocks of keys and the end of a sequence: engines read many entries at
/// once.
CONFORMANCE(masks_by_entries_and_blocks_are_right_over_many_blocks) {
  for (const std::int64_t d : {64, 128})
    for (const std::int64_t s_k : {256, 260, 257})
      for (const Mask& mask : {Mask::none(), Mask::causal(), Mask::window(90, 0)}) {
        Case c = small();
        c.b = 1, c.s_q = {80}, c.s_k = {s_k}, c.d = c.d_v = d, c.type = bf16, c.mask = mask;
        c.bool_mask = Broadcast{.head = true, .query = true};
        expect_matches_oracle(c);
        for (const std::int64_t block_k : {16, 64, 128}) {
          Case blocks = c;
          if (block_k != 64) blocks.bool_mask.reset();
          blocks.block_mask = BlockMaskSpec{32, block_k, {.head = true, .query = true}};
          expect_matches_oracle(blocks);
        }
      }
}

/// Logits far below their cap, near it and beyond, with terms that are added behind it.
CONFORMANCE(soft_caps_are_right_far_below_and_above) {
  for (const std::int64_t d : {64, 128})
    for (const double cap : {0.5, 4.0, 12.0, 50.0, 1e6})
      for (const Distribution data : {Distribution::normal, Distribution::hot_key})
        for (const bool alibi : {false, true}) {
          Case c = small();
          c.b = 1, c.s_q = {70}, c.s_k = {330}, c.d = c.d_v = d, c.type = bf16, c.mask = Mask::causal();
          c.soft_cap = cap, c.distribution = data, c.alibi = alibi ? Alibi::per_head : Alibi::none;
          expect_matches_oracle(c);
        }
}

/// Few queries of many heads: an engine may compute the heads of a group together.
CONFORMANCE(few_queries_of_groups_of_heads_are_right) {
  const std::vector<Mask> masks{Mask::none(), Mask::causal(), Mask::window(40, 3, 2), Mask::window_top_left(5, 9)};
  std::size_t turn = 0;
  for (const std::int64_t d : {64, 128, 256})
    for (const std::int64_t group : {2, 4, 8, 16, 64})
      for (const std::int64_t s_q : {1, 3, 17, 50, 130}) {
        if (s_q * group > (small_scale() ? 16 : 272)) continue;
        Case c = small();
        c.b = 1, c.h_k = 2, c.h = 2 * group, c.d = c.d_v = d;
        c.s_q = {s_q}, c.s_k = {s_q + 70};
        c.type = bf16, c.mask = masks[turn++ % masks.size()];
        c.sink = turn % 3 == 0 ? SinkInit::normal : SinkInit::none;
        if (turn % 5 == 0) c.soft_cap = 20;
        expect_matches_oracle(c);
        c.distribution = Distribution::hot_key;
        c.mode = Mode::group, c.b = 3, c.s_q = {s_q, 0, s_q / 2 + 1}, c.s_k = {70, 30, s_q};
        expect_matches_oracle(c);
      }
}

CONFORMANCE(an_empty_problem_succeeds_and_writes_what_there_is) {
  for (const Mode mode : {Mode::batch, Mode::group})
    for (const int empty : {0, 1, 2, 3}) {
      Case c = small();
      c.mode = mode;
      if (mode == Mode::group) c.s_q = {7, 12}, c.s_k = {30, 5};
      if (empty == 0) {
        c.b = 0;
        if (mode == Mode::group) c.s_q = c.s_k = {};
      }
      if (empty == 1) c.h = c.h_k = 0;
      if (empty == 2) std::fill(c.s_q.begin(), c.s_q.end(), 0);
      if (empty == 3) std::fill(c.s_k.begin(), c.s_k.end(), 0);  // O = 0, LSE = -inf
      for (const char* mask : {"0", "b", "t:3,0,2"}) {
        c.mask = Mask::parse(mask);
        expect_matches_oracle(c);
      }
      c.sink = SinkInit::normal;
      c.p_drop = 0.5;
      c.randval = true;
      c.bias = BiasSpec{f32, {.batch = true, .head = true, .query = true}};
      expect_matches_oracle(c);
    }
}

CONFORMANCE(whatever_is_told_of_the_longest_sequence_the_result_is_right) {
  for (const DataType type : {f32, bf16})
    for (const bool biased : {false, true})
      for (const std::int64_t told_q : {Case::kExactly, std::int64_t{0}, std::int64_t{65}, std::int64_t{99}})
        for (const std::int64_t told_k : {Case::kExactly, std::int64_t{0}, std::int64_t{129}, std::int64_t{164}}) {
          Case c = small();
          c.type = type;
          c.mode = Mode::group, c.b = 4;
          c.s_q = {1, 64, 0, 31}, c.s_k = {128, 7, 9, 0};
          c.s_qpad = {1, 64, 3, 31}, c.s_kpad = {130, 10, 9, 15};
          c.mask = Mask::causal();
          c.max_s_q = told_q, c.max_s_k = told_k;
          if (biased) c.bias = BiasSpec{f32, {.head = true, .query = true}};
          // In GPU memory, where nothing is told, a bias must have room for all rows.
          if (biased && on_gpu() && (told_q == 0 || told_k == 0)) continue;
          expect_matches_oracle(c);
        }
}

// Then every weight is the same, and the LSE is the logarithm of their number.
CONFORMANCE(a_scale_too_small_to_tell_scores_apart_is_right) {
  for (const DataType type : {f32, bf16})
    for (const std::int64_t s_q : {20, 100}) {
      Case c = small();
      c.type = type;
      c.s_q = {s_q}, c.s_k = {s_q == 20 ? 3000 : 300};
      c.scale = 1e-40;
      expect_matches_oracle(c);
    }
}

// A distance of keys that far apart is a number of f32, and so is each of two positions only when it is even.
CONFORMANCE(distances_beyond_2_to_the_24_are_right) {
  if (small_scale() || !best_of_its_engine()) return;
  Case c = small();
  c.b = c.h = c.h_k = 1, c.d = c.d_v = 1, c.type = f16;
  c.s_q = {1}, c.s_k = {(1 << 25) + 1};
  c.alibi = Alibi::per_head;
  expect_matches_oracle(c);
}

CONFORMANCE(a_large_problem_is_right) {
  for (const DataType type : {f32, f16, bf16}) {
    Case c = small();
    c.b = 1, c.h = 2, c.h_k = 1;
    c.s_q = c.s_k = {small_scale() ? 300 : 1200};
    c.d = c.d_v = 64;
    c.type = type;
    c.mask = Mask::causal();
    expect_matches_oracle(c);
  }
}

}  // namespace
}  // namespace heed::conformance
