// What the Hopper forward kernel computes when: tiles of query rows in their order, and the key blocks of each.
#pragma once

#include "forward_features.cuh"
#include "hopper_config.h"

namespace heed::kernels {

/// A tile of query rows, as the copying warp hands it to the math warpgroups together with its Q.
struct alignas(16) TileWork {
  int row_tile;  ///< -1: no more work
  int head, batch;
  int q_row, k_row, s_q, s_k;  ///< own lengths only
  int unused;
};

/// Key blocks of some rows, from the last to the first: those of the window, [low, high], then the sink columns'.
struct KeyBlocks {
  int high, low, sinks;

  __device__ __forceinline__ int next(int n) const { return n == low ? min(low, sinks) - 1 : n - 1; }
  __device__ __forceinline__ int last() const { return sinks > 0 ? 0 : low; }
};
/// At least one block: rows that see nothing are written, too.
template <HopperConfig C>
HEED_DEVICE KeyBlocks blocks_of(const Sequence& q, int first_row, int end_row) {
  const int last_row = max(min(end_row, q.s_q) - 1, first_row);
  const int keys = C.features.mask == MaskShape::none ? q.s_k : q.end(last_row);
  KeyBlocks blocks{max((keys + C.tile_k - 1) / C.tile_k, 1) - 1, 0, 0};
  if constexpr (C.features.mask == MaskShape::window) {
    blocks.low = min(q.begin(first_row) / C.tile_k, blocks.high);
    blocks.sinks = (min(q.sink, q.s_k) + C.tile_k - 1) / C.tile_k;
  }
  return blocks;
}

/// Tile number t -> (row tile, head, batch), where all sequences have the same length.
/// Right mask: the longest rows first within sections of heads that share the L2 cache, then the light rows of all
/// heads. Otherwise the rows of a head in order.
template <HopperConfig C>
HEED_DEVICE TileWork tile_number(const ForwardParams& p, int t) {
  TileWork work{};
  int pair;
  if constexpr (C.features.mask == MaskShape::right) {
    const int pairs = p.heads * p.batch;
    int rows = p.row_tiles - p.light, section = p.section, top = p.row_tiles - 1;
    if (t >= pairs * rows) {
      t -= pairs * rows;
      rows = p.light;
      top = p.light - 1;
      section *= 2;
    }
    const int at = t / (section * rows), in = t - at * section * rows;
    const int n = min(pairs - at * section, section);
    const int row = in / n;
    work.row_tile = top - row;
    pair = at * section + in - row * n;
  } else {
    pair = t / p.row_tiles;
    work.row_tile = t - pair * p.row_tiles;
  }
  work.batch = pair / p.heads;
  work.head = pair - work.batch * p.heads;
  return work;
}

/// The same for sequences with lengths of their own, by a whole warp: lane l knows batch entry first_batch + l. Tile
/// numbers are asked for in rising order.
template <HopperConfig C>
struct TileSearch {
  int first_batch = 0, tiles_before = 0;

  /// False: there are fewer tiles than that, and tiles_before is their number.
  __device__ __forceinline__ bool find(const ForwardParams& p, int t, int lane, TileWork& work) {
    while (first_batch < p.batch) {
      const int b = first_batch + lane;
      const Sequence q = lengths_of<C.features>(p, min(b, p.batch - 1));
      const int row_tiles = (q.s_q + C.tile_q() - 1) / C.tile_q();
      int upto = b < p.batch ? row_tiles * p.heads : 0;  // tiles of the entries up to this lane's
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int below = __shfl_up_sync(0xffffffffu, upto, step);
        if (lane >= step) upto += below;
      }
      const u32 beyond = __ballot_sync(0xffffffffu, tiles_before + upto > t);
      if (beyond != 0) {
        const int at = __ffs(beyond) - 1;
        const int rows = __shfl_sync(0xffffffffu, row_tiles, at);
        const int in = t - tiles_before - __shfl_sync(0xffffffffu, upto, at) + rows * p.heads;
        work.batch = first_batch + at;
        work.head = C.features.mask == MaskShape::none ? in / rows : in % p.heads;
        work.row_tile = C.features.mask == MaskShape::none ? in % rows : rows - 1 - in / p.heads;
        work.q_row = __shfl_sync(0xffffffffu, q.q_row, at);
        work.k_row = __shfl_sync(0xffffffffu, q.k_row, at);
        work.s_q = __shfl_sync(0xffffffffu, q.s_q, at);
        work.s_k = __shfl_sync(0xffffffffu, q.s_k, at);
        return true;
      }
      tiles_before += __shfl_sync(0xffffffffu, upto, 31);
      first_batch += 32;
    }
    return false;
  }
};

template <HopperConfig C>
HEED_DEVICE Sequence sequence_of_tile(const ForwardParams& p, const TileWork& work) {
  Sequence q = lengths_of<ForwardFeatures{}>(p, 0);
  if constexpr (C.features.own_lengths) {
    q.q_row = work.q_row;
    q.k_row = work.k_row;
    q.s_q = work.s_q;
    q.s_k = work.s_k;
  }
  return with_mask<C.features>(p, q);
}

}  // namespace heed::kernels
