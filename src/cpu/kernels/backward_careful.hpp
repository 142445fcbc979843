// Sums of the backward pass where K, Q or dO hold infinities or NaN: pair by pair, so that hidden pairs touch nothing.
#pragma once

#include "cpu/kernels/backward_pass.hpp"

namespace heed::cpu::HEED_ISA {

/// Unit::add_outer() with f32 weights [keys][kStrip], pair by pair, for keys [run.key, end): hidden pairs touch
/// nothing.
HEED_NOINLINE void add_outer_carefully(const float* weights, const Plane& plane, int dim, int64_t row, int rows,
                                       const VisiblePairs& visible, const KeyRun& run, int end, float* c, int pitch) {
  for (int key = run.key; key < end; ++key)
    for (int r = run.low * kLanes; r < smaller(run.high * kLanes, rows); ++r) {
      if (!visible.row(key, r)) continue;
      const F weight = broadcast(weights[static_cast<long>(key) * kStrip + r]);
      float* const to = c + static_cast<long>(key) * pitch;
      for (int column = 0; column < dim; column += kLanes) {
        const F x = load_elements(address(plane, 0, row + r, column), plane.type, smaller(dim - column, kLanes));
        store(to + column, fma(weight, x, load(to + column)));
      }
    }
}

/// Likewise dq [d][kStrip] += K^T dS^T, for keys of the caller's K.
HEED_NOINLINE void add_dq_carefully(const ForwardJob& job, const float* ds, const VisiblePairs& visible,
                                    const KeyRun& run, int end, float* dq) {
  for (int key = run.key; key < end; ++key)
    for (int c = 0; c < job.d; ++c) {
      const F k = broadcast(load_element(address(job.k, 0, visible.first + key, c), job.k.type));
      for (int v = run.low; v < run.high; ++v) {
        const F weights = load(ds + static_cast<long>(key) * kStrip + v * kLanes);
        float* const to = dq + static_cast<long>(c) * kStrip + v * kLanes;
        store(to, select(visible.lanes(key, v), fma(k, weights, load(to)), load(to)));
      }
    }
}

}  // namespace heed::cpu::HEED_ISA
