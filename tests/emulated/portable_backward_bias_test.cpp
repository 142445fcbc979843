// The gradients of biases in the portable backward kernels, run by the CPU.
#include "emulated/portable_backward_run.hpp"

#include <gtest/gtest.h>

#include <string>

namespace heed {
namespace {

using emulated::config;
using emulated::expect_matches_oracle;
using emulated::kHopper;
using emulated::rows_and_sum;
using emulated::run_backward;
using emulated::small;
using emulated::with_bias;
using kernels::BackwardPart;
using kernels::Element;
using kernels::ForwardFeatures;
using kernels::MaskShape;
using kernels::PortableBackwardConfig;
using verify::Buffers;
using verify::Case;

constexpr ForwardFeatures kBias{.bias = kernels::BiasType::as_input};

TEST(EmulatedPortableBackwardBias, sums_a_bias_gradient_over_heads_and_batch_through_one_ring) {
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::right, .bias = kernels::BiasType::as_input};
  Case c = small(bf16, 72, Mask::causal());  // two pieces each of Q, K, dO and V
  c.b = 2, c.s_q = {150}, c.bias = BiasSpec{bf16, {.query = true}}, c.dbias = bf16;
  expect_matches_oracle<rows_and_sum(Element::bf16, 72, kFeatures),
                        config(BackwardPart::together, Element::bf16, 72, kFeatures),
                        config(BackwardPart::gather, Element::bf16, 72, kFeatures),
                        with_bias(config(BackwardPart::bias, Element::bf16, 72, kFeatures), Element::bf16)>(c);
}

TEST(EmulatedPortableBackwardBias, adds_up_the_parts_of_a_bias_gradient) {
  Case c = small(bf16, 64, Mask::none());
  c.b = 3, c.bias = BiasSpec{bf16, {.query = true}}, c.dbias = bf16;
  constexpr PortableBackwardConfig kDBias =
      with_bias(config(BackwardPart::bias, Element::bf16, 64, kBias), Element::bf16);
  expect_matches_oracle<
      rows_and_sum(Element::bf16, 64, kBias), config(BackwardPart::together, Element::bf16, 64, kBias),
      config(BackwardPart::gather, Element::bf16, 64, kBias), kDBias, kernels::bias_sum_config(kDBias)>(c, kHopper, 4);
}

TEST(EmulatedPortableBackwardBias, sums_the_gradient_of_one_row_over_queries) {
  constexpr ForwardFeatures kFeatures{.own_lengths = true, .bias = kernels::BiasType::f32, .dropout = true};
  Case c = small(f16, 64, Mask::none());
  c.mode = Mode::group, c.b = 3, c.s_q = {300, 0, 17}, c.s_k = {40, 90, 130}, c.p_drop = 0.2;
  c.bias = BiasSpec{f32, {.head = true}}, c.dbias = f32;
  expect_matches_oracle<rows_and_sum(Element::f16, 64, kFeatures),
                        config(BackwardPart::together, Element::f16, 64, kFeatures),
                        config(BackwardPart::gather, Element::f16, 64, kFeatures),
                        with_bias(config(BackwardPart::bias, Element::f16, 64, kFeatures), Element::f32)>(c);
}

// The bias of rows and keys that no sequence has is no number.
TEST(EmulatedPortableBackwardBias, has_no_bias_gradient_behind_the_ends_of_sequences) {
  constexpr ForwardFeatures kFeatures{
      .mask = MaskShape::right, .own_lengths = true, .bias = kernels::BiasType::as_input};
  Case c = small(bf16, 64, Mask::causal());
  c.mode = Mode::group, c.b = 3, c.s_q = {1, 90, 17}, c.s_qpad = {3, 95, 20}, c.s_k = {150, 90, 5},
  c.s_kpad = {150, 100, 9};
  c.max_s_q = 110, c.max_s_k = 160, c.bias = BiasSpec{bf16, {.head = true, .query = true}}, c.dbias = bf16;
  expect_matches_oracle<rows_and_sum(Element::bf16, 64, kFeatures),
                        config(BackwardPart::together, Element::bf16, 64, kFeatures),
                        config(BackwardPart::gather, Element::bf16, 64, kFeatures),
                        with_bias(config(BackwardPart::bias, Element::bf16, 64, kFeatures), Element::bf16)>(c);
}

TEST(EmulatedPortableBackwardBias, has_a_bias_gradient_in_f32) {
  constexpr ForwardFeatures kFeatures{.bias = kernels::BiasType::f32};
  Case c = small(f32, 68, Mask::none());
  c.bias = BiasSpec{f32, {.head = true, .query = true}}, c.dbias = f32;
  expect_matches_oracle<config(BackwardPart::rows, Element::f32, 68, kFeatures),
                        config(BackwardPart::keys_values, Element::f32, 68, kFeatures),
                        config(BackwardPart::queries, Element::f32, 68, kFeatures),
                        with_bias(config(BackwardPart::bias, Element::f32, 68, kFeatures), Element::f32)>(c, kHopper,
                                                                                                          2);
}

// One table serves sequences of many lengths: it may be longer than the longest, and its gradient is 0 there. By one
// thread block for each tile, and in parts.
TEST(EmulatedPortableBackwardBias, has_zeros_in_a_bias_gradient_behind_the_longest_sequence) {
  constexpr ForwardFeatures kFeatures{.own_lengths = true, .bias = kernels::BiasType::as_input};
  constexpr PortableBackwardConfig kRows = rows_and_sum(Element::bf16, 64, kFeatures),
                                   kTogether = config(BackwardPart::together, Element::bf16, 64, kFeatures),
                                   kGather = config(BackwardPart::gather, Element::bf16, 64, kFeatures),
                                   kDBias = with_bias(config(BackwardPart::bias, Element::bf16, 64, kFeatures),
                                                      Element::bf16);
  Case c = small(bf16, 64, Mask::none());
  c.mode = Mode::group, c.b = 3, c.s_q = {100, 90, 110}, c.s_k = {120, 125, 60}, c.max_s_q = 300, c.max_s_k = 290;
  for (const bool one_row : {false, true}) {
    c.bias = BiasSpec{bf16, {.query = !one_row}}, c.dbias = bf16;
    for (const int multiprocessors : {1, 4}) {
      SCOPED_TRACE(c.to_command() + " and the exact lengths told, multiprocessors: " + std::to_string(multiprocessors));
      Buffers buffers(c);
      buffers.args().max_s_q = 110, buffers.args().max_s_k = 125;
      if (multiprocessors == 1) {
        run_backward<kRows, kTogether, kGather, kDBias>(buffers, kHopper, multiprocessors, verify::Fence::behind);
      } else {
        run_backward<kRows, kTogether, kGather, kDBias, kernels::bias_sum_config(kDBias)>(
            buffers, kHopper, multiprocessors, verify::Fence::behind);
      }
    }
  }
}

TEST(EmulatedPortableBackwardBias, has_a_bias_gradient_of_zeros_without_rows) {
  constexpr ForwardFeatures kFeatures{.own_lengths = true, .bias = kernels::BiasType::as_input};
  Case c = small(bf16, 64, Mask::none());
  c.mode = Mode::group, c.b = 2, c.s_q = {0, 0}, c.s_qpad = {9, 11}, c.s_k = {20, 30}, c.max_s_q = 20, c.max_s_k = 50;
  c.bias = BiasSpec{bf16, {.query = true}}, c.dbias = bf16;
  Buffers buffers(c);
  buffers.args().max_s_q = 1, buffers.args().max_s_k = 30;
  run_backward<config(BackwardPart::rows, Element::bf16, 64, kFeatures),
               config(BackwardPart::keys_values, Element::bf16, 64, kFeatures),
               config(BackwardPart::queries, Element::bf16, 64, kFeatures),
               with_bias(config(BackwardPart::bias, Element::bf16, 64, kFeatures), Element::bf16)>(
      buffers, kHopper, 1, verify::Fence::behind);
}

// A bias for each query alone, and one number for all. It moves all scores of a row alike, and so no weight: what is
// left is the gradient of the LSE.
TEST(EmulatedPortableBackwardBias, sums_over_keys) {
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::right, .bias = kernels::BiasType::as_input};
  constexpr PortableBackwardConfig kRows = rows_and_sum(Element::bf16, 64, kFeatures),
                                   kTogether = config(BackwardPart::together, Element::bf16, 64, kFeatures),
                                   kGather = config(BackwardPart::gather, Element::bf16, 64, kFeatures),
                                   kDBias = with_bias(config(BackwardPart::bias, Element::bf16, 64, kFeatures),
                                                      Element::bf16);
  Case c = small(bf16, 64, Mask::causal());
  c.b = 2, c.s_q = {70}, c.s_k = {150}, c.d_lse = true, c.dbias = bf16;
  for (const bool one_row : {false, true}) {
    c.bias = BiasSpec{bf16, {.batch = true, .head = true, .query = !one_row, .key = false}};
    expect_matches_oracle<kRows, kTogether, kGather, kDBias>(c);
    c.bias = BiasSpec{bf16, {.query = !one_row, .key = false}};
    expect_matches_oracle<kRows, kTogether, kGather, kDBias, kernels::bias_sum_config(kDBias)>(c, kHopper, 4);
  }
}

