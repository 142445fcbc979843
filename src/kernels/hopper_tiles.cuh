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

template <HopperConfig C>
HEED_DEVICE TileWork work_at(const volatile TileWork& there) {
  TileWork work{};
  work.row_tile = there.row_tile;
  work.head = there.head;
  work.batch = there.batch;
  if constexpr (C.features.own_lengths) {
    work.q_row = there.q_row;
    work.k_row = there.k_row;
    work.s_q = there.s_q;
    work.s_k = there.s_k;
  }
  return work;
}
/// The other way round; row_tile -1 tells that there is no more work.
template <HopperConfig C>
HEED_DEVICE void put_work(volatile TileWork& there, const TileWork& work, int row_tile) {
  there.row_tile = row_tile;
  there.head = work.head;
  there.batch = work.batch;
  if constexpr (C.features.own_lengths) {
    there.q_row = work.q_row;
    there.k_row = work.k_row;
    there.s_q = work.s_q;
    there.s_k = work.s_k;
  }
}

/// Key blocks of some rows, from the last to the first: those of the window, [low, high], then the sink columns'.
struct KeyBlocks {
  int high, low, sinks;

  __device__ __forceinline__ int next(int n) const { return n == low ? min(low, sinks) - 1 : n - 1; }
  __device__ __forceinline__ int last() const { return sinks > 0 ? 0 : low; }
};
/// At least one block: rows that see nothing are written, too.
template <HopperConfig C>
HEED_DEVICE KeyBlocks blocks_of(const Sequence& q, int first_row, int end_row) {
  const int last_row = max(min(end_row, q.rows()) - 1, first_row);
  const int keys = C.features.mask == MaskShape::none ? q.s_k : q.end(q.query(last_row));
  KeyBlocks blocks{max((keys + C.tile_k - 1) / C.tile_k, 1) - 1, 0, 0};
  if constexpr (C.features.mask == MaskShape::window) {
    blocks.low = min(q.begin(q.query(first_row)) / C.tile_k, blocks.high);
    blocks.sinks = (min(q.sink, q.s_k) + C.tile_k - 1) / C.tile_k;
  }
  return blocks;
}

/// A block mask hides this key block from every row of the tile. Where that takes many looks it counts as seen: a mask of
/// small blocks is read entry by entry later. The copying warp and the math warpgroups ask alike and find the same.
template <HopperConfig C>
HEED_DEVICE bool hidden_by_block_mask(const ForwardParams& p, const TileWork& work, const Sequence& q, int n) {
  constexpr int kMostLooks = 16;
  const int first_row = work.row_tile * C.tile_rows(), last_row = min(first_row + C.tile_rows(), q.s_q) - 1;
  const int last_key = min((n + 1) * C.tile_k, q.s_k) - 1;
  // No tile (the math warpgroups ask for what comes behind the last one, too), no rows, or no keys: nothing to look at.
  if (work.row_tile < 0 || last_row < first_row || last_key < n * C.tile_k) return false;
  const int row0 = first_row / p.block_q, rows = last_row / p.block_q - row0 + 1;
  const int key0 = n * C.tile_k / p.block_k, keys = last_key / p.block_k - key0 + 1;
  if (rows * keys > kMostLooks) return false;
  const u8* at = p.blocks + work.batch * p.block_steps.batch + work.head * p.block_steps.head +
                 row0 * p.block_steps.row + key0 * p.block_steps.column;
  bool seen = false;
#pragma unroll 1
  for (int i = 0; i < rows * keys; ++i)
    seen = seen || at[i / keys * p.block_steps.row + i % keys * p.block_steps.column] != 0;
  return !seen;
}
/// The first key block of a tile, and the one behind block n; -1: none. What a block mask hides is left out, but for one
/// block, which every tile has.
template <HopperConfig C>
HEED_DEVICE int next_block(const ForwardParams& p, const KeyBlocks& blocks, const TileWork& work, const Sequence& q,
                           int n) {
  n = blocks.next(n);
  if constexpr (C.features.blocks) {
#pragma unroll 1
    while (n >= 0 && hidden_by_block_mask<C>(p, work, q, n)) n = blocks.next(n);
  }
  return n;
}
template <HopperConfig C>
HEED_DEVICE int first_block(const ForwardParams& p, const KeyBlocks& blocks, const TileWork& work, const Sequence& q) {
  if constexpr (C.features.blocks) {
    if (hidden_by_block_mask<C>(p, work, q, blocks.high)) {
      const int n = next_block<C>(p, blocks, work, q, blocks.high);
      if (n >= 0) return n;
    }
  }
  return blocks.high;
}

