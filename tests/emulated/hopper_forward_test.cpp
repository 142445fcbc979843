// The Hopper forward kernel, run by the CPU: warpgroups, rings of mbarriers, TMA and wgmma as a GPU would execute them,
// copies and products at any moment at which they may happen.
#include "emulated/device.hpp"
//
#include "device/hopper_forward.cuh"

#include "core/ceil_div.hpp"
#include "cuda/forward_params.hpp"
#include "cuda/tile_order.hpp"
#include <heed/heed.hpp>

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

/// As map_tensor of src/cuda describes a tensor to the driver.
emulated::Map map_of(const void* data, const Strides& strides, std::int64_t columns, std::int64_t rows,
                     std::int64_t heads, std::int64_t batch, int box_rows) {
  return {.data = static_cast<std::byte*>(const_cast<void*>(data)),
          .rank = 4,
          .sizes = {columns, rows, strides.head == 0 ? 1 : heads, strides.batch == 0 ? 1 : batch},
          .steps = {2, 2 * strides.sequence, 2 * strides.head, 2 * strides.batch},
          .box = {64, box_rows, 1, 1}};
}
kernels::TensorMap tensor_map(const emulated::Map& map) {
  return {{static_cast<kernels::u64>(reinterpret_cast<std::uintptr_t>(&map))}};
}

template <HopperConfig C>
void run(const Case& c, int blocks) {
  static_assert(C.impossible() == nullptr && !C.features.packed && C.cluster == 1 && !C.v_by_columns);
  const Buffers buffers(c);
  const Problem problem = Problem::of(buffers.args());
  ASSERT_EQ(cuda::features_of(problem), C.features) << "the test has another kernel than this case";
  Context context;
  kernels::ForwardParams p = cuda::forward_params({.problem = problem,
                                                   .args = buffers.args(),
                                                   .workspace = {},
                                                   .executor = context.executor(),
                                                   .threads = 1,
                                                   .prepared = nullptr});
  const auto map = [&](Operand which, const void* data, std::int64_t columns, std::int64_t rows, std::int64_t heads,
                       int box) {
    return map_of(data, problem.strides(which), columns, rows, heads, problem.batch(), box);
  };
  const auto steps = [&](Operand which) {
    return kernels::MapSteps{problem.strides(which).head != 0 ? 1 : 0, problem.strides(which).batch != 0 ? 1 : 0};
  };
  const emulated::Map q = map(Operand::q, p.q, problem.d(), p.s_q, problem.heads_q(), 64);
  const emulated::Map k = map(Operand::k, p.k, problem.d(), p.s_k, problem.heads_k(), C.tile_k);
  const emulated::Map v = map(Operand::v, p.v, problem.d_v(), p.s_k, problem.heads_k(), C.tile_k);
  const emulated::Map o = map(Operand::o, p.o, problem.d_v(), p.s_q, problem.heads_q(), 16);
  p.q_map = steps(Operand::q);
  p.k_map = steps(Operand::k);
  p.v_map = steps(Operand::v);
  p.o_map = steps(Operand::o);
  unsigned counter = 0;
  p.counter = &counter;
  p.row_tiles = static_cast<int>(core::ceil_div(problem.s_q(), std::int64_t{C.tile_rows()}));
  const cuda::TileOrder order = cuda::tile_order(problem, p.row_tiles);
  p.section = order.section;
  p.light = order.light;
  emulated::begin_shared_memory(C.shared_bytes(), C.threads());
  emulated::launch(blocks, C.threads(),
                   [&] { kernels::hopper_forward<C>(tensor_map(q), tensor_map(k), tensor_map(v), tensor_map(o), p); });
  EXPECT_EQ(counter, 0u) << "the counter of tiles is not as it was";
  const verify::Verdict verdict = verify::judge(buffers);
  EXPECT_TRUE(verdict.valid()) << verdict.to_string();
}

template <HopperConfig C>
void expect_matches_oracle(const Case& c, int blocks) {
  for (const emulated::Timing timing : {emulated::Timing::fast_copies, emulated::Timing::fast_products}) {
    SCOPED_TRACE(c.to_command() + (timing == emulated::Timing::fast_copies ? ", fast copies" : ", fast products"));
    emulated::set_timing(timing);
    run<C>(c, blocks);
  }
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

constexpr HopperConfig kD128{.d = 128, .d_v = 128, .tile_k = 64, .warpgroups = 3};
constexpr HopperConfig kD64{.d = 64, .d_v = 64, .tile_k = 64, .warpgroups = 4, .k_stages = 5, .v_stages = 5};

TEST(EmulatedHopperForward, computes_full_and_causal_attention) {
  expect_matches_oracle<with(kD128, {})>(small(128, Mask::none()), 2);
  expect_matches_oracle<with(kD128, {.mask = MaskShape::right})>(small(128, Mask::causal()), 1);
}

TEST(EmulatedHopperForward, computes_windows_of_sequences_with_their_own_lengths) {
  Case c = small(64, Mask::window(90, 0, 3));
  c.mode = Mode::group, c.b = 3, c.s_q = {130, 0, 70}, c.s_k = {260, 30, 65};
  expect_matches_oracle<with(kD64, {.mask = MaskShape::window, .own_lengths = true})>(c, 2);
}

}  // namespace
}  // namespace heed