TEST(EmulatedPortableBackwardBias, sums_over_keys_of_sequences_with_their_own_lengths) {
  constexpr ForwardFeatures kFeatures{.own_lengths = true, .bias = kernels::BiasType::f32};
  Case c = small(f32, 36, Mask::none());
  c.mode = Mode::group, c.b = 3, c.s_q = {70, 0, 17}, c.s_k = {40, 90, 130}, c.max_s_q = 80, c.d_lse = true;
  c.bias = BiasSpec{f32, {.head = true, .query = true, .key = false}}, c.dbias = f32;
  expect_matches_oracle<config(BackwardPart::rows, Element::f32, 36, kFeatures),
                        config(BackwardPart::keys_values, Element::f32, 36, kFeatures),
                        config(BackwardPart::queries, Element::f32, 36, kFeatures),
                        with_bias(config(BackwardPart::bias, Element::f32, 36, kFeatures), Element::f32)>(c, kHopper,
                                                                                                          2);
}

TEST(EmulatedPortableBackwardBias, has_zeros_where_there_are_no_keys) {
  constexpr ForwardFeatures kFeatures{.bias = kernels::BiasType::as_input};
  Case c = small(bf16, 64, Mask::none());
  c.s_q = {70}, c.s_k = {0}, c.bias = BiasSpec{bf16, {.query = true, .key = false}}, c.dbias = bf16;
  expect_matches_oracle<rows_and_sum(Element::bf16, 64, kFeatures),
                        config(BackwardPart::together, Element::bf16, 64, kFeatures),
                        config(BackwardPart::gather, Element::bf16, 64, kFeatures),
                        with_bias(config(BackwardPart::bias, Element::bf16, 64, kFeatures), Element::bf16)>(c);
}

TEST(EmulatedPortableBackwardBias, has_zeros_for_an_empty_batch_and_so_has_the_sink) {
  constexpr ForwardFeatures kFeatures{.bias = kernels::BiasType::as_input, .sink = true};
  Case c = small(bf16, 64, Mask::none());
  c.b = 0, c.bias = BiasSpec{bf16, {.query = true}}, c.dbias = bf16, c.sink = verify::SinkInit::normal, c.dsink = true;
  expect_matches_oracle<rows_and_sum(Element::bf16, 64, kFeatures),
                        config(BackwardPart::together, Element::bf16, 64, kFeatures),
                        config(BackwardPart::gather, Element::bf16, 64, kFeatures),
                        with_bias(config(BackwardPart::bias, Element::bf16, 64, kFeatures), Element::bf16),
                        config(BackwardPart::sums, Element::bf16, 64, kFeatures)>(c);
}

}  // namespace
}  // namespace heed
