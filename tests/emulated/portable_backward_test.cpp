// The portable backward kernels, run by the CPU: all launches of a pass.
#include "emulated/device.hpp"
//
#include "device/portable_backward_bias.cuh"
#include "device/portable_backward_gather.cuh"
#include "device/portable_backward_keys.cuh"
#include "device/portable_backward_queries.cuh"
#include "device/portable_backward_rows.cuh"
#include "device/portable_backward_together.cuh"

#include "cuda/portable_backward.hpp"
#include "emulated/params.hpp"
#include "nan_in.hpp"
#include "verify/judge.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

namespace heed {
namespace {

using kernels::BackwardPart;
using kernels::BackwardTypes;
using kernels::Element;
using kernels::ForwardFeatures;
using kernels::MaskShape;
using kernels::PortableBackwardConfig;
using kernels::PortableDevice;
using verify::Buffers;
using verify::Case;

constexpr PortableDevice kHopper{90, emulated::kSharedBytes};
constexpr PortableDevice kBlackwell{100, emulated::kSharedBytes};

constexpr PortableBackwardConfig config(BackwardPart part, Element type, int d, const ForwardFeatures& features,
                                        const PortableDevice& device = kHopper) {
  return kernels::portable_backward_config(part, {type, type, type, d, d, 16}, features, device);
}
/// The first launch also clears the sum of dQ, which has this many columns.
constexpr PortableBackwardConfig rows_and_sum(Element type, int d, const ForwardFeatures& features) {
  PortableBackwardConfig c = config(BackwardPart::rows, type, d, features);
  c.d = kernels::head_tile(d);
  return c;
}
constexpr PortableBackwardConfig with_bias(PortableBackwardConfig c, Element type) {
  c.d_bias = type;
  return c;
}

template <PortableBackwardConfig C>
void run_part(const Problem& problem, kernels::BackwardParams& p, int multiprocessors) {
  auto blocks = static_cast<int>(cuda::portable_backward_blocks(C, problem, p));
  if (C.part == BackwardPart::bias) blocks = std::min(blocks, multiprocessors);
  emulated::begin_shared_memory(static_cast<std::size_t>(C.shared_bytes()), C.threads());
  emulated::launch(blocks, C.threads(), [&] {
    if constexpr (C.part == BackwardPart::rows) {
      kernels::portable_backward_rows<C>(p);
    } else if constexpr (C.part == BackwardPart::together) {
      kernels::portable_backward_together<C>(p);
    } else if constexpr (C.part == BackwardPart::gather) {
      kernels::portable_backward_gather<C>(p);
    } else if constexpr (C.owns_keys()) {
      kernels::portable_backward_keys<C>(p);
    } else if constexpr (C.part == BackwardPart::queries) {
      kernels::portable_backward_queries<C>(p);
    } else if constexpr (C.part == BackwardPart::bias) {
      kernels::portable_backward_bias<C>(p);
    } else if constexpr (C.part == BackwardPart::bias_sum) {
      kernels::portable_backward_bias_sum<C>(p);
    } else {
      kernels::portable_backward_sums<C>(p);
    }
  });
}

template <PortableBackwardConfig... C>
void run(const Buffers& buffers, const PortableDevice& device, int multiprocessors, verify::Fence fence) {
  const Problem problem = Problem::of(buffers.backward_args());
  const cuda::PortableBackwardConfigs configs(problem, device, multiprocessors);
  ASSERT_TRUE(std::ranges::equal(configs, std::vector<PortableBackwardConfig>{C...}))
      << "the test has other kernels than this case";
  const std::int64_t rows = cuda::packed_row_space(problem);
  emulated::Workspace workspace(
      cuda::divide_workspace(problem, {.row_space = rows,
                                       .dq_sum_floats = problem.heads_q() * rows * configs.dq_sum_columns(),
                                       .d_bias_floats = configs.dbias_floats()}));
  verify::FencedCopies copies(fence, emulated::kFenceAlignment);
  kernels::BackwardParams p = workspace.params_of(problem, copies.inputs(buffers.backward_args()));
  p.d_bias_parts = configs.dbias_parts();
  (run_part<C>(problem, p, multiprocessors), ...);
  const verify::Verdict verdict = verify::judge(buffers);
  EXPECT_TRUE(verdict.valid()) << verdict.to_string();
}
template <PortableBackwardConfig... C>
void expect_matches_oracle(const Case& c, const PortableDevice& device = kHopper, int multiprocessors = 1) {
  SCOPED_TRACE(c.to_command());
  for (const verify::Fence fence : {verify::Fence::before, verify::Fence::behind})
    run<C...>(Buffers(c), device, multiprocessors, fence);
}

Case small(DataType type, std::int64_t d, const Mask& mask) {
  Case c;
  c.operation = Operation::backward;
  c.b = 1, c.h = 2, c.h_k = 1, c.s_q = {90}, c.s_k = {150}, c.d = c.d_v = d;
  c.type = type, c.mask = mask;
  return c;
}

TEST(EmulatedPortableBackward, has_the_right_gradients_by_five_products) {
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::right, .soft_cap = true, .dropout = true};
  Case c = small(bf16, 64, Mask::causal());
  c.soft_cap = 20, c.p_drop = 0.2;
  expect_matches_oracle<rows_and_sum(Element::bf16, 64, kFeatures),
                        config(BackwardPart::together, Element::bf16, 64, kFeatures),
                        config(BackwardPart::gather, Element::bf16, 64, kFeatures)>(c);
}

TEST(EmulatedPortableBackward, has_the_right_gradients_with_half_of_a_block_in_registers) {
  constexpr PortableBackwardConfig kTogether = config(BackwardPart::together, Element::f16, 64, {}, kBlackwell);
  static_assert(kTogether.step < kTogether.block);
  expect_matches_oracle<rows_and_sum(Element::f16, 64, {}), kTogether,
                        config(BackwardPart::gather, Element::f16, 64, {}, kBlackwell)>(small(f16, 64, Mask::none()),
                                                                                        kBlackwell);
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
        run<config(BackwardPart::rows, Element::bf16, 64, kCausal),
            config(BackwardPart::keys_values, Element::bf16, 64, kCausal),
            config(BackwardPart::queries, Element::bf16, 64, kCausal)>(buffers, kHopper, 1, verify::Fence::behind);
      } else {
        run<rows_and_sum(Element::bf16, 64, kCausal), config(BackwardPart::together, Element::bf16, 64, kCausal),
            config(BackwardPart::gather, Element::bf16, 64, kCausal)>(buffers, kHopper, 1, verify::Fence::behind);
      }
    }
}

