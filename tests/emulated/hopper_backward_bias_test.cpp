// Biases and their gradients in the Hopper backward kernels, run by the CPU.
#include "emulated/hopper_backward_run.hpp"

#include "nan_in.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace heed {
namespace {

using emulated::expect_kind_matches_oracle;
using emulated::expect_matches_oracle;
using emulated::expect_one_order;
using emulated::kCausal;
using emulated::shared_config;
using emulated::small;
using emulated::with;
using kernels::BackwardPipeline;
using kernels::Element;
using kernels::ForwardFeatures;
using kernels::HopperBackwardConfig;
using kernels::MaskShape;
using kernels::PortableBackwardConfig;
using verify::Buffers;
using verify::Case;

constexpr HopperBackwardConfig copied(HopperBackwardConfig config, ForwardFeatures features) {
  config.bias_route = kernels::BiasRoute::copied;
  features.bias = kernels::BiasType::as_input;
  return with(config, features);
}
constexpr HopperBackwardConfig kD64Ahead{.d = 64, .tile_q = 64, .pipeline = BackwardPipeline::ahead};
constexpr HopperBackwardConfig kD128InStep{.d = 128, .tile_q = 64};

TEST(EmulatedHopperBackwardBias, sums_bias_gradients_over_heads_and_batch) {
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::right, .bias = kernels::BiasType::as_input};
  constexpr HopperBackwardConfig kConfig{.d = 128, .tile_q = 64};
  Case c = small(72, Mask::causal());
  c.b = 2, c.bias = BiasSpec{bf16, {.query = true}}, c.dbias = bf16;
  expect_matches_oracle<with(kConfig, kFeatures),
                        shared_config(kernels::BackwardPart::rows, 72, kFeatures, Element::f32),
                        shared_config(kernels::BackwardPart::bias, 72, kFeatures, Element::bf16)>(c, 1);
}

TEST(EmulatedHopperBackwardBias, sums_bias_gradients_of_one_row_in_parts) {
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::window, .own_lengths = true, .bias = kernels::BiasType::f32};
  constexpr HopperBackwardConfig kConfig{.d = 64, .tile_q = 64};
  constexpr PortableBackwardConfig kDBias = shared_config(kernels::BackwardPart::bias, 64, kFeatures, Element::f32);
  Case c = small(64, Mask::window(60, 5));
  c.mode = Mode::group, c.b = 5, c.h = 2, c.s_q = {100, 0, 230, 20, 64}, c.s_k = {140, 65, 129, 1, 200};
  c.bias = BiasSpec{f32, {}}, c.dbias = f32;
  expect_matches_oracle<with(kConfig, kFeatures),
                        shared_config(kernels::BackwardPart::rows, 64, kFeatures, Element::f32), kDBias,
                        kernels::bias_sum_config(kDBias)>(c, 6);
}

// The bias of rows and keys that no sequence has is no number.
TEST(EmulatedHopperBackwardBias, has_no_bias_gradients_behind_the_ends_of_sequences) {
  constexpr ForwardFeatures kFeatures{.own_lengths = true, .bias = kernels::BiasType::as_input};
  constexpr HopperBackwardConfig kConfig{.d = 64, .tile_q = 64};
  Case c = small(64, Mask::none());
  c.mode = Mode::group, c.b = 3, c.s_q = {1, 90, 17}, c.s_qpad = {3, 95, 20}, c.s_k = {150, 90, 5},
  c.s_kpad = {150, 100, 9};
  c.max_s_q = 110, c.max_s_k = 160, c.bias = BiasSpec{bf16, {.head = true, .query = true}}, c.dbias = bf16;
  expect_matches_oracle<with(kConfig, kFeatures),
                        shared_config(kernels::BackwardPart::rows, 64, kFeatures, Element::f32),
                        shared_config(kernels::BackwardPart::bias, 64, kFeatures, Element::bf16)>(c, 1);
}

// One table serves sequences of many lengths: it may be longer than the longest, and its gradient is 0 there.
TEST(EmulatedHopperBackwardBias, has_zeros_in_bias_gradients_behind_the_longest_sequence) {
  constexpr ForwardFeatures kFeatures{.own_lengths = true, .bias = kernels::BiasType::as_input};
  constexpr HopperBackwardConfig kConfig{.d = 64, .tile_q = 64};
  constexpr PortableBackwardConfig kRows = shared_config(kernels::BackwardPart::rows, 64, kFeatures, Element::f32),
                                   kDBias = shared_config(kernels::BackwardPart::bias, 64, kFeatures, Element::bf16);
  Case c = small(64, Mask::none());
  c.mode = Mode::group, c.b = 3, c.s_q = {100, 90, 110}, c.s_k = {120, 125, 60}, c.max_s_q = 300, c.max_s_k = 290;
  c.bias = BiasSpec{bf16, {.query = true}}, c.dbias = bf16;
  emulated::for_each_timing(c.to_command() + " and the exact lengths told", [&](verify::Fence fence) {
    Buffers buffers(c);
    buffers.args().max_s_q = 110, buffers.args().max_s_k = 125;
    emulated::run_backward<with(kConfig, kFeatures), kRows, kDBias>(buffers, 1, 1, fence);
    buffers.clear_outputs();
    emulated::run_backward<with(kConfig, kFeatures), kRows, kDBias, kernels::bias_sum_config(kDBias)>(buffers, 4, 1,
                                                                                                      fence);
  });
}

