// What the Hopper backward kernels do at the edges of tiles, of sequences and of a launch, run by the CPU.
#include "emulated/hopper_backward_run.hpp"
#include "emulated/outer_rows.hpp"

#include <gtest/gtest.h>

namespace heed {
namespace {

using emulated::expect_matches_oracle;
using emulated::kCausal;
using emulated::sequences_between_others;
using emulated::small;
using emulated::with;
using kernels::BackwardPipeline;
using kernels::ForwardFeatures;
using kernels::HopperBackwardConfig;
using kernels::HopperWideBackwardConfig;
using kernels::MaskShape;
using verify::Buffers;
using verify::Case;

constexpr HopperBackwardConfig kD64{.d = 64, .tile_q = 128, .pipeline = BackwardPipeline::ahead},
    kD64Features{.d = 64, .tile_q = 64, .pipeline = BackwardPipeline::ahead}, kD128{.d = 128, .tile_q = 64};
constexpr HopperWideBackwardConfig kD256{.d = 256}, kD192Owned{.d = 192, .owned_dq = true};

// A key behind the last is no key of a score of +inf.
TEST(EmulatedHopperBackwardEdges, keys_behind_the_last_are_hidden_under_a_negative_scale) {
  constexpr ForwardFeatures kNegative{.negative_scale = true};
  const auto negative = [](std::int64_t d) {
    Case c = small(d, Mask::none());
    c.s_k = {100}, c.scale = -0.25;
    return c;
  };
  expect_matches_oracle<with(kD64, kNegative)>(negative(64), 2);
  expect_matches_oracle<with(kD128, kNegative)>(negative(128), 2);
  expect_matches_oracle<with(kD256, kNegative)>(negative(256), 2);
  Case c = negative(192);
  c.deterministic = true;
  expect_matches_oracle<with(kD192Owned, kNegative)>(c, 2);
}

TEST(EmulatedHopperBackwardEdges, keys_behind_the_last_are_hidden_under_a_negative_scale_beside_other_features) {
  Case c = small(64, Mask::none());
  c.s_k = {100}, c.scale = -0.25, c.bias = BiasSpec{f32, {.head = true, .query = true}};
  expect_matches_oracle<with(kD64Features, {.negative_scale = true, .bias = kernels::BiasType::f32})>(c, 2);
  c = small(128, Mask::none());
  c.s_k = {100}, c.scale = -0.25, c.alibi = Alibi::per_head;
  expect_matches_oracle<with(kD128, {.negative_scale = true, .alibi = true})>(c, 2);
  c.soft_cap = 20, c.alibi = Alibi::none;
  expect_matches_oracle<with(kD128, {.negative_scale = true, .soft_cap = true})>(c, 2);
  c = small(128, Mask::none());
  c.s_k = {100}, c.scale = -0.25, c.bias = BiasSpec{bf16, {.head = true, .query = true}};
  constexpr HopperBackwardConfig kCopied{.d = 128, .tile_q = 64, .bias_route = kernels::BiasRoute::copied};
  expect_matches_oracle<with(kCopied, {.negative_scale = true, .bias = kernels::BiasType::as_input})>(c, 2);
  c.bias.reset(), c.alibi = Alibi::per_head, c.d = c.d_v = 256;
  expect_matches_oracle<with(kD256, {.negative_scale = true, .alibi = true})>(c, 2);
}

constexpr ForwardFeatures kPacked{.mask = MaskShape::right, .own_lengths = true};
constexpr HopperBackwardConfig kInParts{.d = 128, .tile_q = 64, .in_parts = true},
    kOrdered{.d = 64, .tile_q = 64, .ordered = true};
constexpr HopperWideBackwardConfig kWideParts{.d = 192, .owned_dq = true, .in_parts = true};

// As a slice of a list of offsets has it: rows before the first and behind the last sequence are somebody else's.
TEST(EmulatedHopperBackwardEdges, rows_outside_of_all_sequences_are_left_alone) {
  const auto expect = [](const Case& c, const auto& run) {
    emulated::for_each_timing(c.to_command() + ", offsets of the inner sequences", [&](verify::Fence fence) {
      Buffers buffers(c);
      emulated::leave_out_the_outer_ones(buffers);
      run(buffers, fence);
    });
  };
  Case c = sequences_between_others(small(64, Mask::causal()));
  expect(c, [](const Buffers& b, verify::Fence f) { emulated::run_backward<with(kD64, kPacked)>(b, 2, 1, f); });
  c.deterministic = true;
  expect(c, [](const Buffers& b, verify::Fence f) { emulated::run_backward<with(kOrdered, kPacked)>(b, 2, 1, f); });
  c = sequences_between_others(small(128, Mask::causal()));
  expect(c, [](const Buffers& b, verify::Fence f) { emulated::run_backward<with(kInParts, kPacked)>(b, 2, 2, f); });
  c = sequences_between_others(small(192, Mask::causal()));
  c.deterministic = true;
  expect(c, [](const Buffers& b, verify::Fence f) { emulated::run_backward<with(kWideParts, kPacked)>(b, 2, 2, f); });
}

// A thread block that has not begun holds no tile that another one waits for.
TEST(EmulatedHopperBackwardEdges, tiles_in_order_wait_for_no_thread_block_that_has_not_begun) {
  constexpr HopperBackwardConfig kD128Ordered{.d = 128, .tile_q = 64, .ordered = true};
  Case c = small(128, Mask::causal());
  c.s_k = {700}, c.deterministic = true;
  for (const int at_a_time : {1, 2})
    emulated::for_each_timing(c.to_command(), [&](verify::Fence fence) {
      emulated::run_backward<with(kD128Ordered, kCausal)>(Buffers(c), 4, 1, fence, emulated::kChosen, at_a_time);
    });
}

}  // namespace
}  // namespace heed
