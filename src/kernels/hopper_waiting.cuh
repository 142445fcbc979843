// How the math warps of the Hopper forward kernel wait. Without a copying warp a thread of one of them copies meanwhile: the
// same tiles in the same order as the copying warp sends them, one at a time.
#pragma once

#include "hopper_copies.cuh"
#include "hopper_rows.cuh"
#include "hopper_tiles.cuh"
#include "ptx.cuh"
#include "ring.cuh"

namespace heed::kernels {

/// All copies of a thread block, one after the other.
template <HopperConfig C>
struct CopyStream {
  enum What : int { kTile, kQ, kFirstK, kK, kV, kDone };

  Ring<C.q_buffers> q;
  Ring<C.k_stages> k;
  Ring<C.v_stages> v;
  int tile = blockIdx.x, next_tile = 0;
  int what = kTile, warpgroup = 0;  ///< what is copied next; for Q: for whom
  int k_block = 0, v_block = 0;     ///< -1: no more of this tile
  TileWork work{};
  KeyBlocks blocks{};

  /// Sends whatever has a free place. Never waits.
  __device__ __forceinline__ void pump(const ForwardParams& p, const CopyPlaces& at) {
#pragma unroll 1
    while (what != kDone && send(p, at)) {
    }
  }

 private:
  /// False: the place of what comes next is not free yet.
  __device__ __forceinline__ bool send(const ForwardParams& p, const CopyPlaces& at) {
    constexpr int kN = C.tile_k;
    const Sequence sequence = sequence_of_tile<C>(p, work);
    const int kv_head = kv_head_of<C.features>(p, work);
    if (what == kTile) {
      const int tiles = p.row_tiles * heads_of_tiles<C.features>(p) * p.batch;
      if (tile < tiles) {
        work = tile_number<C>(p, tile);
        next_tile = C.persistence == Persistence::one_tile ? 0x7fffffff
                    : C.persistence == Persistence::fixed  ? tile + gridDim.x
                                                           : gridDim.x + atomicAdd(p.counter, 1u);
        const Sequence rows = sequence_of_tile<C>(p, work);
        blocks = blocks_of<C>(rows, work.row_tile * C.tile_rows(), (work.row_tile + 1) * C.tile_rows());
        k_block = first_block<C>(p, blocks, work, rows);
        what = C.q_buffers == 1 ? kFirstK : kQ;
      } else {
        // As in the copying warp: whoever was sent behind the end by the last ticket leaves the counter at zero.
        if (C.persistence == Persistence::dynamic && tile == int(gridDim.x) + tiles - 1)
          *static_cast<volatile u32*>(p.counter) = 0;
        work.row_tile = -1;
        what = kQ;
      }
      warpgroup = 0;
    } else if (what == kQ) {
      const u32 slot = q.stage * C.warpgroups + warpgroup;
      if (!mbarrier_test(at.q_empty + 8 * slot, q.phase ^ 1)) return false;
      put_work<C>(at.works[slot], work, work.row_tile);
      if (work.row_tile < 0) {
        mbarrier_arrive(at.q_full + 8 * slot);
      } else {
        mbarrier_arrive_expect(at.q_full + 8 * slot, 64 * 128 * C.panels());
        load_q_rows<C>(at.base + slot * C.q_bytes(), at.q, at.q_full + 8 * slot, p, sequence, work,
                       work.row_tile * C.tile_rows() + warpgroup * 64, drop_from_l2());
      }
      if (++warpgroup == C.warpgroups) {
        q.next();
        what = work.row_tile < 0 ? kDone : C.q_buffers == 1 ? kK : kFirstK;
      }
    } else if (what == kFirstK || what == kK) {
      if (what == kK && k_block < 0) {
        what = kV;
        return true;
      }
      if (!mbarrier_test(at.k_empty + 8 * k.stage, k.phase ^ 1)) return false;
      mbarrier_arrive_expect(at.k_full + 8 * k.stage, C.k_bytes());
#pragma unroll
      for (int i = 0; i < C.panels(); ++i)
        tma_load(at.base + C.k_at() + k.stage * C.k_bytes() + i * (kN * 128), at.k, at.k_full + 8 * k.stage, i * 64,
                 k_block * kN, kv_head * p.k_map.head, work.batch * p.k_map.batch, keep_in_l2());
      k.next();
      if (what == kFirstK) {
        v_block = k_block;
        k_block = next_block<C>(p, blocks, work, sequence, k_block);
        what = C.q_buffers == 1 ? kQ : kK;
      } else {
        what = kV;
      }
    } else {
      if (!mbarrier_test(at.v_empty + 8 * v.stage, v.phase ^ 1)) return false;
      mbarrier_arrive_expect(at.v_full + 8 * v.stage, C.v_bytes());
      const u32 to = at.base + C.v_at() + v.stage * C.v_bytes();
#pragma unroll
      for (int i = 0; i < (C.v_by_columns ? C.key_panels() : C.v_panels()); ++i)
        tma_load(to + i * ((C.v_by_columns ? C.d_v : kN) * 128), at.v, at.v_full + 8 * v.stage,
                 C.v_by_columns ? v_block * kN + i * 64 : i * 64, C.v_by_columns ? 0 : v_block * kN,
                 kv_head * p.v_map.head, work.batch * p.v_map.batch, keep_in_l2());
      v.next();
      if (k_block < 0) {
        tile = next_tile;
        what = kTile;
      } else {
        v_block = k_block;
        k_block = next_block<C>(p, blocks, work, sequence, k_block);
        what = kK;
      }
    }
    return true;
  }
};

/// How a math warp waits for a barrier. With a copying warp there is nothing else to do meanwhile.
template <HopperConfig C, bool = C.specialised>
struct Waiting {
  __device__ __forceinline__ Waiting(const ForwardParams&, const CopyPlaces&, bool) {}
  __device__ __forceinline__ void wait(u32 barrier, u32 parity) { mbarrier_wait(barrier, parity); }
  __device__ __forceinline__ void finish() {}
};
/// Without one, a thread of one warp sends copies while that warp waits.
template <HopperConfig C>
struct Waiting<C, false> {
  const ForwardParams& p;
  CopyPlaces places;
  bool copies;  ///< this warp does
  CopyStream<C> stream;

  __device__ __forceinline__ Waiting(const ForwardParams& params, const CopyPlaces& at, bool is_the_one)
      : p(params), places(at), copies(is_the_one) {}
  __device__ __forceinline__ void wait(u32 barrier, u32 parity) {
    if (!copies) return mbarrier_wait(barrier, parity);
    do {
      if (elect_one()) stream.pump(p, places);
      __syncwarp();
    } while (!mbarrier_test(barrier, parity));
  }
  /// Others still wait for their copies, and for the word that there is no more work.
  __device__ __forceinline__ void finish() {
    if (copies && elect_one())
      while (stream.what != CopyStream<C>::kDone) stream.pump(p, places);
  }
};

}  // namespace heed::kernels