// A bias for each query alone, and one number for all. It moves all scores of a row alike, and so no weight: what is
// left is the gradient of the LSE.
TEST(EmulatedHopperBackwardBias, sums_bias_gradients_over_keys) {
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::right, .bias = kernels::BiasType::as_input};
  constexpr HopperBackwardConfig kConfig{.d = 64, .tile_q = 64};
  constexpr PortableBackwardConfig kRows = shared_config(kernels::BackwardPart::rows, 64, kFeatures, Element::f32),
                                   kDBias = shared_config(kernels::BackwardPart::bias, 64, kFeatures, Element::bf16);
  Case c = small(64, Mask::causal());
  c.b = 2, c.s_q = {70}, c.s_k = {150}, c.d_lse = true, c.dbias = bf16;
  for (const bool one_row : {false, true}) {
    c.bias = BiasSpec{bf16, {.batch = true, .head = true, .query = !one_row, .key = false}};
    expect_matches_oracle<with(kConfig, kFeatures), kRows, kDBias>(c, 1);
    c.bias = BiasSpec{bf16, {.query = !one_row, .key = false}};
    expect_matches_oracle<with(kConfig, kFeatures), kRows, kDBias, kernels::bias_sum_config(kDBias)>(c, 4);
  }
}

// A row that sees what is no number has an LSE that is none, and still adds nothing to the bias of a key that it does
// not see.
TEST(EmulatedHopperBackwardBias, sums_nothing_of_hidden_pairs_of_rows_that_are_no_number) {
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::window, .bias = kernels::BiasType::as_input};
  constexpr HopperBackwardConfig kConfig{.d = 64, .tile_q = 64};
  constexpr PortableBackwardConfig kRows = shared_config(kernels::BackwardPart::rows, 64, kFeatures, Element::f32),
                                   kDBias = shared_config(kernels::BackwardPart::bias, 64, kFeatures, Element::bf16);
  Case c = small(64, Mask::window(10, 2));
  c.h = 1, c.s_q = {40}, c.s_k = {40}, c.dbias = bf16, c.distribution = verify::Distribution::one_nan;
  for (const bool one_row : {false, true}) {
    c.bias = BiasSpec{bf16, {.query = !one_row}};
    for (const std::uint64_t seed : {1, 2, 3, 4}) {
      c.seed = seed;
      expect_matches_oracle<with(kConfig, kFeatures), kRows, kDBias>(c, 1);
    }
  }
}

/// Rows that begin at multiples of sixteen bytes, of four, and of two.
TEST(EmulatedHopperBackwardBias, biases_that_are_copied_have_the_right_gradients) {
  Case c = small(64, Mask::none());
  c.b = 2, c.s_k = {264}, c.bias = BiasSpec{bf16, {.batch = true, .head = true, .query = true}};
  expect_matches_oracle<copied(kD64Ahead, {})>(c, 2);
  c.s_k = {202}, c.bias = BiasSpec{bf16, {.head = true, .query = true}};
  expect_matches_oracle<copied(kD64Ahead, {})>(c, 1);
  c.s_q = {70}, c.s_k = {131}, c.bias_inf = true;
  expect_matches_oracle<copied(kD64Ahead, {})>(c, 2);
  constexpr HopperBackwardConfig kD64Wider{.d = 64, .tile_q = 96};
  c.s_q = {200}, c.s_k = {264}, c.bias = BiasSpec{bf16, {.head = true}}, c.bias_inf = false;  // one row for all
  expect_matches_oracle<copied(kD64Wider, {})>(c, 1);
  c = small(128, Mask::causal());
  c.s_q = {330}, c.s_k = {264}, c.bias = BiasSpec{bf16, {.query = true}};
  expect_matches_oracle<copied(kD128InStep, kCausal)>(c, 2);
}

