// A backward pass of the portable family, run by the CPU: all its launches, as src/cuda/portable_backward.cpp has them.
#pragma once

#include "emulated/device.hpp"
//
#include "device/portable_backward_bias.cuh"
#include "device/portable_backward_gather.cuh"
#include "device/portable_backward_keys.cuh"
#include "device/portable_backward_narrow.cuh"
#include "device/portable_backward_queries.cuh"
#include "device/portable_backward_rows.cuh"
#include "device/portable_backward_together.cuh"

#include "cuda/portable_backward.hpp"
#include "emulated/params.hpp"
#include "verify/judge.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace heed::emulated {

using kernels::BackwardPart;
using kernels::Element;
using kernels::ForwardFeatures;
using kernels::PortableBackwardConfig;
using kernels::PortableDevice;
using verify::Buffers;
using verify::Case;

constexpr PortableDevice kHopper{90, kSharedBytes};
constexpr PortableDevice kBlackwell{100, kSharedBytes};

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
  begin_shared_memory(static_cast<std::size_t>(C.shared_bytes()), C.threads());
  launch(blocks, C.threads(), [&] {
    if constexpr (C.part == BackwardPart::rows) {
      kernels::portable_backward_rows<C>(p);
    } else if constexpr (C.is_narrow()) {
      kernels::portable_backward_narrow<C>(p);
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
void run_backward(const Buffers& buffers, const PortableDevice& device, int multiprocessors, verify::Fence fence) {
  const Problem problem = Problem::of(buffers.backward_args());
  const cuda::PortableBackwardConfigs configs(problem, device, multiprocessors);
  ASSERT_TRUE(std::ranges::equal(configs, std::vector<PortableBackwardConfig>{C...}))
      << "the test has other kernels than this case";
  const std::int64_t rows = cuda::packed_row_space(problem);
  Workspace workspace(
      cuda::divide_workspace(problem, {.row_space = rows,
                                       .dq_sum_floats = problem.heads_q() * rows * configs.dq_sum_columns(),
                                       .d_bias_floats = configs.dbias_floats()}));
  verify::FencedCopies copies(fence, kFenceAlignment);
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
    run_backward<C...>(Buffers(c), device, multiprocessors, fence);
}

inline Case small(DataType type, std::int64_t d, const Mask& mask) {
  Case c;
  c.operation = Operation::backward;
  c.b = 1, c.h = 2, c.h_k = 1, c.s_q = {90}, c.s_k = {150}, c.d = c.d_v = d;
  c.type = type, c.mask = mask;
  return c;
}

}  // namespace heed::emulated