constexpr ForwardFeatures kBias{.bias = kernels::BiasType::as_input};

TEST(EmulatedPortableBackward, sums_a_bias_gradient_over_heads_and_batch_through_one_ring) {
  constexpr ForwardFeatures kFeatures{.mask = MaskShape::right, .bias = kernels::BiasType::as_input};
  Case c = small(bf16, 72, Mask::causal());  // two pieces each of Q, K, dO and V
  c.b = 2, c.s_q = {150}, c.bias = BiasSpec{bf16, {.query = true}}, c.dbias = bf16;
  expect_matches_oracle<rows_and_sum(Element::bf16, 72, kFeatures),
                        config(BackwardPart::together, Element::bf16, 72, kFeatures),
                        config(BackwardPart::gather, Element::bf16, 72, kFeatures),
                        with_bias(config(BackwardPart::bias, Element::bf16, 72, kFeatures), Element::bf16)>(c);
}

TEST(EmulatedPortableBackward, adds_up_the_parts_of_a_bias_gradient) {
  Case c = small(bf16, 64, Mask::none());
  c.b = 3, c.bias = BiasSpec{bf16, {.query = true}}, c.dbias = bf16;
  constexpr PortableBackwardConfig kDBias =
      with_bias(config(BackwardPart::bias, Element::bf16, 64, kBias), Element::bf16);
  expect_matches_oracle<
      rows_and_sum(Element::bf16, 64, kBias), config(BackwardPart::together, Element::bf16, 64, kBias),
      config(BackwardPart::gather, Element::bf16, 64, kBias), kDBias, kernels::bias_sum_config(kDBias)>(c, kHopper, 4);
}

TEST(EmulatedPortableBackward, sums_the_gradient_of_one_row_over_queries) {
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
TEST(EmulatedPortableBackward, has_no_bias_gradient_behind_the_ends_of_sequences) {
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

TEST(EmulatedPortableBackward, has_a_bias_gradient_in_f32) {
  constexpr ForwardFeatures kFeatures{.bias = kernels::BiasType::f32};
  Case c = small(f32, 68, Mask::none());
  c.bias = BiasSpec{f32, {.head = true, .query = true}}, c.dbias = f32;
  expect_matches_oracle<config(BackwardPart::rows, Element::f32, 68, kFeatures),
                        config(BackwardPart::keys_values, Element::f32, 68, kFeatures),
                        config(BackwardPart::queries, Element::f32, 68, kFeatures),
                        with_bias(config(BackwardPart::bias, Element::f32, 68, kFeatures), Element::f32)>(c, kHopper,
                                                                                                          2);
}

}  // namespace
}  // namespace heed