TEST(EmulatedHopperBackwardBias, biases_that_are_copied_have_the_right_gradients_beside_masks_and_lengths) {
  Case c = small(64, Mask::window(60, 5, 3));
  c.bias = BiasSpec{bf16, {.batch = true, .query = true}};
  c.mode = Mode::group, c.b = 3, c.s_q = {240, 0, 70}, c.s_k = {264, 30, 65};
  expect_matches_oracle<copied(kD64Ahead, {.mask = MaskShape::window, .own_lengths = true})>(c, 2);
  c = small(128, Mask::window(60, 5));
  c.bias = BiasSpec{bf16, {.head = true, .query = true}};
  c.mode = Mode::group, c.b = 3, c.h = 4, c.s_q = {100, 30, 1}, c.s_k = {140, 65, 0};
  constexpr HopperBackwardConfig kInParts{.d = 128, .tile_q = 64, .in_parts = true};
  expect_matches_oracle<copied(kInParts, {.mask = MaskShape::window, .own_lengths = true})>(c, 2, 2);
  c = small(64, Mask::causal());  // read late
  c.bias = BiasSpec{bf16, {.head = true, .query = true}}, c.bool_mask = Broadcast{.query = true};
  c.soft_cap = 20, c.p_drop = 0.2;
  expect_matches_oracle<copied(kD64Ahead, {.mask = MaskShape::right, .keep = true, .soft_cap = true, .dropout = true})>(
      c, 2);
}

TEST(EmulatedHopperBackwardBias, biases_that_are_copied_come_in_order) {
  constexpr HopperBackwardConfig kConfig{.d = 128, .tile_q = 64, .ordered = true};
  Case c = small(128, Mask::causal());
  c.s_k = {300}, c.deterministic = true, c.bias = BiasSpec{bf16, {.head = true, .query = true}};
  expect_one_order<copied(kConfig, kCausal)>(c);
}

constexpr HopperBackwardConfig storing(HopperBackwardConfig config, const ForwardFeatures& features) {
  config.stores_dbias = true;
  return copied(config, features);
}
constexpr HopperBackwardConfig kD64Bias{.d = 64, .tile_q = 96, .pipeline = BackwardPipeline::ahead};
constexpr ForwardFeatures kWindow{.mask = MaskShape::window};

/// A bias of the scores' own shape, with its gradient.
Case with_own_bias(std::int64_t d, const Mask& mask, std::int64_t s_q, std::int64_t s_k) {
  Case c = small(d, mask);
  c.s_q = {s_q}, c.s_k = {s_k};
  c.bias = BiasSpec{bf16, {.batch = true, .head = true, .query = true}}, c.dbias = bf16;
  return c;
}

// One block of queries, two, and many; keys that end in the first half of a tile, and in the second.
TEST(EmulatedHopperBackwardBias, d64_stores_the_gradient_of_a_bias_that_nobody_shares) {
  Case c = with_own_bias(64, Mask::none(), 200, 264);
  c.b = 2;
  expect_matches_oracle<storing(kD64Bias, {})>(c, 2);
  expect_matches_oracle<storing(kD64Bias, {})>(with_own_bias(40, Mask::none(), 50, 200), 3);
  expect_matches_oracle<storing(kD64Bias, kCausal)>(with_own_bias(64, Mask::causal(), 330, 344), 2);
  expect_matches_oracle<storing(kD64Bias, kCausal)>(with_own_bias(64, Mask::causal_top_left(), 110, 400), 1);
  expect_matches_oracle<storing(kD64Bias, kCausal)>(with_own_bias(64, Mask::causal(), 420, 136), 2);
  expect_matches_oracle<storing(kD64Bias, kWindow)>(with_own_bias(64, Mask::window(70, 5, 3), 500, 504), 2);
  c = with_own_bias(64, Mask::none(), 1, 136);
  c.bias->shape.query = false;  // there is one query
  expect_matches_oracle<storing(kD64Bias, {})>(c, 2);
}

TEST(EmulatedHopperBackwardBias, d128_stores_the_gradient_of_a_bias_that_nobody_shares) {
  Case c = with_own_bias(128, Mask::none(), 130, 264);
  c.b = 2;
  expect_matches_oracle<storing(kD128InStep, {})>(c, 2);
  expect_matches_oracle<storing(kD128InStep, {})>(with_own_bias(72, Mask::none(), 64, 320), 3);
  expect_matches_oracle<storing(kD128InStep, kCausal)>(with_own_bias(128, Mask::causal(), 330, 344), 2);
  expect_matches_oracle<storing(kD128InStep, kCausal)>(with_own_bias(128, Mask::causal_top_left(), 70, 400), 1);
  expect_matches_oracle<storing(kD128InStep, kWindow)>(with_own_bias(128, Mask::window(70, 5, 3), 300, 304), 2);
  c = with_own_bias(128, Mask::causal(), 130, 136);
  c.bias->shape.batch = false;  // there is one batch entry
  expect_matches_oracle<storing(kD128InStep, kCausal)>(c, 2);
}

