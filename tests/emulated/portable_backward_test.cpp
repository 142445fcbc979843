// The portable backward kernels, run by the CPU: all launches of a pass.
#include "emulated/portable_backward_run.hpp"

#include "emulated/outer_rows.hpp"
#include "nan_in.hpp"

#include <gtest/gtest.h>

#include <string>

namespace heed {
namespace {

using emulated::config;
using emulated::expect_matches_oracle;
using emulated::kBlackwell;
using emulated::kHopper;
using emulated::leave_out_the_outer_ones;
using emulated::rows_and_sum;
using emulated::run_backward;
using emulated::sequences_between_others;
using emulated::small;
using emulated::with_bias;
using kernels::BackwardPart;
using kernels::Element;
using kernels::ForwardFeatures;
using kernels::MaskShape;
using kernels::PortableBackwardConfig;
using kernels::PortableDevice;
using verify::Buffers;
using verify::Case;

TEST(EmulatedPortableBackward, has_the_right_gradients_by_five_products) {
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::right, .soft_cap = true, .dropout = true};
  Case c = small(bf16, 64, Mask::causal());
  c.soft_cap = 20, c.p_drop = 0.2;
  expect_matches_oracle<rows_and_sum(Element::bf16, 64, kFeatures),
                        config(BackwardPart::together, Element::bf16, 64, kFeatures),
                        config(BackwardPart::gather, Element::bf16, 64, kFeatures)>(c);
}

TEST(EmulatedPortableBackward, has_the_right_gradients_with_half_of_a_block_in_registers) {
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::right, .soft_cap = true};
  constexpr PortableBackwardConfig kTogether = config(BackwardPart::together, Element::f16, 128, kFeatures, kBlackwell);
  static_assert(kTogether.step < kTogether.block);
  Case c = small(f16, 128, Mask::causal());
  c.soft_cap = 20;
  expect_matches_oracle<rows_and_sum(Element::f16, 128, kFeatures), kTogether,
                        config(BackwardPart::gather, Element::f16, 128, kFeatures, kBlackwell)>(c, kBlackwell);
}

template <Element type, int d, ForwardFeatures F>
void expect_matches_oracle_by_owners_of_32_keys(const Case& c, const PortableDevice& device) {
  constexpr PortableBackwardConfig kTogether = config(BackwardPart::together, type, d, F);
  static_assert(kTogether.is_narrow());
  expect_matches_oracle<rows_and_sum(type, d, F), kTogether, config(BackwardPart::gather, type, d, F)>(c, device);
}

// Several blocks of queries and tiles of keys, neither a whole number of them.
TEST(EmulatedPortableBackward, has_the_right_gradients_with_keys_and_values_held) {
  Case c = small(f16, 64, Mask::none());
  c.s_q = {290}, c.s_k = {150};
  expect_matches_oracle_by_owners_of_32_keys<Element::f16, 64, ForwardFeatures{}>(c, kHopper);
  c = small(f16, 32, Mask::none());
  expect_matches_oracle_by_owners_of_32_keys<Element::f16, 32, ForwardFeatures{}>(c, kHopper);
  c = small(bf16, 64, Mask::causal());
  c.s_q = {330}, c.h = 1;
  expect_matches_oracle_by_owners_of_32_keys<Element::bf16, 64, ForwardFeatures{.mask = MaskShape::right}>(c, kHopper);
}

TEST(EmulatedPortableBackward, has_the_right_gradients_with_keys_held_under_a_window_with_a_sink) {
  Case c = small(f16, 64, Mask::window(40, 10, 5));
  c.s_q = {200}, c.s_k = {260}, c.h = 1;
  expect_matches_oracle_by_owners_of_32_keys<Element::f16, 64, ForwardFeatures{.mask = MaskShape::window}>(c, kHopper);
}

TEST(EmulatedPortableBackward, has_the_right_gradients_with_keys_held_and_lengths_of_each_batch_entry) {
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::right, .own_lengths = true};
  Case c = small(bf16, 64, Mask::causal());
  c.b = 3, c.h = 1, c.s_q = {150, 40, 5}, c.s_k = {150, 130, 20};
  c.mode = Mode::group;
  expect_matches_oracle_by_owners_of_32_keys<Element::bf16, 64, kFeatures>(c, kHopper);
}

template <Element type, int d, ForwardFeatures F>
void expect_matches_oracle_by_warps_in_turns(const Case& c) {
  constexpr PortableBackwardConfig kTogether = config(BackwardPart::together, type, d, F);
  static_assert(kTogether.in_turns);
  expect_matches_oracle<rows_and_sum(type, d, F), kTogether, config(BackwardPart::gather, type, d, F)>(c);
}

