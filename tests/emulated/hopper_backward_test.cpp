// The Hopper backward kernels, run by the CPU: all launches of a pass.
#include "emulated/device.hpp"
//
#include "device/hopper_backward.cuh"
#include "device/hopper_backward_bias.cuh"
#include "device/hopper_backward_parts.cuh"
#include "device/hopper_backward_queries.cuh"
#include "device/hopper_backward_rows.cuh"
#include "device/hopper_backward_wide.cuh"
#include "device/portable_backward_bias.cuh"
#include "device/portable_backward_rows.cuh"

#include "core/ceil_div.hpp"
#include "core/float_bits.hpp"
#include "cuda/hopper_backward.hpp"
#include "cuda/portable_backward.hpp"
#include "emulated/hopper_maps.hpp"
#include "emulated/params.hpp"
#include "emulated/varied.hpp"
#include "verify/judge.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace heed {
namespace {

using kernels::BackwardPipeline;
using kernels::Element;
using kernels::ForwardFeatures;
using kernels::HopperBackwardConfig;
using kernels::HopperWideBackwardConfig;
using kernels::kRowThreads;
using kernels::MaskShape;
using kernels::PortableBackwardConfig;
using verify::Buffers;
using verify::Case;

constexpr kernels::PortableDevice kHopper{90, emulated::kSharedBytes};

/// One of the launches behind, for dBias.
template <PortableBackwardConfig C>
void run_shared(const Problem& problem, kernels::BackwardParams& p, int multiprocessors) {
  const auto map = [&](Operand which, const void* data) {
    return emulated::map_of(problem, p.forward, which, data, C.block);
  };
  const emulated::MappedTensor q = map(Operand::q, p.forward.q), d_o = map(Operand::d_o, p.d_o),
                               k = map(Operand::k, p.forward.k), v = map(Operand::v, p.forward.v);
  p.q_map = q.steps, p.d_o_map = d_o.steps, p.k_map = k.steps, p.v_map = v.steps;
  auto blocks = static_cast<int>(cuda::portable_backward_blocks(C, problem, p));
  if (C.by_wgmma) blocks = std::min(blocks, multiprocessors);
  emulated::begin_shared_memory(static_cast<std::size_t>(C.shared_bytes()), C.launched_threads());
  emulated::launch(blocks, C.launched_threads(), [&] {
    if constexpr (C.by_wgmma) {
      kernels::hopper_backward_bias<C>(q.told(), d_o.told(), k.told(), v.told(), p);
    } else if constexpr (C.part == kernels::BackwardPart::rows) {
      kernels::portable_backward_rows<C>(p);
    } else {
      kernels::portable_backward_bias_sum<C>(p);
    }
  });
}
template <PortableBackwardConfig... Shared>
void run_all_shared(const Problem& problem, const BackwardArgs& args, int multiprocessors) {
  const cuda::PortableBackwardConfigs configs(problem, kHopper, multiprocessors, cuda::PortableGradients::shared);
  ASSERT_TRUE(std::ranges::equal(configs, std::vector<PortableBackwardConfig>{Shared...}))
      << "the test has other kernels than this case";
  emulated::Workspace workspace(cuda::divide_workspace(
      problem, {.row_space = cuda::packed_row_space(problem), .d_bias_floats = configs.dbias_floats()}));
  kernels::BackwardParams p = workspace.params_of(problem, args);
  p.d_bias_parts = configs.dbias_parts();
  (run_shared<Shared>(problem, p, multiprocessors), ...);
}

/// dBias where nobody shares it.
emulated::MappedTensor map_of_dbias(const Problem& problem, const kernels::BackwardParams& p, int box_rows) {
  const kernels::Steps& steps = p.d_bias_steps;
  return {.map = {.data = static_cast<std::byte*>(p.d_bias),
                  .rank = 4,
                  .sizes = {problem.s_k(), problem.s_q(), steps.head == 0 ? 1 : problem.heads_q(),
                            steps.batch == 0 ? 1 : problem.batch()},
                  .steps = {2, 2 * steps.row, 2 * steps.head, 2 * steps.batch},
                  .box = {64, box_rows, 1, 1}},
          .steps = {steps.head != 0 ? 1 : 0, steps.batch != 0 ? 1 : 0}};
}

/// As src/cuda/hopper_backward.cpp launches it, on so many multiprocessors. Returns the sum of dQ, bit by bit, if there
/// is one. Where dBias is stored by the main kernel and there are kernels for it behind, its memory counts as one that
/// TMA cannot write.
template <auto C, PortableBackwardConfig... Shared>
std::vector<std::uint32_t> run(const Buffers& buffers, int blocks, int parts, verify::Fence fence) {
  static_assert(C.impossible() == nullptr);
  const Problem problem = Problem::of(buffers.backward_args());
  EXPECT_EQ(cuda::features_of(problem), C.features) << "the test has another kernel than this case";
  const cuda::HopperBackwardTiles tiles{C.tile_q, C.kTileK, C.d, parts, C.owned_dq};
  emulated::Workspace workspace(tiles.workspace(problem));
  verify::FencedCopies copies(fence, emulated::kFenceAlignment);
  const BackwardArgs args = copies.inputs(buffers.backward_args());
  kernels::BackwardParams p = workspace.params_of(problem, args);
  tiles.schedule(problem, p);
  p.section = 1;
  const auto map = [&](Operand which, const void* data, int box_rows) {
    return emulated::map_of(problem, p.forward, which, data, box_rows);
  };
  const emulated::MappedTensor q = map(Operand::q, p.forward.q, C.tile_q), d_o = map(Operand::d_o, p.d_o, C.tile_q),
                               k = map(Operand::k, p.forward.k, C.kTileK), v = map(Operand::v, p.forward.v, C.kTileK),
                               dk = map(Operand::dk, p.dk, 16), dv = map(Operand::dv, p.dv, 16);
  p.q_map = q.steps;
  p.d_o_map = d_o.steps;
  p.k_map = k.steps;
  p.v_map = v.steps;
  p.dk_map = dk.steps;
  p.dv_map = dv.steps;
  emulated::MappedTensor dbias{};
  if constexpr (stores_dbias(C)) {
    dbias = map_of_dbias(problem, p, C.tile_q);
    p.d_bias_map = dbias.steps;
    if constexpr (sizeof...(Shared) > 0) p.d_bias = nullptr;
  }

  emulated::begin_shared_memory(C.shared_bytes(), C.threads());
  const int row_launch = static_cast<int>(tiles.row_blocks(problem) * problem.heads_q());
  emulated::launch(row_launch, kRowThreads, [&] { kernels::hopper_backward_before<C>(p); });
  kernels::BackwardParams of_parts = p;
  of_parts.forward.group /= parts;
  emulated::launch_side_by_side(blocks, C.threads(), [&] {
    if constexpr (std::is_same_v<std::remove_const_t<decltype(C)>, HopperWideBackwardConfig>) {
      kernels::hopper_backward_wide<C>(q.told(), d_o.told(), k.told(), v.told(), dk.told(), dv.told(), of_parts);
    } else {
      const kernels::TensorMap told_dbias = dbias.told();
      kernels::hopper_backward<C>(q.told(), d_o.told(), k.told(), v.told(), dk.told(), dv.told(), of_parts,
                                  C.stores_dbias ? &told_dbias : nullptr);
    }
  });
  if constexpr (C.owned_dq) {
    constexpr kernels::HopperQueriesConfig kQueries = C.queries();
    kernels::BackwardParams of_queries = p;
    of_queries.forward.row_tiles = static_cast<int>(core::ceil_div(problem.s_q(), kQueries.kRows));
    of_queries.forward.section = 1;
    emulated::begin_shared_memory(kQueries.shared_bytes(), kQueries.threads());
    emulated::launch(
        of_queries.forward.row_tiles * static_cast<int>(problem.heads_q() * problem.batch()), kQueries.threads(),
        [&] { kernels::hopper_backward_queries<kQueries>(q.told(), d_o.told(), k.told(), v.told(), of_queries); });
  } else {
    emulated::launch(row_launch, kRowThreads, [&] { kernels::hopper_backward_after<C>(p); });
  }
  if constexpr (C.in_parts)
    emulated::launch(static_cast<int>(p.key_space / kernels::kSumKeys * problem.heads_k() * 2), kRowThreads,
                     [&] { kernels::hopper_backward_parts<C>(p); });
  if constexpr (sizeof...(Shared) > 0) run_all_shared<Shared...>(problem, args, blocks);
  const verify::Verdict verdict = verify::judge(buffers);
  EXPECT_TRUE(verdict.valid()) << verdict.to_string();
  std::vector<std::uint32_t> sum(C.owned_dq ? 0 : static_cast<std::size_t>(problem.heads_q() * p.row_space * C.d));
  std::memcpy(sum.data(), p.dq_sum, sum.size() * sizeof(float));
  return sum;
}
template <auto C, PortableBackwardConfig... Shared>
void expect_matches_oracle(const Case& c, int blocks, int parts = 1) {
  emulated::for_each_timing(c.to_command(),
                            [&](verify::Fence fence) { run<C, Shared...>(Buffers(c), blocks, parts, fence); });
}

/// And the sum of dQ has the same bits, whoever runs beside whom.
template <auto C>
void expect_one_order(const Case& c) {
  std::vector<std::uint32_t> first;
  for (const int blocks : {1, 3})
    emulated::for_each_timing(c.to_command(), [&](verify::Fence fence) {
      const std::vector<std::uint32_t> sum = run<C>(Buffers(c), blocks, 1, fence);
      if (first.empty()) first = sum;
      EXPECT_TRUE(sum == first) << blocks << " thread blocks";
    });
}

/// In other sizes, too.
template <auto C>
void expect_kind_matches_oracle(const Case& c) {
  for (int n = 0; n < emulated::varied_cases(); ++n) expect_matches_oracle<C>(emulated::varied(c, n), 1 + n % 3);
}

Case small(std::int64_t d, const Mask& mask) {
  Case c;
  c.operation = Operation::backward;
  c.b = 1, c.h = 2, c.h_k = 1, c.s_q = {150}, c.s_k = {290}, c.d = c.d_v = d;
  c.type = bf16, c.mask = mask;
  return c;
}
template <class Config>
constexpr Config with(Config config, const ForwardFeatures& features) {
  config.type = Element::bf16;
  config.features = features;
  return config;
}
constexpr ForwardFeatures kCausal{.mask = MaskShape::right};

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

constexpr PortableBackwardConfig shared_config(kernels::BackwardPart part, int d, const ForwardFeatures& features,
                                               Element bias) {
  const PortableBackwardConfig c = kernels::portable_backward_config(
      part, {Element::bf16, Element::bf16, Element::bf16, d, d, 16}, features, kHopper);
  if (part == kernels::BackwardPart::rows) return c;
  PortableBackwardConfig by_wgmma = kernels::bias_config_by_wgmma(c, d, d);
  by_wgmma.d_bias = bias;
  return by_wgmma;
}

TEST(EmulatedHopperBackward, sums_bias_gradients_over_heads_and_batch) {
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::right, .bias = kernels::BiasType::as_input};
  constexpr HopperBackwardConfig kConfig{.d = 128, .tile_q = 64};
  Case c = small(72, Mask::causal());
  c.b = 2, c.bias = BiasSpec{bf16, {.query = true}}, c.dbias = bf16;
  expect_matches_oracle<with(kConfig, kFeatures),
                        shared_config(kernels::BackwardPart::rows, 72, kFeatures, Element::f32),
                        shared_config(kernels::BackwardPart::bias, 72, kFeatures, Element::bf16)>(c, 1);
}