TEST(EmulatedHopperBackwardBias, stores_bias_gradients_in_parts_and_in_order) {
  constexpr HopperBackwardConfig kD64Parts{
      .d = 64, .tile_q = 96, .pipeline = BackwardPipeline::ahead, .in_parts = true};
  constexpr HopperBackwardConfig kD128Parts{.d = 128, .tile_q = 64, .in_parts = true};
  constexpr HopperBackwardConfig kD64Ordered{
      .d = 64, .tile_q = 96, .pipeline = BackwardPipeline::ahead, .ordered = true};
  constexpr HopperBackwardConfig kD128Ordered{.d = 128, .tile_q = 64, .ordered = true};
  Case c = with_own_bias(64, Mask::causal(), 210, 264);
  c.h = 4;
  expect_matches_oracle<storing(kD64Parts, kCausal)>(c, 3, 2);
  c.d = c.d_v = 128;
  expect_matches_oracle<storing(kD128Parts, kCausal)>(c, 3, 4);
  c.h = 2, c.deterministic = true;
  expect_one_order<storing(kD128Ordered, kCausal)>(c);
  c.d = c.d_v = 64;
  expect_one_order<storing(kD64Ordered, kCausal)>(c);
  c.mask = Mask::window(60, 5);
  expect_one_order<storing(kD64Ordered, kWindow)>(c);
}

// How the memory of dBias lies is known only when it comes.
TEST(EmulatedHopperBackwardBias, leaves_bias_gradients_that_TMA_cannot_write_to_the_kernels_behind) {
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::right, .bias = kernels::BiasType::as_input};
  expect_matches_oracle<storing(kD64Bias, kCausal),
                        shared_config(kernels::BackwardPart::rows, 64, kFeatures, Element::f32),
                        shared_config(kernels::BackwardPart::bias, 64, kFeatures, Element::bf16)>(
      with_own_bias(64, Mask::causal(), 200, 264), 2);
}

// A row of q, dO, k or v that is no number makes nothing of a pair that is hidden, in blocks with visible pairs, too.
TEST(EmulatedHopperBackwardBias, stores_zeros_as_bias_gradients_of_hidden_pairs) {
  const auto check = []<HopperBackwardConfig C>(Case c) {
    c.h = 1;
    for (const int tensor : {0, 1, 2, 3})
      emulated::for_each_timing(c.to_command() + ", NaN in tensor " + std::to_string(tensor), [&](verify::Fence fence) {
        Buffers buffers(c);
        put_nan(buffers, tensor, 67, 0);
        emulated::run_backward<C>(buffers, 2, 1, fence);
      });
  };
  check.operator()<storing(kD64Bias, kCausal)>(with_own_bias(64, Mask::causal(), 104, 104));
  check.operator()<storing(kD128InStep, kWindow)>(with_own_bias(72, Mask::window(30, 5), 80, 80));
}

TEST(EmulatedHopperBackwardBias, stores_bias_gradients_of_every_size) {
  const auto check = []<HopperBackwardConfig C>(const Case& kind) {
    for (int n = 0; n < emulated::varied_cases(); ++n) {
      Case c = emulated::varied(kind, n);
      c.s_k[0] = std::max<std::int64_t>(c.s_k[0] / 8 * 8, 8);
      expect_matches_oracle<C>(c, 1 + n % 3);
    }
  };
  check.operator()<storing(kD64Bias, {})>(with_own_bias(64, Mask::none(), 1, 1));
  check.operator()<storing(kD64Bias, kWindow)>(with_own_bias(64, Mask::window(60, 5), 1, 1));
  check.operator()<storing(kD128InStep, kCausal)>(with_own_bias(128, Mask::causal(), 1, 1));
  check.operator()<storing(kD128InStep, kWindow)>(with_own_bias(128, Mask::window(60, 5), 1, 1));
}

TEST(EmulatedHopperBackwardBias, every_size_has_the_right_gradients) {
  Case c = small(128, Mask::causal());
  c.bias = BiasSpec{bf16, {.head = true, .query = true}};
  expect_kind_matches_oracle<with(kD128InStep, {.mask = MaskShape::right, .bias = kernels::BiasType::as_input})>(c);
  expect_kind_matches_oracle<copied(kD128InStep, kCausal)>(c);
  c = small(64, Mask::window(90, 0));
  c.mode = Mode::group, c.bias = BiasSpec{bf16, {.batch = true, .head = true, .query = true}};
  expect_kind_matches_oracle<copied(kD64Ahead, {.mask = MaskShape::window, .own_lengths = true})>(c);
}

}  // namespace
}  // namespace heed
