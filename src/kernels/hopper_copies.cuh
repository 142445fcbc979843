// What the copying warp of the Hopper forward kernel sends, from global memory into the rings in shared memory. Which tiles
// and blocks come when is told in hopper_forward.cuh.
#pragma once

#include "hopper_rows.cuh"
#include "hopper_tiles.cuh"
#include "ptx.cuh"
#include "ring.cuh"

namespace heed::kernels {

/// Where everything is: the same for all threads.
struct CopyPlaces {
  const TensorMap *q, *k, *v;
  u32 base, q_full, q_empty, k_full, k_empty, v_full, v_empty;
  volatile TileWork* works;
};

/// Q of a tile for every math warpgroup, and beside it what it is of; without a tile, that there is no more work. `rank`:
/// of the thread block in its cluster.
template <HopperConfig C>
HEED_DEVICE void send_q(const CopyPlaces& at, const ForwardParams& p, Ring<C.q_buffers>& q, const Sequence& sequence,
                        const TileWork& work, bool found, u32 rank, u64 policy) {
#pragma unroll 1
  for (int w = 0; w < C.warpgroups; ++w) {
    const u32 slot = q.stage * C.warpgroups + w;
    mbarrier_wait(at.q_empty + 8 * slot, q.phase ^ 1);
    put_work<C>(at.works[slot], work, found ? work.row_tile : -1);
    if (!found) {
      mbarrier_arrive(at.q_full + 8 * slot);
      continue;
    }
    mbarrier_arrive_expect(at.q_full + 8 * slot, 64 * 128 * C.panels());
    const int row = work.row_tile * C.tile_rows() + int(rank) * C.tile_q() + w * 64;
    load_q_rows<C>(at.base + slot * C.q_bytes(), at.q, at.q_full + 8 * slot, p, sequence, work, row, policy);
  }
  q.next();
}

/// The next place for a block of K, and of V, once it is free.
template <HopperConfig C>
HEED_DEVICE u32 claim_k(const CopyPlaces& at, const Ring<C.k_stages>& k) {
  mbarrier_wait(at.k_empty + 8 * k.stage, k.phase ^ 1);
  mbarrier_arrive_expect(at.k_full + 8 * k.stage, C.k_bytes());
  return at.base + C.k_at() + k.stage * C.k_bytes();
}
template <HopperConfig C>
HEED_DEVICE u32 claim_v(const CopyPlaces& at, const Ring<C.v_stages>& v) {
  mbarrier_wait(at.v_empty + 8 * v.stage, v.phase ^ 1);
  mbarrier_arrive_expect(at.v_full + 8 * v.stage, C.v_bytes());
  return at.base + C.v_at() + v.stage * C.v_bytes();
}

/// A block of K, and of V, as panels of 64 columns; by columns V has panels of 64 keys.
template <HopperConfig C>
HEED_DEVICE void send_k(const CopyPlaces& at, const ForwardParams& p, Ring<C.k_stages>& k, const Sequence& sequence,
                        int kv_head, const TileWork& work, int block, u64 policy) {
  const u32 to = claim_k<C>(at, k);
#pragma unroll
  for (int i = 0; i < C.panels(); ++i)
    tma_load(to + i * (C.tile_k * 128), at.k, at.k_full + 8 * k.stage, i * 64, sequence.k_row + block * C.tile_k,
             kv_head * p.k_map.head, work.batch * p.k_map.batch, policy);
  k.next();
}
template <HopperConfig C>
HEED_DEVICE void send_v(const CopyPlaces& at, const ForwardParams& p, Ring<C.v_stages>& v, const Sequence& sequence,
                        int kv_head, const TileWork& work, int block, u64 policy) {
  const u32 to = claim_v<C>(at, v);
  if constexpr (C.v_by_columns) {
#pragma unroll
    for (int i = 0; i < C.key_panels(); ++i)
      tma_load(to + i * (C.d_v * 128), at.v, at.v_full + 8 * v.stage, sequence.k_row + block * C.tile_k + i * 64, 0,
               kv_head * p.v_map.head, work.batch * p.v_map.batch, policy);
  } else {
#pragma unroll
    for (int i = 0; i < C.v_panels(); ++i)
      tma_load(to + i * (C.tile_k * 128), at.v, at.v_full + 8 * v.stage, i * 64, sequence.k_row + block * C.tile_k,
               kv_head * p.v_map.head, work.batch * p.v_map.batch, policy);
  }
  v.next();
}

}  // namespace heed::kernels
