// The Hopper backward kernels, run by the CPU.
#include "emulated/hopper_backward_run.hpp"

#include "nan_in.hpp"

#include <gtest/gtest.h>

#include <string>

namespace heed {
namespace {

using emulated::expect_kind_matches_oracle;
using emulated::expect_kind_without_sinks;
using emulated::expect_matches_oracle;
using emulated::expect_one_order;
using emulated::kCausal;
using emulated::small;
using emulated::with;
using kernels::BackwardPipeline;
using kernels::ForwardFeatures;
using kernels::HopperBackwardConfig;
using kernels::HopperWideBackwardConfig;
using kernels::MaskShape;
using verify::Buffers;
using verify::Case;

TEST(EmulatedHopperBackward, d64_ahead_has_the_right_gradients) {
  constexpr HopperBackwardConfig kConfig{.d = 64, .tile_q = 128, .pipeline = BackwardPipeline::ahead};
  expect_matches_oracle<with(kConfig, kCausal)>(small(64, Mask::causal()), 2);
}

TEST(EmulatedHopperBackward, d128_in_step_has_the_right_gradients_of_groups_in_parts) {
  constexpr HopperBackwardConfig kConfig{.d = 128, .tile_q = 64, .in_parts = true};
  Case c = small(128, Mask::window(60, 5));
  c.mode = Mode::group, c.b = 2, c.h = 4, c.s_q = {100, 30}, c.s_k = {140, 65};
  expect_matches_oracle<with(kConfig, {.mask = MaskShape::window, .own_lengths = true})>(c, 2, 2);
}

TEST(EmulatedHopperBackward, d128_in_step_has_the_right_gradients_of_sequences_with_their_own_lengths) {
  constexpr HopperBackwardConfig kConfig{.d = 128, .tile_q = 64};
  Case c = small(128, Mask::none());
  c.mode = Mode::group, c.b = 3, c.h = 4, c.h_k = 2, c.s_q = {100, 0, 30}, c.s_k = {140, 20, 300};
  expect_matches_oracle<with(kConfig, {.own_lengths = true})>(c, 2);
}

TEST(EmulatedHopperBackward, features_have_the_right_gradients) {
  constexpr HopperBackwardConfig kD64{.d = 64, .tile_q = 64, .pipeline = BackwardPipeline::ahead};
  Case c = small(64, Mask::causal());
  c.bias = BiasSpec{bf16, {.head = true, .query = true}}, c.bool_mask = Broadcast{.query = true};
  c.soft_cap = 20, c.p_drop = 0.2;
  expect_matches_oracle<with(kD64, {.mask = MaskShape::right,
                                    .keep = true,
                                    .soft_cap = true,
                                    .bias = kernels::BiasType::as_input,
                                    .dropout = true})>(c, 2);
  constexpr HopperBackwardConfig kD128{.d = 128, .tile_q = 32};
  c = small(128, Mask::none());
  c.alibi = Alibi::per_head, c.bias = BiasSpec{f32, {.query = true}};
  c.block_mask = BlockMaskSpec{16, 16, {.query = true}};
  expect_matches_oracle<with(kD128, {.blocks = true, .bias = kernels::BiasType::f32, .alibi = true})>(c, 2);
}

TEST(EmulatedHopperBackward, every_size_has_the_right_gradients) {
  constexpr HopperBackwardConfig kD64{.d = 64, .tile_q = 128}, kD128{.d = 128, .tile_q = 64};
  constexpr HopperWideBackwardConfig kD256{.d = 256}, kD256Owned{.d = 256, .owned_dq = true};
  Case c = small(64, Mask::window(90, 0));
  c.mode = Mode::group;
  expect_kind_matches_oracle<with(kD64, {.mask = MaskShape::window, .own_lengths = true})>(c);
  c = small(128, Mask::none());
  c.mode = Mode::group;
  expect_kind_matches_oracle<with(kD128, {.own_lengths = true})>(c);
  c = small(256, Mask::causal());
  c.q_eff_lens = {1}, c.kv_eff_lens = {1};
  expect_kind_matches_oracle<with(kD256, {.mask = MaskShape::right, .own_lengths = true})>(c);
  c = small(256, Mask::causal());
  c.deterministic = true;
  expect_kind_matches_oracle<with(kD256Owned, kCausal)>(c);
  constexpr HopperBackwardConfig kD64Ordered{.d = 64, .tile_q = 128, .ordered = true};
  c = small(64, Mask::window(90, 0));
  c.mode = Mode::group, c.deterministic = true;
  expect_kind_without_sinks<with(kD64Ordered, {.mask = MaskShape::window, .own_lengths = true})>(c);
}

// One thread block computes them all: what is left of a tile is computed beside the next one, but behind a single
// block.
TEST(EmulatedHopperBackward, tiles_of_one_block_and_of_several_follow_each_other) {
  constexpr HopperBackwardConfig kD64{.d = 64, .tile_q = 128, .pipeline = BackwardPipeline::ahead},
      kD64Ordered{.d = 64, .tile_q = 128, .pipeline = BackwardPipeline::ahead, .ordered = true},
      kD128{.d = 128, .tile_q = 64};
  Case c = small(64, Mask::none());
  c.h = 3, c.h_k = 3, c.s_q = {100}, c.s_k = {300};
  expect_matches_oracle<with(kD64, {})>(c, 1);
  c.deterministic = true;
  expect_matches_oracle<with(kD64Ordered, {})>(c, 1);
  c = small(64, Mask::causal());
  c.s_q = {300}, c.s_k = {300};
  expect_matches_oracle<with(kD64, kCausal)>(c, 1);
  c = small(64, Mask::none());
  c.mode = Mode::group, c.b = 5, c.s_q = {100, 300, 20, 7, 260}, c.s_k = {300, 140, 130, 0, 200};
  expect_matches_oracle<with(kD64, {.own_lengths = true})>(c, 1);
  c = small(128, Mask::none());
  c.h = 3, c.h_k = 3, c.s_q = {60}, c.s_k = {300};
  expect_matches_oracle<with(kD128, {})>(c, 1);
  c = small(128, Mask::causal());
  c.s_q = {200}, c.s_k = {200};
  expect_matches_oracle<with(kD128, kCausal)>(c, 1);
}

// In tiles of which other rows or keys do not see it, too.
TEST(EmulatedHopperBackward, what_is_no_number_reaches_the_gradients_of_those_who_see_it) {
  constexpr HopperBackwardConfig kD64{.d = 64, .tile_q = 128, .pipeline = BackwardPipeline::ahead},
      kD64InStep{.d = 64, .tile_q = 128}, kD128{.d = 128, .tile_q = 64};
  constexpr HopperWideBackwardConfig kD256{.d = 256}, kD256Owned{.d = 256, .owned_dq = true};
  const auto nan_in = [](std::int64_t d, const Mask& mask) {
    Case c = small(d, mask);
    c.distribution = verify::Distribution::one_nan;
    return c;
  };
  expect_kind_matches_oracle<with(kD64, {})>(nan_in(64, Mask::none()));
  expect_kind_matches_oracle<with(kD64, kCausal)>(nan_in(64, Mask::causal()));
  expect_kind_matches_oracle<with(kD128, kCausal)>(nan_in(128, Mask::causal()));
  expect_kind_matches_oracle<with(kD256, kCausal)>(nan_in(256, Mask::causal()));
  expect_kind_matches_oracle<with(kD256Owned, kCausal)>(nan_in(256, Mask::causal()));
  Case c = nan_in(64, Mask::window(90, 0));
  c.mode = Mode::group;
  expect_kind_matches_oracle<with(kD64InStep, {.mask = MaskShape::window, .own_lengths = true})>(c);
  c = nan_in(128, Mask::causal());
  c.soft_cap = 20, c.bias = BiasSpec{bf16, {.head = true, .query = true}}, c.bool_mask = Broadcast{.query = true};
  expect_kind_matches_oracle<with(
      kD128, {.mask = MaskShape::right, .keep = true, .soft_cap = true, .bias = kernels::BiasType::as_input})>(c);
}

TEST(EmulatedHopperBackward, d128_in_order_has_the_right_gradients) {
  constexpr HopperBackwardConfig kConfig{.d = 128, .tile_q = 64, .ordered = true};
  Case c = small(128, Mask::causal());
  c.s_k = {300}, c.deterministic = true;
  expect_one_order<with(kConfig, kCausal)>(c);
}

// Tiles begin with the last, and share no block of queries with all others.
TEST(EmulatedHopperBackward, windows_in_order_have_the_right_gradients) {
  constexpr HopperBackwardConfig kD64{.d = 64, .tile_q = 128, .ordered = true},
      kD128{.d = 128, .tile_q = 64, .ordered = true};
  constexpr ForwardFeatures kWindow{.mask = MaskShape::window}, kPacked{.mask = MaskShape::window, .own_lengths = true};
  Case c = small(128, Mask::window(100, 0));
  c.s_q = c.s_k = {600}, c.deterministic = true;
  expect_one_order<with(kD128, kWindow)>(c);
  c.mask = Mask::window(60, Mask::kUnlimited), c.s_q = {300};  // every tile has the first rows
  expect_one_order<with(kD128, kWindow)>(c);
  c = small(64, Mask::window(150, 20));
  c.mode = Mode::group, c.b = 3, c.s_q = {500, 0, 30}, c.s_k = {520, 20, 300}, c.deterministic = true;
  expect_one_order<with(kD64, kPacked)>(c);
}

/// Four heads in two batch entries: sections of three take one from the second, and leave one over.
Case heads_in_sections(std::int64_t d, const Mask& mask) {
  Case c = small(d, mask);
  c.b = 2, c.h = c.h_k = 2, c.s_q = {100}, c.s_k = {140};
  return c;
}

TEST(EmulatedHopperBackward, heads_are_taken_together_in_sections_of_any_size) {
  constexpr HopperBackwardConfig kD64{.d = 64, .tile_q = 128, .pipeline = BackwardPipeline::ahead};
  Case c = heads_in_sections(64, Mask::causal());
  for (const int section : {1, 2, 3, 4}) expect_matches_oracle<with(kD64, kCausal)>(c, 2, 1, section);
  expect_matches_oracle<with(kD64, {})>(heads_in_sections(64, Mask::none()), 2, 1, 3);
  constexpr HopperWideBackwardConfig kD256{.d = 256, .owned_dq = true};  // dQ has sections of its own
  c = heads_in_sections(256, Mask::causal());
  c.deterministic = true;
  expect_matches_oracle<with(kD256, kCausal)>(c, 2, 1, 3);
}

// Nine pairs of a batch entry and a head, or of a part of its group, of which the first stage zeroes the first only.
TEST(EmulatedHopperBackward, the_sum_of_dq_is_zeroed_ahead_by_tiles_of_other_heads) {
  constexpr HopperBackwardConfig kD64{.d = 64, .tile_q = 128, .pipeline = BackwardPipeline::ahead},
      kD128{.d = 128, .tile_q = 64}, kD128InParts{.d = 128, .tile_q = 64, .in_parts = true};
  Case c = small(64, Mask::none());
  c.b = 3, c.h = 6, c.h_k = 3, c.s_q = {140}, c.s_k = {150};
  expect_matches_oracle<with(kD64, {})>(c, 2);
  c.mask = Mask::causal();
  expect_matches_oracle<with(kD64, kCausal)>(c, 3, 1, 2);
  c.d = c.d_v = 128;
  expect_matches_oracle<with(kD128, kCausal)>(c, 2, 1, 4);
  c.mask = Mask::none(), c.b = 1;
  expect_matches_oracle<with(kD128InParts, {})>(c, 2, 2);
  constexpr HopperWideBackwardConfig kD192{.d = 192}, kD256InParts{.d = 256, .in_parts = true, .dq_in_16_bits = true};
  c.d = c.d_v = 192, c.b = 3;
  expect_matches_oracle<with(kD192, {})>(c, 2);
  c.d = c.d_v = 256, c.b = 1, c.mask = Mask::causal(), c.dq_in_16_bits = true;
  expect_matches_oracle<with(kD256InParts, kCausal)>(c, 3, 2, 2);
}

// Who waits for zeros waits for thread blocks that have begun.
TEST(EmulatedHopperBackward, zeros_are_waited_for_on_a_gpu_with_room_for_one_thread_block) {
  constexpr HopperBackwardConfig kD64{.d = 64, .tile_q = 128, .pipeline = BackwardPipeline::ahead};
  Case c = small(64, Mask::none());
  c.b = 2, c.h = c.h_k = 4, c.s_q = {140}, c.s_k = {130};
  emulated::for_each_timing(c.to_command(), [&](verify::Fence fence) {
    emulated::run_backward<with(kD64, {})>(Buffers(c), 3, 1, fence, emulated::kChosen, 1);
  });
}

// A tile waits for others of its head, between which are tiles of the section's other heads.
TEST(EmulatedHopperBackward, sections_leave_the_order_of_dq_as_it_is) {
  constexpr HopperBackwardConfig kD128{.d = 128, .tile_q = 64, .ordered = true};
  Case c = heads_in_sections(128, Mask::causal());
  c.s_k = {290}, c.deterministic = true;
  expect_one_order<with(kD128, kCausal)>(c, {1, 3, emulated::kChosen});
  c.mask = Mask::window(100, 0);
  expect_one_order<with(kD128, {.mask = MaskShape::window})>(c, {1, 3, emulated::kChosen});
}

// The kernels around the main one know it, too.
TEST(EmulatedHopperBackward, dq_in_16_bits_is_right) {
  Case c = small(64, Mask::causal());
  c.dq_in_16_bits = true;
  constexpr HopperBackwardConfig kD64{
      .d = 64, .tile_q = 128, .pipeline = BackwardPipeline::ahead, .dq_in_16_bits = true};
  expect_matches_oracle<with(kD64, kCausal)>(c, 2);
  c = small(128, Mask::window(100, 0));
  c.s_q = c.s_k = {300}, c.deterministic = true, c.dq_in_16_bits = true, c.type = f16;
  constexpr HopperBackwardConfig kOrdered{.type = kernels::Element::f16,
                                          .d = 128,
                                          .tile_q = 64,
                                          .ordered = true,
                                          .dq_in_16_bits = true,
                                          .features = {.mask = MaskShape::window}};
  expect_one_order<kOrdered>(c);
  c = small(128, Mask::none());
  c.mode = Mode::group, c.b = 3, c.s_q = {100, 0, 30}, c.s_k = {140, 20, 200}, c.dq_in_16_bits = true;
  constexpr HopperBackwardConfig kTransposed{.d = 128, .tile_q = 48, .dq_in_16_bits = true};
  expect_matches_oracle<with(kTransposed, {.own_lengths = true})>(c, 2);
  c = small(256, Mask::causal());
  c.s_k = {170}, c.dq_in_16_bits = true;
  constexpr HopperWideBackwardConfig kD256{.d = 256, .dq_in_16_bits = true};
  expect_matches_oracle<with(kD256, kCausal)>(c, 2);
  c.distribution = verify::Distribution::one_nan, c.seed = 7;  // in K
  expect_matches_oracle<with(kD256, kCausal)>(c, 2);
}

constexpr HopperWideBackwardConfig kD192Owned{.d = 192, .owned_dq = true},
    kD256Owned{.d = 256, .o_ring = 2, .owned_dq = true};

TEST(EmulatedHopperBackward, owners_of_rows_have_the_right_dq) {
  Case c = small(192, Mask::none());
  c.s_k = {170}, c.deterministic = true;
  expect_matches_oracle<with(kD192Owned, {})>(c, 2);
  c = small(256, Mask::causal());
  c.s_q = {290}, c.s_k = {170}, c.deterministic = true;  // the first rows see nothing
  expect_matches_oracle<with(kD256Owned, kCausal)>(c, 2);
  c = small(256, Mask::window(60, 5, 3));
  c.mode = Mode::group, c.b = 3, c.h = 4, c.s_q = {140, 0, 30}, c.s_k = {200, 20, 65}, c.deterministic = true;
  expect_matches_oracle<with(kD256Owned, {.mask = MaskShape::window, .own_lengths = true})>(c, 2);
}

// Some warps of a warpgroup then compute their rows once more, carefully, and others do not.
TEST(EmulatedHopperBackward, owners_of_rows_have_the_right_dq_beside_rows_that_are_no_number) {
  Case c = small(256, Mask::causal());
  c.h = 1, c.s_q = c.s_k = {104}, c.deterministic = true;
  for (const int tensor : {0, 1, 2, 3})
    emulated::for_each_timing(c.to_command() + ", NaN in tensor " + std::to_string(tensor), [&](verify::Fence fence) {
      verify::Buffers buffers(c);
      put_nan(buffers, tensor, 37, 0);
      emulated::run_backward<with(kD256Owned, kCausal)>(buffers, 2, 1, fence);
    });
}

TEST(EmulatedHopperBackward, owners_of_rows_have_the_right_dq_of_features_and_of_groups_in_parts) {
  Case c = small(256, Mask::causal());
  c.soft_cap = 20, c.p_drop = 0.2, c.deterministic = true;
  expect_matches_oracle<with(kD256Owned, {.mask = MaskShape::right, .soft_cap = true, .dropout = true})>(c, 1);
  constexpr HopperWideBackwardConfig kInParts{.d = 192, .owned_dq = true, .in_parts = true};
  c = small(184, Mask::none());
  c.alibi = Alibi::per_head, c.deterministic = true;
  expect_matches_oracle<with(kInParts, {.alibi = true})>(c, 2, 2);
}

}  // namespace
}  // namespace heed
