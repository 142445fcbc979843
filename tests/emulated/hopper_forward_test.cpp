// The Hopper forward kernel, run by the CPU: warpgroups, rings of mbarriers, TMA and wgmma as a GPU would execute them,
// copies and products at any moment at which they may happen.
#include "emulated/device.hpp"
//
#include "device/hopper_forward.cuh"

#include "core/ceil_div.hpp"
#include "cuda/tile_order.hpp"
#include "emulated/hopper_maps.hpp"
#include "emulated/outer_rows.hpp"
#include "emulated/params.hpp"
#include "emulated/varied.hpp"

#include "verify/judge.hpp"

#include <gtest/gtest.h>

#include <bit>

namespace heed {
namespace {

using kernels::Element;
using kernels::ForwardFeatures;
using kernels::HopperConfig;
using kernels::MaskShape;
using verify::Buffers;
using verify::Case;

template <HopperConfig C>
void run(const Buffers& buffers, int blocks, verify::Fence fence) {
  static_assert(C.impossible() == nullptr && !C.v_by_columns);
  const Problem problem = Problem::of(buffers.args());
  ForwardFeatures features = cuda::features_of(problem);
  features.packed = C.features.packed;  // not of the problem
  ASSERT_EQ(features, C.features) << "the test has another kernel than this case";
  const std::int64_t together = C.features.packed ? problem.heads_q() / problem.heads_k() : 1;
  verify::FencedCopies copies(fence, emulated::kFenceAlignment);
  kernels::ForwardParams p = emulated::params_of(problem, copies.inputs(buffers.args()));
  const auto map = [&](Operand which, const void* data, int box_rows) {
    return C.features.packed && (which == Operand::q || which == Operand::o)
               ? emulated::map_groups(problem, p, which, data, together, box_rows)
               : emulated::map_of(problem, p, which, data, box_rows);
  };
  const emulated::MappedTensor q = map(Operand::q, p.q, 64), k = map(Operand::k, p.k, C.tile_k / C.cluster),
                               v = map(Operand::v, p.v, C.tile_k / C.cluster), o = map(Operand::o, p.o, 16);
  p.q_map = q.steps;
  p.k_map = k.steps;
  p.v_map = v.steps;
  p.o_map = o.steps;
  unsigned counter = 0;
  p.counter = &counter;
  p.group_shift = std::countr_zero(static_cast<std::uint64_t>(together));
  p.row_tiles = static_cast<int>(core::ceil_div(problem.s_q() * together, std::int64_t{C.tile_rows()}));
  const cuda::TileOrder order = cuda::tile_order(problem, p.row_tiles);
  p.section = static_cast<int>(core::ceil_div(std::int64_t{order.section}, together));
  p.light = order.light;
  emulated::begin_shared_memory(C.shared_bytes(), C.threads());
  const auto body = [&] { kernels::hopper_forward<C>(q.told(), k.told(), v.told(), o.told(), p); };
  emulated::launch_side_by_side(blocks * C.cluster, C.threads(), body, C.cluster);
  EXPECT_EQ(counter, 0u) << "the counter of tiles is not as it was";
  const verify::Verdict verdict = verify::judge(buffers);
  EXPECT_TRUE(verdict.valid()) << verdict.to_string();
}

template <HopperConfig C>
void expect_matches_oracle(const Case& c, int blocks) {
  emulated::for_each_timing(c.to_command(), [&](verify::Fence fence) { run<C>(Buffers(c), blocks, fence); });
}

/// In other sizes, too.
template <HopperConfig C>
void expect_kind_matches_oracle(const Case& c) {
  for (int n = 0; n < emulated::varied_cases(); ++n) expect_matches_oracle<C>(emulated::varied(c, n), 1 + n % 3);
}

Case small(std::int64_t d, const Mask& mask) {
  Case c;
  c.b = 1, c.h = 2, c.h_k = 1, c.s_q = {230}, c.s_k = {330}, c.d = c.d_v = d;
  c.type = bf16, c.mask = mask, c.lse = true;
  return c;
}
constexpr HopperConfig with(HopperConfig config, const ForwardFeatures& features) {
  config.type = Element::bf16;
  config.features = features;
  return config;
}

constexpr HopperConfig kD64{.d = 64, .d_v = 64, .tile_k = 64, .warpgroups = 4, .k_stages = 5, .v_stages = 5};
constexpr HopperConfig kD64Wide{.d = 64, .d_v = 64, .tile_k = 96, .warpgroups = 3};
constexpr HopperConfig kD64Turns{
    .d = 64, .d_v = 64, .tile_k = 64, .warpgroups = 4, .k_stages = 5, .v_stages = 5, .turns = kernels::Turns::products};
constexpr HopperConfig kD64Narrow{.d = 64, .d_v = 64, .tile_k = 64, .warpgroups = 3};
constexpr HopperConfig kD64Blocks{.d = 64, .d_v = 64, .tile_k = 128, .warpgroups = 2};
constexpr HopperConfig kD128{.d = 128, .d_v = 128, .tile_k = 64, .warpgroups = 3};
constexpr HopperConfig kD128Two{.d = 128, .d_v = 128, .tile_k = 64, .warpgroups = 2};
constexpr HopperConfig kD256{.d = 256,
                             .d_v = 256,
                             .tile_k = 64,
                             .warpgroups = 2,
                             .k_stages = 2,
                             .v_stages = 2,
                             .q_buffers = 1,
                             .turns = kernels::Turns::products,
                             .lazy_maximum = false,
                             .own_o_memory = true};

TEST(EmulatedHopperForward, computes_full_and_causal_attention) {
  expect_matches_oracle<with(kD128, {})>(small(128, Mask::none()), 2);
  expect_matches_oracle<with(kD128, {.mask = MaskShape::right})>(small(128, Mask::causal()), 1);
  expect_matches_oracle<with(kD256, {.mask = MaskShape::right})>(small(256, Mask::causal()), 2);
}

TEST(EmulatedHopperForward, leaves_rows_outside_of_all_sequences_alone) {
  const Case c = emulated::sequences_between_others(small(128, Mask::causal()));
  emulated::for_each_timing(c.to_command() + ", offsets of the inner sequences", [&](verify::Fence fence) {
    Buffers buffers(c);
    emulated::leave_out_the_outer_ones(buffers);
    run<with(kD128, {.mask = MaskShape::right, .own_lengths = true})>(buffers, 2, fence);
  });
}

TEST(EmulatedHopperForward, computes_in_clusters_that_share_keys) {
  constexpr HopperConfig kPairs{
      .d = 128, .d_v = 128, .tile_k = 64, .warpgroups = 2, .persistence = kernels::Persistence::fixed, .cluster = 2};
  expect_matches_oracle<with(kPairs, {})>(small(128, Mask::none()), 1);
  expect_matches_oracle<with(kPairs, {.mask = MaskShape::right})>(small(128, Mask::causal()), 2);
}

TEST(EmulatedHopperForward, looks_again_where_a_maximum_grows) {
  Case c = small(128, Mask::none());
  c.distribution = verify::Distribution::hot_key;
  expect_matches_oracle<with(kD128, {})>(c, 2);
}

TEST(EmulatedHopperForward, computes_windows_of_sequences_with_their_own_lengths) {
  for (const Mask& mask : {Mask::window(90, 0, 3), Mask::window(20, 0)}) {
    Case c = small(64, mask);
    c.mode = Mode::group, c.b = 3, c.s_q = {240, 0, 70}, c.s_k = {260, 30, 65};
    expect_matches_oracle<with(kD64, {.mask = MaskShape::window, .own_lengths = true})>(c, 2);
  }
}

TEST(EmulatedHopperForward, computes_sequences_with_their_own_lengths_in_turns) {
  Case c = small(64, Mask::none());
  c.mode = Mode::group, c.b = 3, c.s_q = {240, 0, 70}, c.s_k = {260, 30, 65};
  expect_matches_oracle<with(kD64Turns, {.own_lengths = true})>(c, 2);
  c.mask = Mask::causal(), c.distribution = verify::Distribution::hot_key;
  expect_matches_oracle<with(kD64Turns, {.mask = MaskShape::right, .own_lengths = true})>(c, 2);
}

TEST(EmulatedHopperForward, does_not_touch_rows_behind_a_sequence) {
  Case c = small(64, Mask::window(90, 0, 3));
  c.b = 2, c.h = 1, c.q_eff_lens = {230, 100}, c.kv_eff_lens = {300, 97};  // no numbers lie behind
  expect_matches_oracle<with(kD64, {.mask = MaskShape::window, .own_lengths = true})>(c, 2);
}

TEST(EmulatedHopperForward, computes_heads_of_a_group_in_one_tile) {
  Case c = small(128, Mask::causal());
  c.h = 8, c.h_k = 2, c.s_q = {50}, c.sink = verify::SinkInit::normal;
  expect_matches_oracle<with(kD128, {.mask = MaskShape::right, .sink = true, .packed = true})>(c, 2);
}

TEST(EmulatedHopperForward, computes_biases_and_soft_caps) {
  Case c = small(128, Mask::causal());
  c.soft_cap = 15, c.alibi = Alibi::per_head;
  expect_matches_oracle<with(kD128Two, {.mask = MaskShape::right, .soft_cap = true, .alibi = true})>(c, 2);
  c = small(128, Mask::none());
  c.bias = BiasSpec{bf16, {.head = true, .query = true}}, c.bias_inf = true;
  expect_matches_oracle<with(kD128Two, {.bias = kernels::BiasType::as_input})>(c, 2);
}

constexpr HopperConfig copied(HopperConfig config, int stages, ForwardFeatures features) {
  config.bias_route = kernels::BiasRoute::copied;
  config.bias_stages = stages;
  features.bias = kernels::BiasType::as_input;
  return with(config, features);
}
/// As the lines for biases are.
constexpr HopperConfig kD64Bias{.d = 64, .d_v = 64, .tile_k = 96, .warpgroups = 3, .turns = kernels::Turns::products};
constexpr HopperConfig kD96Bias{.d = 96, .d_v = 96, .tile_k = 64, .warpgroups = 3, .k_stages = 2, .v_stages = 3};
constexpr HopperConfig kD128Bias{.d = 128, .d_v = 128, .tile_k = 64, .warpgroups = 3, .k_stages = 2, .v_stages = 3};

/// Rows that begin at multiples of sixteen bytes, of four, and of two.
TEST(EmulatedHopperForward, computes_biases_that_are_copied) {
  Case c = small(128, Mask::none());
  c.s_k = {328}, c.bias = BiasSpec{bf16, {.head = true, .query = true}};
  expect_matches_oracle<copied(kD128Bias, 2, {})>(c, 2);
  c.d = c.d_v = 96;
  expect_matches_oracle<copied(kD96Bias, 2, {})>(c, 1);
  c = small(64, Mask::none());
  c.h = 1, c.s_k = {202}, c.bias = BiasSpec{bf16, {.head = true, .query = true}};
  expect_matches_oracle<copied(kD64Narrow, 3, {})>(c, 2);
  c.s_k = {203}, c.bias_inf = true;
  expect_matches_oracle<copied(kD64Narrow, 3, {})>(c, 2);
  c.s_k = {328}, c.bias = BiasSpec{bf16, {.head = true}};  // one row for all
  expect_matches_oracle<copied(kD64Narrow, 3, {})>(c, 1);
  c = small(64, Mask::causal());
  c.s_k = {328}, c.bias = BiasSpec{bf16, {.batch = true, .head = true, .query = true}};
  expect_matches_oracle<copied(kD64Bias, 2, {.mask = MaskShape::right})>(c, 2);
  c.mask = Mask::none(), c.distribution = verify::Distribution::hot_key;  // read twice
  expect_matches_oracle<copied(kD64Wide, 1, {})>(c, 1);
}

/// A warpgroup whose own first block lay below the last one of its tile waited for a block that nobody sends.
TEST(EmulatedHopperForward, ends_where_raw_coordinates_hide_everything) {
  Case c = small(128, Mask::raw(0, -100));
  c.s_q = c.s_k = {512};
  expect_matches_oracle<with(kD128, {.mask = MaskShape::window})>(c, 2);
  c.mask = Mask::raw(0, 1), c.s_q = c.s_k = {192};
  expect_matches_oracle<with(kD128, {.mask = MaskShape::window})>(c, 1);
}

/// Then a warp copies for two warpgroups, whose blocks are not the same under a mask.
TEST(EmulatedHopperForward, computes_biases_that_are_copied_for_four_warpgroups) {
  Case c = small(64, Mask::none());
  c.s_q = {530}, c.s_k = {328}, c.h = 1, c.bias = BiasSpec{bf16, {.head = true, .query = true}};
  expect_matches_oracle<copied(kD64Turns, 2, {})>(c, 2);
  c.mask = Mask::causal(), c.s_k = {600};
  expect_matches_oracle<copied(kD64Turns, 2, {.mask = MaskShape::right})>(c, 1);
  expect_matches_oracle<copied(kD64, 1, {.mask = MaskShape::right})>(c, 2);
  c.mask = Mask::window(90, 0);
  expect_matches_oracle<copied(kD64, 1, {.mask = MaskShape::window})>(c, 2);
}

TEST(EmulatedHopperForward, computes_biases_that_are_copied_beside_masks_and_lengths) {
  for (const Mask& mask : {Mask::window(90, 0, 3), Mask::window(20, 0)}) {
    Case c = small(64, mask);
    c.bias = BiasSpec{bf16, {.batch = true, .query = true}};
    c.mode = Mode::group, c.b = 3, c.s_q = {240, 0, 70}, c.s_k = {264, 30, 65};
    expect_matches_oracle<copied(kD64Bias, 2, {.mask = MaskShape::window, .own_lengths = true})>(c, 2);
  }
  Case c = small(64, Mask::causal());
  c.bias = BiasSpec{bf16, {.batch = true, .query = true}};
  c.mode = Mode::group, c.b = 3, c.s_q = {400, 0, 70}, c.s_k = {264, 30, 0};
  expect_matches_oracle<copied(kD64Turns, 2, {.mask = MaskShape::right, .own_lengths = true})>(c, 2);
  c = small(128, Mask::window(90, 0, 3));
  c.bias = BiasSpec{bf16, {.head = true, .query = true}};
  c.b = 2, c.h = 1, c.q_eff_lens = {230, 100}, c.kv_eff_lens = {300, 97};
  expect_matches_oracle<copied(kD128Bias, 2, {.mask = MaskShape::window, .own_lengths = true})>(c, 2);
  c = small(64, Mask::window(90, 0));
  c.bias = BiasSpec{bf16, {.query = true}};
  expect_matches_oracle<copied(kD64Narrow, 2, {.mask = MaskShape::window})>(c, 2);
  c = small(64, Mask::none());
  c.bias = BiasSpec{bf16, {.head = true, .query = true}}, c.bool_mask = Broadcast{.query = true};
  expect_matches_oracle<copied(kD64Narrow, 2, {.keep = true})>(c, 2);
  c = small(128, Mask::causal());
  c.bias = BiasSpec{bf16, {.head = true, .query = true}};
  c.block_mask = BlockMaskSpec{32, 64, {.head = true, .query = true}};
  expect_matches_oracle<copied(kD128Two, 2, {.mask = MaskShape::right, .blocks = true})>(c, 2);
}

TEST(EmulatedHopperForward, computes_masks_by_bits_and_dropout) {
  Case c = small(64, Mask::none());
  c.bool_mask = Broadcast{.query = true}, c.p_drop = 0.3;
  expect_matches_oracle<with(kD64Wide, {.keep = true, .dropout = true})>(c, 2);
  c = small(128, Mask::causal());
  c.block_mask = BlockMaskSpec{32, 64, {.head = true, .query = true}};
  expect_matches_oracle<with(kD128, {.mask = MaskShape::right, .blocks = true})>(c, 2);
  c.d = c.d_v = 64, c.block_mask = BlockMaskSpec{128, 128, {.head = true, .query = true}};
  expect_matches_oracle<with(kD64Blocks, {.mask = MaskShape::right, .blocks = true})>(c, 2);
  c.s_q = {50}, c.s_k = {70}, c.mask = Mask::none(), c.block_mask = BlockMaskSpec{16, 16, {.query = true}};
  expect_matches_oracle<with(kD64Narrow, {.blocks = true})>(c, 2);
  c = small(256, Mask::causal());
  c.block_mask = BlockMaskSpec{128, 128, {.head = true, .query = true}}, c.bool_mask = Broadcast{.query = true};
  expect_matches_oracle<with(kD256, {.mask = MaskShape::right, .keep = true, .blocks = true})>(c, 2);
}

TEST(EmulatedHopperForward, computes_every_size_of_windows_and_lengths) {
  Case c = small(64, Mask::none());
  c.mode = Mode::group;
  expect_kind_matches_oracle<with(kD64Turns, {.own_lengths = true})>(c);
  c.mask = Mask::causal();
  expect_kind_matches_oracle<with(kD64Turns, {.mask = MaskShape::right, .own_lengths = true})>(c);
  c.mask = Mask::window(90, 0);
  expect_kind_matches_oracle<with(kD64, {.mask = MaskShape::window, .own_lengths = true})>(c);
  c = small(128, Mask::window(90, 0));
  expect_kind_matches_oracle<with(kD128, {.mask = MaskShape::window})>(c);
  c.mask = Mask::causal(), c.kv_eff_lens = {1};
  expect_kind_matches_oracle<with(kD128, {.mask = MaskShape::right, .own_lengths = true})>(c);
}

// In tiles of which other rows or keys do not see it, too.
TEST(EmulatedHopperForward, brings_what_is_no_number_to_those_who_see_it) {
  const auto nan_in = [](std::int64_t d, const Mask& mask) {
    Case c = small(d, mask);
    c.distribution = verify::Distribution::one_nan;
    return c;
  };
  expect_kind_matches_oracle<with(kD128, {})>(nan_in(128, Mask::none()));
  expect_kind_matches_oracle<with(kD128, {.mask = MaskShape::right})>(nan_in(128, Mask::causal()));
  expect_kind_matches_oracle<with(kD256, {.mask = MaskShape::right})>(nan_in(256, Mask::causal()));
  Case c = nan_in(64, Mask::window(90, 0));
  c.mode = Mode::group;
  expect_kind_matches_oracle<with(kD64, {.mask = MaskShape::window, .own_lengths = true})>(c);
  c = nan_in(64, Mask::none());
  c.bool_mask = Broadcast{.batch = true, .query = true};
  expect_kind_matches_oracle<with(kD64Wide, {.keep = true})>(c);
  c = nan_in(128, Mask::causal());
  c.soft_cap = 15, c.alibi = Alibi::per_head, c.sink = verify::SinkInit::normal;
  expect_kind_matches_oracle<with(kD128Two, {.mask = MaskShape::right, .soft_cap = true, .alibi = true, .sink = true})>(
      c);
  c = nan_in(128, Mask::none());
  c.bias = BiasSpec{bf16, {.head = true, .query = true}}, c.bias_inf = true, c.p_drop = 0.2;
  expect_kind_matches_oracle<with(kD128Two, {.bias = kernels::BiasType::as_input, .dropout = true})>(c);
}

TEST(EmulatedHopperForward, computes_every_size_of_masks_and_biases) {
  Case c = small(64, Mask::causal());
  c.block_mask = BlockMaskSpec{64, 64, {.head = true, .query = true}};
  expect_kind_matches_oracle<with(kD64Narrow, {.mask = MaskShape::right, .blocks = true})>(c);
  c.mask = Mask::none(), c.mode = Mode::group;
  expect_kind_matches_oracle<with(kD64Blocks, {.own_lengths = true, .blocks = true})>(c);
  c = small(64, Mask::none());
  c.bool_mask = Broadcast{.batch = true, .query = true};
  expect_kind_matches_oracle<with(kD64Wide, {.keep = true})>(c);
  c = small(128, Mask::causal());
  c.bias = BiasSpec{bf16, {.head = true, .query = true}};
  expect_kind_matches_oracle<with(kD128, {.mask = MaskShape::right, .bias = kernels::BiasType::as_input})>(c);
  expect_kind_matches_oracle<copied(kD128Bias, 2, {.mask = MaskShape::right})>(c);
  c.d = c.d_v = 64;
  c.mode = Mode::group;
  expect_kind_matches_oracle<copied(kD64Bias, 2, {.mask = MaskShape::right, .own_lengths = true})>(c);
  expect_kind_matches_oracle<copied(kD64Turns, 2, {.mask = MaskShape::right, .own_lengths = true})>(c);
  c = small(256, Mask::none());
  c.bool_mask = Broadcast{.query = true}, c.block_mask = BlockMaskSpec{64, 64, {.query = true}};
  expect_kind_matches_oracle<with(kD256, {.keep = true, .blocks = true})>(c);
}

}  // namespace
}  // namespace heed