TEST(EmulatedHopperBackward, sums_bias_gradients_of_one_row_in_parts) {
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
TEST(EmulatedHopperBackward, has_no_bias_gradients_behind_the_ends_of_sequences) {
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

constexpr HopperBackwardConfig copied(HopperBackwardConfig config, ForwardFeatures features) {
  config.bias_route = kernels::BiasRoute::copied;
  features.bias = kernels::BiasType::as_input;
  return with(config, features);
}
constexpr HopperBackwardConfig kD64Ahead{.d = 64, .tile_q = 64, .pipeline = BackwardPipeline::ahead};
constexpr HopperBackwardConfig kD128InStep{.d = 128, .tile_q = 64};

/// Rows that begin at multiples of sixteen bytes, of four, and of two.
TEST(EmulatedHopperBackward, biases_that_are_copied_have_the_right_gradients) {
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

TEST(EmulatedHopperBackward, biases_that_are_copied_have_the_right_gradients_beside_masks_and_lengths) {
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

TEST(EmulatedHopperBackward, biases_that_are_copied_come_in_order) {
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
TEST(EmulatedHopperBackward, d64_stores_the_gradient_of_a_bias_that_nobody_shares) {
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

TEST(EmulatedHopperBackward, d128_stores_the_gradient_of_a_bias_that_nobody_shares) {
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

TEST(EmulatedHopperBackward, stores_bias_gradients_in_parts_and_in_order) {
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
}

// How the memory of dBias lies is known only when it comes.
TEST(EmulatedHopperBackward, leaves_bias_gradients_that_TMA_cannot_write_to_the_kernels_behind) {
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::right, .bias = kernels::BiasType::as_input};
  expect_matches_oracle<storing(kD64Bias, kCausal),
                        shared_config(kernels::BackwardPart::rows, 64, kFeatures, Element::f32),
                        shared_config(kernels::BackwardPart::bias, 64, kFeatures, Element::bf16)>(
      with_own_bias(64, Mask::causal(), 200, 264), 2);
}

// A row of q, dO, k or v that is no number makes nothing of a pair that is hidden, in blocks with visible pairs, too.
TEST(EmulatedHopperBackward, stores_zeros_as_bias_gradients_of_hidden_pairs) {
  const auto check = []<HopperBackwardConfig C>(Case c) {
    c.h = 1;
    for (const int tensor : {0, 1, 2, 3})
      emulated::for_each_timing(c.to_command() + ", NaN in tensor " + std::to_string(tensor), [&](verify::Fence fence) {
        Buffers buffers(c);
        const BackwardArgs& args = std::as_const(buffers).backward_args();
        const TensorView& view = tensor == 0   ? args.forward.q
                                 : tensor == 1 ? args.d_o
                                 : tensor == 2 ? args.forward.k
                                               : args.forward.v;
        core::store(const_cast<void*>(view.data), bf16, 67 * view.stride(1) + 3, NAN);
        buffers.remember_inputs();
        run<C>(buffers, 2, 1, fence);
      });
  };
  check.operator()<storing(kD64Bias, kCausal)>(with_own_bias(64, Mask::causal(), 104, 104));
  check.operator()<storing(kD128InStep, kWindow)>(with_own_bias(72, Mask::window(30, 5), 80, 80));
}

TEST(EmulatedHopperBackward, stores_bias_gradients_of_every_size) {
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

TEST(EmulatedHopperBackward, every_size_has_the_right_gradients) {
  constexpr HopperBackwardConfig kD64{.d = 64, .tile_q = 128}, kD128{.d = 128, .tile_q = 64};
  constexpr HopperWideBackwardConfig kD256{.d = 256}, kD256Owned{.d = 256, .owned_dq = true};
  Case c = small(64, Mask::window(90, 0));
  c.mode = Mode::group;
  expect_kind_matches_oracle<with(kD64, {.mask = MaskShape::window, .own_lengths = true})>(c);
  c = small(128, Mask::none());
  c.mode = Mode::group;
  expect_kind_matches_oracle<with(kD128, {.own_lengths = true})>(c);
  c = small(128, Mask::causal());
  c.bias = BiasSpec{bf16, {.head = true, .query = true}};
  expect_kind_matches_oracle<with(kD128, {.mask = MaskShape::right, .bias = kernels::BiasType::as_input})>(c);
  expect_kind_matches_oracle<copied(kD128InStep, kCausal)>(c);
  c = small(64, Mask::window(90, 0));
  c.mode = Mode::group, c.bias = BiasSpec{bf16, {.batch = true, .head = true, .query = true}};
  expect_kind_matches_oracle<copied(kD64Ahead, {.mask = MaskShape::window, .own_lengths = true})>(c);
  c = small(256, Mask::causal());
  c.q_eff_lens = {1}, c.kv_eff_lens = {1};
  expect_kind_matches_oracle<with(kD256, {.mask = MaskShape::right, .own_lengths = true})>(c);
  c = small(256, Mask::causal());
  c.deterministic = true;
  expect_kind_matches_oracle<with(kD256Owned, kCausal)>(c);
}

TEST(EmulatedHopperBackward, d128_in_order_has_the_right_gradients) {
  constexpr HopperBackwardConfig kConfig{.d = 128, .tile_q = 64, .ordered = true};
  Case c = small(128, Mask::causal());
  c.s_k = {300}, c.deterministic = true;
  expect_one_order<with(kConfig, kCausal)>(c);
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