TEST(EmulatedPortableBackward, has_the_right_gradients_by_warps_in_turns) {
  expect_matches_oracle_by_warps_in_turns<Element::f16, 128, ForwardFeatures{}>(small(f16, 128, Mask::none()));
  expect_matches_oracle_by_warps_in_turns<Element::f16, 192, ForwardFeatures{}>(small(f16, 192, Mask::none()));
  Case c = small(bf16, 96, Mask::causal());
  c.s_q = {330}, c.h = 1;
  expect_matches_oracle_by_warps_in_turns<Element::bf16, 96, ForwardFeatures{.mask = MaskShape::right}>(c);
  c = small(bf16, 256, Mask::causal());
  c.s_q = {200}, c.h = 1;
  expect_matches_oracle_by_warps_in_turns<Element::bf16, 256, ForwardFeatures{.mask = MaskShape::right}>(c);
}

TEST(EmulatedPortableBackward, has_the_right_gradients_by_warps_in_turns_under_a_window_with_a_sink) {
  Case c = small(f16, 128, Mask::window(40, 10, 5));
  c.s_q = {200}, c.s_k = {260}, c.h = 1;
  expect_matches_oracle_by_warps_in_turns<Element::f16, 128, ForwardFeatures{.mask = MaskShape::window}>(c);
}

TEST(EmulatedPortableBackward, has_the_right_gradients_by_warps_in_turns_and_lengths_of_each_batch_entry) {
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::right, .own_lengths = true};
  Case c = small(bf16, 256, Mask::causal());
  c.b = 3, c.h = 1, c.s_q = {90, 40, 5}, c.s_k = {90, 70, 20};
  c.mode = Mode::group;
  expect_matches_oracle_by_warps_in_turns<Element::bf16, 256, kFeatures>(c);
}

TEST(EmulatedPortableBackward, brings_what_is_no_number_to_those_who_see_it_by_warps_in_turns) {
  for (const std::uint64_t seed : {5, 7, 10, 9}) {  // in Q, K, V and dO
    Case c = small(bf16, 192, Mask::causal());
    c.h = 1, c.s_q = {70}, c.s_k = {70}, c.distribution = verify::Distribution::one_nan, c.seed = seed;
    expect_matches_oracle_by_warps_in_turns<Element::bf16, 192, ForwardFeatures{.mask = MaskShape::right}>(c);
  }
}

// GPUs with little memory have blocks of 64 rows and less of V in registers.
TEST(EmulatedPortableBackward, has_the_right_gradients_with_keys_held_in_little_memory) {
  constexpr PortableDevice kAda{89, 99 * 1024};
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::right};
  constexpr PortableBackwardConfig kTogether = config(BackwardPart::together, Element::f16, 64, kFeatures, kAda);
  static_assert(kTogether.held_v == 16 && kTogether.block == 64);
  Case c = small(f16, 64, Mask::causal());
  c.s_q = {200}, c.h = 1;
  expect_matches_oracle<rows_and_sum(Element::f16, 64, kFeatures), kTogether,
                        config(BackwardPart::gather, Element::f16, 64, kFeatures, kAda)>(c, kAda);
}

TEST(EmulatedPortableBackward, has_the_right_gradients_by_owners_of_keys_and_queries) {
  constexpr ForwardFeatures kFeatures{.bias = kernels::BiasType::f32, .sink = true};
  Case c = small(f16, 64, Mask::none());
  c.deterministic = true, c.bias = BiasSpec{f32, {.head = true, .query = true}}, c.dbias = f32;
  c.sink = verify::SinkInit::normal, c.dsink = true;
  expect_matches_oracle<config(BackwardPart::rows, Element::f16, 64, kFeatures),
                        config(BackwardPart::keys_values, Element::f16, 64, kFeatures),
                        config(BackwardPart::queries, Element::f16, 64, kFeatures),
                        with_bias(config(BackwardPart::bias, Element::f16, 64, kFeatures), Element::f32),
                        config(BackwardPart::sums, Element::f16, 64, kFeatures)>(c);
}

