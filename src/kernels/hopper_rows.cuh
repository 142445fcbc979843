// Rows of Q and O between global and shared memory by TMA. Rows of a tile are queries of one head, or, where the heads of a
// group share tiles, of all of them: then the maps have a dimension more, (column, head of the group, query, head of K and
// V, batch entry), and a box has the heads of some queries side by side.
#pragma once

#include "hopper_tiles.cuh"
#include "ptx.cuh"

namespace heed::kernels {

/// 64 rows of Q from `row` on, as panels of 64 columns.
template <HopperConfig C>
HEED_DEVICE void load_q_rows(u32 to, const TensorMap* map, u32 full, const ForwardParams& p, const Sequence& sequence,
                             const TileWork& work, int row, u64 policy) {
  const int query = sequence.q_row + sequence.query(row), head = work.head * p.q_map.head;
  const int batch = work.batch * p.q_map.batch;
#pragma unroll
  for (int i = 0; i < C.panels(); ++i) {
    if constexpr (C.features.packed) {
      tma_load(to + i * (64 * 128), map, full, i * 64, 0, query, head, batch, policy);
    } else {
      tma_load(to + i * (64 * 128), map, full, i * 64, query, head, batch, policy);
    }
  }
}

/// One panel of 16 rows of O.
template <HopperConfig C>
HEED_DEVICE void store_o_rows(const TensorMap* map, u32 from, int column, const ForwardParams& p, const Sequence& sequence,
                              const TileWork& work, int row) {
  const int query = sequence.q_row + sequence.query(row), head = work.head * p.o_map.head;
  const int batch = work.batch * p.o_map.batch;
  if constexpr (C.features.packed) {
    tma_store(map, from, column, sequence.head(0, row), query, head, batch);
  } else {
    tma_store(map, from, column, query, head, batch);
  }
}

}  // namespace heed::kernels
