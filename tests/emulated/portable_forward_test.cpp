// The portable forward kernel, run by the CPU: its copies, barriers, tiles and products as a GPU would execute them.
#include "emulated/device.hpp"
//
#include "device/portable_forward.cuh"

#include "cuda/portable_forward.hpp"
#include "cuda/tile_order.hpp"
#include "emulated/outer_rows.hpp"
#include "emulated/params.hpp"
#include "verify/judge.hpp"

#include <gtest/gtest.h>

namespace heed {
namespace {

using kernels::Element;
using kernels::ForwardFeatures;
using kernels::MaskShape;
using kernels::PortableConfig;
using verify::Buffers;
using verify::Case;

constexpr kernels::PortableDevice kHopper{90, emulated::kSharedBytes};

constexpr PortableConfig config(Element type, int d, int d_v, int row_bytes, const ForwardFeatures& features) {
  return kernels::portable_config(type, type, type, d, d_v, row_bytes, features, kHopper);
}

/// Runs the kernel that the engine would take for this case, and judges what it leaves.
template <PortableConfig C>
void run(const Buffers& buffers, verify::Fence fence) {
  const Problem problem = Problem::of(buffers.args());
  ASSERT_TRUE(cuda::portable_config(problem, kHopper) == C) << "the test has another kernel than this case";
  verify::FencedCopies copies(fence, emulated::kFenceAlignment);
  kernels::ForwardParams p = emulated::params_of(problem, copies.inputs(buffers.args()));
  p.row_tiles = static_cast<int>((problem.s_q() + C.tile_q() - 1) / C.tile_q());
  p.section = cuda::tile_order(problem, p.row_tiles).section;
  emulated::begin_shared_memory(C.shared_bytes(), C.threads());
  emulated::launch(static_cast<int>(p.row_tiles * problem.heads_q() * problem.batch()), C.threads(),
                   [&] { kernels::portable_forward<C>(p); });
  const verify::Verdict verdict = verify::judge(buffers);
  EXPECT_TRUE(verdict.valid()) << verdict.to_string();
}
template <PortableConfig C>
void expect_matches_oracle(const Case& c) {
  SCOPED_TRACE(c.to_command());
  for (const verify::Fence fence : {verify::Fence::before, verify::Fence::behind}) run<C>(Buffers(c), fence);
}

Case small(DataType type, std::int64_t d, const Mask& mask) {
  Case c;
  c.b = 1, c.h = 2, c.h_k = 1, c.s_q = {70}, c.s_k = {150}, c.d = c.d_v = d;
  c.type = type, c.mask = mask, c.lse = true;
  return c;
}

TEST(EmulatedPortableForward, computes_causal_attention) {
  constexpr ForwardFeatures kCausal{.mask = MaskShape::right};
  expect_matches_oracle<config(Element::bf16, 64, 64, 16, kCausal)>(small(bf16, 64, Mask::causal()));
}

TEST(EmulatedPortableForward, computes_windows_and_masks_of_sequences_with_their_own_lengths) {
  constexpr ForwardFeatures kAll{.mask = MaskShape::window,
                                 .own_lengths = true,
                                 .keep = true,
                                 .soft_cap = true,
                                 .alibi = true,
                                 .sink = true,
                                 .dropout = true};
  Case c = small(f16, 40, Mask::window(60, 2, 3));
  c.mode = Mode::group, c.b = 3, c.s_q = {70, 0, 5}, c.s_k = {100, 30, 1};
  c.bool_mask = Broadcast{.query = true};
  c.soft_cap = 20, c.alibi = Alibi::per_head, c.sink = verify::SinkInit::normal, c.p_drop = 0.2;
  expect_matches_oracle<config(Element::f16, 40, 40, 16, kAll)>(c);
}

TEST(EmulatedPortableForward, leaves_rows_outside_of_all_sequences_alone) {
  Buffers buffers(emulated::sequences_between_others(small(bf16, 64, Mask::causal())));
  emulated::leave_out_the_outer_ones(buffers);
  run<config(Element::bf16, 64, 64, 16, {.mask = MaskShape::right, .own_lengths = true})>(buffers,
                                                                                          verify::Fence::behind);
}

TEST(EmulatedPortableForward, brings_what_is_no_number_to_those_who_see_it) {
  constexpr ForwardFeatures kCausal{.mask = MaskShape::right}, kKept{.keep = true, .soft_cap = true};
  for (const std::uint64_t seed : {7, 4, 8}) {  // in Q, K and V
    Case c = small(bf16, 64, Mask::causal());
    c.h = 1, c.s_k = {100}, c.distribution = verify::Distribution::one_nan, c.seed = seed;
    expect_matches_oracle<config(Element::bf16, 64, 64, 16, kCausal)>(c);
    c.mask = Mask::none(), c.bool_mask = Broadcast{.query = true}, c.soft_cap = 20;
    expect_matches_oracle<config(Element::bf16, 64, 64, 16, kKept)>(c);
    c.bool_mask = {}, c.soft_cap = 0, c.mask = Mask::causal(), c.d = c.d_v = 256;
    expect_matches_oracle<config(Element::bf16, 256, 256, 16, kCausal)>(c);
  }
}

// Rows that see few keys have exact weights, however large the scores.
TEST(EmulatedPortableForward, has_exact_weights_beside_a_value_that_is_no_number) {
  Case c = small(f32, 64, Mask::causal_top_left());
  c.h = 1, c.s_k = {100}, c.scale = 3, c.distribution = verify::Distribution::one_nan, c.seed = 8;
  expect_matches_oracle<config(Element::f32, 64, 64, 16, {.mask = MaskShape::right})>(c);
}

TEST(EmulatedPortableForward, computes_in_f32_with_a_bias_and_odd_head_dims) {
  constexpr ForwardFeatures kBias{.bias = kernels::BiasType::f32};
  Case c = small(f32, 33, Mask::none());
  c.d_v = 17, c.bias = BiasSpec{f32, {.head = true, .query = true}};
  expect_matches_oracle<config(Element::f32, 33, 17, 4, kBias)>(c);
}

/// Blocks of which some rows see nothing, rows behind the end, growing maxima.
TEST(EmulatedPortableForward, computes_by_pairs_of_warps_that_share_their_rows) {
  constexpr ForwardFeatures kCausal{.mask = MaskShape::right};
  static_assert(config(Element::f16, 256, 256, 16, kCausal).pairs);
  Case c = small(f16, 256, Mask::causal());
  c.s_q = {130}, c.s_k = {300};
  expect_matches_oracle<config(Element::f16, 256, 256, 16, kCausal)>(c);
  c.mask = Mask::none(), c.type = bf16;
  expect_matches_oracle<config(Element::bf16, 256, 256, 16, {})>(c);
}

}  // namespace
}  // namespace heed