TEST(EmulatedPortableBackward, brings_what_is_no_number_to_the_gradients_of_those_who_see_it) {
  constexpr ForwardFeatures kCausal{.mask = MaskShape::right};
  for (const std::uint64_t seed : {5, 7, 10, 9}) {  // in Q, K, V and dO
    Case c = small(bf16, 64, Mask::causal());
    c.h = 1, c.s_q = {70}, c.s_k = {70}, c.distribution = verify::Distribution::one_nan, c.seed = seed;
    expect_matches_oracle<rows_and_sum(Element::bf16, 64, kCausal),
                          config(BackwardPart::together, Element::bf16, 64, kCausal),
                          config(BackwardPart::gather, Element::bf16, 64, kCausal)>(c);
    c.deterministic = true;
    expect_matches_oracle<config(BackwardPart::rows, Element::bf16, 64, kCausal),
                          config(BackwardPart::keys_values, Element::bf16, 64, kCausal),
                          config(BackwardPart::queries, Element::bf16, 64, kCausal)>(c);
  }
}

// Nobody sees these keys, but rows of their block that the sequence does not have would.
TEST(EmulatedPortableBackward, leaves_keys_that_are_no_number_to_rows_behind_the_end) {
  constexpr ForwardFeatures kCausal{.mask = MaskShape::right};
  Case c = small(bf16, 64, Mask::causal_top_left());
  c.h = 1, c.s_q = {70}, c.s_k = {90};
  for (const bool deterministic : {false, true})
    for (const int key : {75, 83}) {  // of both halves of 16
      c.deterministic = deterministic;
      SCOPED_TRACE(c.to_command() + ", NaN in key " + std::to_string(key));
      Buffers buffers(c);
      put_nan(buffers, 2, key, 0);
      if (deterministic) {
        run_backward<config(BackwardPart::rows, Element::bf16, 64, kCausal),
                     config(BackwardPart::keys_values, Element::bf16, 64, kCausal),
                     config(BackwardPart::queries, Element::bf16, 64, kCausal)>(buffers, kHopper, 1,
                                                                                verify::Fence::behind);
      } else {
        run_backward<rows_and_sum(Element::bf16, 64, kCausal),
                     config(BackwardPart::together, Element::bf16, 64, kCausal),
                     config(BackwardPart::gather, Element::bf16, 64, kCausal)>(buffers, kHopper, 1,
                                                                               verify::Fence::behind);
      }
    }
}

// A row that sees nothing, in the half of its 16 rows that spoilt sums are not told by.
TEST(EmulatedPortableBackward, leaves_a_row_without_keys_without_a_gradient_beside_a_soft_cap) {
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::right, .soft_cap = true};
  Case c = small(f16, 64, Mask::causal());
  c.h = 1, c.s_q = {150}, c.s_k = {90}, c.soft_cap = 20;
  for (const bool deterministic : {false, true})
    for (const int row : {51, 59}) {  // of both halves of 16
      c.deterministic = deterministic;
      SCOPED_TRACE(c.to_command() + ", NaN in query " + std::to_string(row));
      Buffers buffers(c);
      put_nan(buffers, 0, row, 0);
      if (deterministic) {
        run_backward<config(BackwardPart::rows, Element::f16, 64, kFeatures),
                     config(BackwardPart::keys_values, Element::f16, 64, kFeatures),
                     config(BackwardPart::queries, Element::f16, 64, kFeatures)>(buffers, kHopper, 1,
                                                                                 verify::Fence::behind);
      } else {
        run_backward<rows_and_sum(Element::f16, 64, kFeatures),
                     config(BackwardPart::together, Element::f16, 64, kFeatures),
                     config(BackwardPart::gather, Element::f16, 64, kFeatures)>(buffers, kHopper, 1,
                                                                                verify::Fence::behind);
      }
    }
}

// As a slice of a list of offsets has it: rows before the first and behind the last sequence are somebody else's.
TEST(EmulatedPortableBackward, leaves_rows_outside_of_all_sequences_alone) {
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::right, .own_lengths = true};
  Case c = sequences_between_others(small(bf16, 64, Mask::causal()));
  for (const bool deterministic : {false, true}) {
    c.deterministic = deterministic;
    SCOPED_TRACE(c.to_command() + ", offsets of the inner sequences");
    Buffers buffers(c);
    leave_out_the_outer_ones(buffers);
    if (deterministic) {
      run_backward<config(BackwardPart::rows, Element::bf16, 64, kFeatures),
                   config(BackwardPart::keys_values, Element::bf16, 64, kFeatures),
                   config(BackwardPart::queries, Element::bf16, 64, kFeatures)>(buffers, kHopper, 1,
                                                                                verify::Fence::behind);
    } else {
      run_backward<rows_and_sum(Element::bf16, 64, kFeatures),
                   config(BackwardPart::together, Element::bf16, 64, kFeatures),
                   config(BackwardPart::gather, Element::bf16, 64, kFeatures)>(buffers, kHopper, 1,
                                                                               verify::Fence::behind);
    }
  }
}

}  // namespace
}  // namespace heed
