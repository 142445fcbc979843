// A backward pass of the Hopper family, run by the CPU: all its launches, as src/cuda/hopper_backward.cpp has them.
#pragma once

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
#include "cuda/hopper_backward.hpp"
#include "cuda/portable_backward.hpp"
#include "emulated/hopper_maps.hpp"
#include "emulated/params.hpp"
#include "emulated/varied.hpp"
#include "verify/judge.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <vector>

namespace heed::emulated {

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

constexpr kernels::PortableDevice kHopper{90, kSharedBytes};

/// One of the launches behind, for dBias.
template <PortableBackwardConfig C>
void run_shared(const Problem& problem, kernels::BackwardParams& p, int multiprocessors) {
  const auto map = [&](Operand which, const void* data) { return map_of(problem, p.forward, which, data, C.block); };
  const MappedTensor q = map(Operand::q, p.forward.q), d_o = map(Operand::d_o, p.d_o), k = map(Operand::k, p.forward.k),
                     v = map(Operand::v, p.forward.v);
  p.q_map = q.steps, p.d_o_map = d_o.steps, p.k_map = k.steps, p.v_map = v.steps;
  auto blocks = static_cast<int>(cuda::portable_backward_blocks(C, problem, p));
  if (C.by_wgmma) blocks = std::min(blocks, multiprocessors);
  begin_shared_memory(static_cast<std::size_t>(C.shared_bytes()), C.launched_threads());
  launch(blocks, C.launched_threads(), [&] {
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
  Workspace workspace(cuda::divide_workspace(
      problem, {.row_space = cuda::packed_row_space(problem), .d_bias_floats = configs.dbias_floats()}));
  kernels::BackwardParams p = workspace.params_of(problem, args);
  p.d_bias_parts = configs.dbias_parts();
  (run_shared<Shared>(problem, p, multiprocessors), ...);
}

/// dBias where nobody shares it.
inline MappedTensor map_of_dbias(const Problem& problem, const kernels::BackwardParams& p, int box_rows) {
  const kernels::Steps& steps = p.d_bias_steps;
  return {.map = {.data = static_cast<std::byte*>(p.d_bias),
                  .rank = 4,
                  .sizes = {problem.s_k(), problem.s_q(), steps.head == 0 ? 1 : problem.heads_q(),
                            steps.batch == 0 ? 1 : problem.batch()},
                  .steps = {2, 2 * steps.row, 2 * steps.head, 2 * steps.batch},
                  .box = {64, box_rows, 1, 1}},
          .steps = {steps.head != 0 ? 1 : 0, steps.batch != 0 ? 1 : 0}};
}

/// Sections of as many heads as the library would choose.
constexpr int kChosen = 0;
/// All thread blocks side by side.
constexpr int kAll = 0;

/// As src/cuda/hopper_backward.cpp launches it, on so many multiprocessors. Returns the sum of dQ, bit by bit, if there
/// is one. Where dBias is stored by the main kernel and there are kernels for it behind, its memory counts as one that
/// TMA cannot write. at_a_time: the thread blocks of the main kernel that there is room for.
template <auto C, PortableBackwardConfig... Shared>
std::vector<std::uint32_t> run_backward(const Buffers& buffers, int blocks, int parts, verify::Fence fence,
                                        int section = kChosen, int at_a_time = kAll) {
  static_assert(C.impossible() == nullptr);
  const Problem problem = Problem::of(buffers.backward_args());
  EXPECT_EQ(cuda::features_of(problem), C.features) << "the test has another kernel than this case";
  const cuda::HopperBackwardTiles tiles{
      C.tile_q, C.kTileK, C.d, parts, C.owned_dq ? 0 : C.sum_bytes(), C.zeroes_ahead() ? blocks : 0};
  Workspace workspace(tiles.workspace(problem));
  verify::FencedCopies copies(fence, kFenceAlignment);
  const BackwardArgs args = copies.inputs(buffers.backward_args());
  kernels::BackwardParams p = workspace.params_of(problem, args);
  tiles.schedule(problem, p);
  if (section != kChosen) p.section = section;
  const auto map = [&](Operand which, const void* data, int box_rows) {
    return map_of(problem, p.forward, which, data, box_rows);
  };
  const MappedTensor q = map(Operand::q, p.forward.q, C.tile_q), d_o = map(Operand::d_o, p.d_o, C.tile_q),
                     k = map(Operand::k, p.forward.k, C.kTileK), v = map(Operand::v, p.forward.v, C.kTileK);
  p.q_map = q.steps;
  p.d_o_map = d_o.steps;
  p.k_map = k.steps;
  p.v_map = v.steps;
  MappedTensor dbias{};
  if constexpr (stores_dbias(C)) {
    dbias = map_of_dbias(problem, p, C.tile_q);
    p.d_bias_map = dbias.steps;
    if constexpr (sizeof...(Shared) > 0) p.d_bias = nullptr;
  }

  begin_shared_memory(C.shared_bytes(), C.threads());
  const int row_launch = static_cast<int>(tiles.row_blocks(problem) * problem.heads_q());
  launch(row_launch, kRowThreads, [&] { kernels::hopper_backward_before<config_before(C)>(p); });
  kernels::BackwardParams of_parts = p;
  of_parts.forward.group /= parts;
  const auto main = [&] {
    if constexpr (std::is_same_v<std::remove_const_t<decltype(C)>, HopperWideBackwardConfig>) {
      kernels::hopper_backward_wide<C>(q.told(), d_o.told(), k.told(), v.told(), of_parts);
    } else {
      const kernels::TensorMap told_dbias = dbias.told();
      kernels::hopper_backward<C>(q.told(), d_o.told(), k.told(), v.told(), of_parts,
                                  C.stores_dbias ? &told_dbias : nullptr);
    }
  };
  launch_some_side_by_side(blocks, C.threads(), main, at_a_time == kAll ? blocks : at_a_time);
  if constexpr (C.owned_dq) {
    constexpr kernels::HopperQueriesConfig kQueries = C.queries();
    kernels::BackwardParams of_queries = p;
    const std::int64_t row_tiles = core::ceil_div(problem.s_q(), kQueries.kRows),
                       all = problem.heads_q() * problem.batch();
    of_queries.forward.row_tiles = static_cast<int>(row_tiles);
    of_queries.forward.section =
        section != kChosen ? section : static_cast<int>(cuda::heads_of_queries(all, row_tiles));
    begin_shared_memory(kQueries.shared_bytes(), kQueries.threads());
    launch(static_cast<int>(row_tiles * all), kQueries.threads(),
           [&] { kernels::hopper_backward_queries<kQueries>(q.told(), d_o.told(), k.told(), v.told(), of_queries); });
  } else {
    launch(row_launch, kRowThreads, [&] { kernels::hopper_backward_after<config_after(C)>(p); });
  }
  if constexpr (C.in_parts)
    launch(static_cast<int>(p.key_space / kernels::kSumKeys * problem.heads_k() * 2), kRowThreads,
           [&] { kernels::hopper_backward_parts<config_after(C)>(p); });
  if constexpr (sizeof...(Shared) > 0) run_all_shared<Shared...>(problem, args, blocks);
  const verify::Verdict verdict = verify::judge(buffers);
  EXPECT_TRUE(verdict.valid()) << verdict.to_string();
  std::vector<std::uint32_t> sum(static_cast<std::size_t>(problem.heads_q() * p.row_space * C.d * tiles.sum_bytes / 4));
  std::memcpy(sum.data(), p.dq_sum, sum.size() * 4);
  return sum;
}
template <auto C, PortableBackwardConfig... Shared>
void expect_matches_oracle(const Case& c, int blocks, int parts = 1, int section = kChosen) {
  for_each_timing(c.to_command(),
                  [&](verify::Fence fence) { run_backward<C, Shared...>(Buffers(c), blocks, parts, fence, section); });
}

/// And the sum of dQ has the same bits, whoever runs beside whom, and before whom.
template <auto C>
void expect_one_order(const Case& c, std::initializer_list<int> sections = {kChosen, kChosen}) {
  std::vector<std::uint32_t> first;
  int blocks = 1;
  for (const int section : sections) {
    for_each_timing(c.to_command(), [&](verify::Fence fence) {
      const std::vector<std::uint32_t> sum = run_backward<C>(Buffers(c), blocks, 1, fence, section);
      if (first.empty()) first = sum;
      EXPECT_TRUE(sum == first) << blocks << " thread blocks, sections of " << section;
    });
    blocks = 3;
  }
}

/// In another size. The family does not take problems without a key.
inline Case varied_with_keys(const Case& kind, int n) {
  Case c = varied(kind, n);
  if (std::ranges::all_of(c.s_k, [](std::int64_t keys) { return keys == 0; })) c.s_k.back() = 70;
  return c;
}

/// In other sizes, too.
template <auto C>
void expect_kind_matches_oracle(const Case& c) {
  for (int n = 0; n < varied_cases(); ++n) expect_matches_oracle<C>(varied_with_keys(c, n), 1 + n % 3);
}

/// And without keys that all queries see.
template <auto C>
void expect_kind_without_sinks(const Case& kind) {
  for (int n = 0; n < varied_cases(); ++n) {
    Case c = varied_with_keys(kind, n);
    const bool top_left = c.mask.kind() == Mask::Kind::top_left;
    c.mask =
        top_left ? Mask::window_top_left(c.mask.left(), c.mask.right()) : Mask::window(c.mask.left(), c.mask.right());
    expect_matches_oracle<C>(c, 1 + n % 3);
  }
}

inline Case small(std::int64_t d, const Mask& mask) {
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

/// A kernel behind the others, for dBias.
constexpr PortableBackwardConfig shared_config(kernels::BackwardPart part, int d, const ForwardFeatures& features,
                                               Element bias) {
  const PortableBackwardConfig c = kernels::portable_backward_config(
      part, {Element::bf16, Element::bf16, Element::bf16, d, d, 16}, features, kHopper);
  if (part == kernels::BackwardPart::rows) return c;
  PortableBackwardConfig by_wgmma = kernels::bias_config_by_wgmma(c, d, d);
  by_wgmma.d_bias = bias;
  return by_wgmma;
}

}  // namespace heed::emulated