/// The last one, from block n on.
template <HopperConfig C>
HEED_DEVICE int last_block_of(const ForwardParams& p, const KeyBlocks& blocks, const TileWork& work, const Sequence& q,
                              int n) {
  if constexpr (C.features.blocks && C.own_o_memory) {  // nobody else asks
    int last = n;
#pragma unroll 1
    for (; n >= 0; n = next_block<C>(p, blocks, work, q, n)) last = n;
    return last;
  } else {
    return blocks.last();
  }
}

/// The first block that a warpgroup's 64 rows need of those of their tile, which begin with block n: those before are
/// handed on.
template <HopperConfig C>
HEED_DEVICE int first_block_of_rows(const Sequence& q, const KeyBlocks& blocks, int first_row, int n) {
  if (C.warpgroups * C.cluster == 1 || C.features.blocks) return n;
  int mine = C.features.mask == MaskShape::none ? n : blocks_of<C>(q, first_row, first_row + 64).high;
  if (first_row >= q.rows()) mine = blocks.last();  // no rows at all: one block, for the flow's sake
  return mine;
}
/// Blocks before a window that only other warpgroups need are handed on, too, unless sink columns come behind them.
template <HopperConfig C>
HEED_DEVICE bool hands_on(const KeyBlocks& blocks) {
  return C.features.mask == MaskShape::window && C.warpgroups * C.cluster > 1 && !C.features.blocks && blocks.sinks == 0;
}

/// The heads that tiles are of: all query heads, or, where those of a group share tiles, the heads of K and V.
template <ForwardFeatures F>
HEED_DEVICE int heads_of_tiles(const ForwardParams& p) {
  return F.packed ? p.heads >> p.group_shift : p.heads;
}
template <ForwardFeatures F>
HEED_DEVICE int kv_head_of(const ForwardParams& p, const TileWork& work) {
  return F.packed ? work.head : work.head / p.group;
}

/// Tile number t -> (row tile, head, batch), where all sequences have the same length.
/// Right mask: the longest rows first within sections of heads that share the L2 cache, then the light rows of all
/// heads. Otherwise the rows of a head in order.
template <HopperConfig C>
HEED_DEVICE TileWork tile_number(const ForwardParams& p, int t) {
  TileWork work{};
  const int heads = heads_of_tiles<C.features>(p);
  int pair;
  if constexpr (C.features.mask == MaskShape::right) {
    const int pairs = heads * p.batch;
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
  work.batch = pair / heads;
  work.head = pair - work.batch * heads;
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
      const int row_tiles = (q.rows() + C.tile_q() - 1) / C.tile_q(), heads = heads_of_tiles<C.features>(p);
      int upto = b < p.batch ? row_tiles * heads : 0;  // tiles of the entries up to this lane's
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int below = __shfl_up_sync(0xffffffffu, upto, step);
        if (lane >= step) upto += below;
      }
      const u32 beyond = __ballot_sync(0xffffffffu, tiles_before + upto > t);
      if (beyond != 0) {
        const int at = __ffs(beyond) - 1;
        const int rows = __shfl_sync(0xffffffffu, row_tiles, at);
        const int in = t - tiles_before - __shfl_sync(0xffffffffu, upto, at) + rows * heads;
        work.batch = first_batch + at;
        work.head = C.features.mask == MaskShape::none ? in / rows : in % heads;
        work.row_tile = C.features.mask == MaskShape::none ? in % rows : rows - 1 - in / heads;
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
  Sequence q = lengths_of<ForwardFeatures{.packed = C.features.packed}>(p, 0);
  if constexpr (C.features.own_lengths) {
    q.q_row = work.q_row;
    q.k_row = work.k_row;
    q.s_q = work.s_q;
    q.s_k = work.s_k;
  }
  return with_mask<C.features>(p, q);
}

}  // namespace heed::kernels
