// What a CTA of the portable backward pass with five products knows of its tile of keys, of the blocks of query rows that
// see one of them, and of where it has what: in shared memory, so that little is left to do between two blocks.
#pragma once

#include "portable_backward_features.cuh"
#include "portable_backward_tiles.cuh"
#include "portable_schedule.cuh"

namespace heed::kernels {

/// What a CTA knows of its tile of keys: in shared memory, and read where it is used, since the sums have the
/// registers.
struct alignas(16) TileState {
  Sequence q;
  i64 tile;  ///< its number
  int kv_head, batch, first_key;
  int first_row, end_row;  ///< of the blocks of query rows that see one of the keys
  u32 spoilt;  ///< bits 2 * g and 2 * g + 1: dK and dV of the g-th 16 keys have met a hidden row that is no number
};

/// What is the same for all blocks of rows of a tile, so that little is left to do between two of them.
struct alignas(16) BlockOrder {
  int of_head;  ///< blocks
  u32 inverse;  ///< 2^32 / of_head, or a little less
  int first_row;
  int rows;  ///< of the sequence
};
struct alignas(16) RowSources {  ///< of the group's first head, row 0
  const void *q, *d_o;
  const float *lse, *dot;
};
struct alignas(16) RowSums {
  float* dq;             ///< as RowSources
  int all_from, all_to;  ///< rows between these see all keys of the tile, which are all there
};
struct TileBlocks {
  BlockOrder order;
  RowSources sources;
  RowSums sums;
};
static_assert(sizeof(TileState) + sizeof(TileBlocks) == kTileStateBytes);

template <class X>
HEED_DEVICE X read_anew(u32 from) {
  X x;
  u32* const words = reinterpret_cast<u32*>(&x);
#pragma unroll
  for (u32 i = 0; i < sizeof(X) / 16; ++i) {
    u32 four[4];
    load_anew(four, from + 16 * i);
#pragma unroll
    for (int j = 0; j < 4; ++j) words[4 * i + j] = four[j];
  }
  return x;
}
HEED_DEVICE TileState tile_state_at(u32 from) { return read_anew<TileState>(from); }

/// A block of query rows. They come head by head.
struct HeadRows {
  int head;  ///< of the group
  int row;
};

/// The i-th block of a tile, without a division.
template <int kBlock>
HEED_DEVICE HeadRows block_rows(const BlockOrder& order, int i) {
  int head = int(u64(u32(i)) * order.inverse >> 32), block = i - head * order.of_head;  // or one head less
  if (block >= order.of_head) block -= order.of_head, ++head;
  return {head, order.first_row + block * kBlock};
}

/// Whether some of `rows` rows from first_row on see some of `keys` keys of the tile, from `key` on.
template <ForwardFeatures F>
HEED_DEVICE bool sees(const TileState& t, int first_row, int rows, int key, int keys) {
  const int first_key = t.first_key + key;
  QueryRange range;
  range.template set<F>(t.q, first_key, min(first_key + keys, t.q.s_k) - 1);
  return first_key < t.q.s_k && first_row < range.end && first_row + rows > range.begin;
}

/// How many pairs of some rows and some keys are visible.
enum class PairsSeen : int { none, some, all };
template <ForwardFeatures F>
HEED_DEVICE PairsSeen pairs_seen(const TileState& t, int first_row, int rows, int key, int keys) {
  if (!sees<F>(t, first_row, rows, key, keys)) return PairsSeen::none;
  const int first_key = t.first_key + key;
  const bool hidden = first_key + keys > (F.mask == MaskShape::none ? t.q.s_k : t.q.end(first_row)) ||
                      (F.mask == MaskShape::window && first_key < t.q.begin(first_row + rows - 1));
  return hidden ? PairsSeen::some : PairsSeen::all;
}

/// Where a CTA has what in shared memory.
template <PortableBackwardConfig C>
struct TogetherMemory {
  static constexpr u32 kBytes = C.element_bytes();
  static constexpr u32 kWeightBytes = C.block * C.tile() * kBytes;

  u32 k;  ///< [tile, d]
  /// [tile, d_v]
  __device__ __forceinline__ u32 v() const { return k + C.tile() * C.d * kBytes; }
  /// [block, d] and [block, d_v]
  __device__ __forceinline__ u32 q(u32 slot) const { return k + C.owned_bytes() + slot * C.block_bytes(); }
  __device__ __forceinline__ u32 d_o(u32 slot) const { return q(slot) + C.block * C.d * kBytes; }
  /// P and dS [block, tile]
  __device__ __forceinline__ u32 weights() const { return q(C.stages); }
  /// LSE [block] and D [block]
  __device__ __forceinline__ u32 stats(u32 slot) const { return weights() + C.weight_bytes() + slot * C.stats_bytes(); }
  /// TileState and TileBlocks
  __device__ __forceinline__ u32 state() const { return stats(C.stages); }
  __device__ __forceinline__ u32 blocks() const { return state() + sizeof(TileState); }

  __device__ __forceinline__ BlockOrder order() const { return read_anew<BlockOrder>(blocks()); }
  __device__ __forceinline__ RowSources sources() const {
    return read_anew<RowSources>(blocks() + sizeof(BlockOrder));
  }
  __device__ __forceinline__ RowSums sums() const {
    return read_anew<RowSums>(blocks() + sizeof(BlockOrder) + sizeof(RowSources));
  }
  /// Whether all rows of the block see all keys of the tile; the others must be asked one by one.
  __device__ __forceinline__ bool sees_all(int row) const {
    const RowSums s = sums();
    return row >= s.all_from && row + C.block <= s.all_to;
  }
};

/// What thread 0 finds out about the tile-th tile.
template <PortableBackwardConfig C>
HEED_DEVICE TileState new_tile(const ForwardParams& p, i64 tile) {
  const KeyPlace place = key_place<C.features.mask>(p, tile);
  TileState t;
  t.q = sequence_of<C.features>(p, place.batch);
  t.tile = tile;
  t.kv_head = place.kv_head;
  t.batch = place.batch;
  t.first_key = place.tile * C.tile();
  QueryRange range;
  range.template set<C.features>(t.q, t.first_key, min(t.first_key + C.tile(), t.q.s_k) - 1);
  t.first_row = range.begin / C.block * C.block;
  t.end_row = t.first_key < t.q.s_k ? range.end : 0;
  t.spoilt = 0;
  return t;
}

/// And what another thread makes of that.
template <PortableBackwardConfig C>
HEED_DEVICE TileBlocks blocks_of(const BackwardParams& bp, const TileState& t) {
  using T = typename TagOf<C.type>::Type;
  const ForwardParams& p = bp.forward;
  const int head = t.kv_head * p.group, of_head = max((t.end_row - t.first_row + C.block - 1) / C.block, 0);
  const i64 place = head * bp.row_space + row_start(p, t.q, t.batch);
  const bool all_keys = t.first_key + C.tile() <= t.q.s_k;
  TileBlocks b;
  b.order = {of_head, 0xffffffffu / u32(max(of_head, 1)), t.first_row, t.q.s_q};
  b.sources = {matrix_of<T>(p.q, p.q_steps, t.batch, head, t.q.q_row, 0, 0).data,
               matrix_of<T>(bp.d_o, bp.d_o_steps, t.batch, head, t.q.q_row, 0, 0).data, bp.row_lse + place,
               bp.row_dot + place};
  b.sums = {static_cast<float*>(bp.dq_sum) + place * C.d,
            C.features.mask == MaskShape::none ? 0 : t.first_key + C.tile() - t.q.x,
            !all_keys                              ? 0
            : C.features.mask == MaskShape::window ? t.first_key + t.q.y
                                                   : MaskParams::kUnlimited};
  return b;
}

/// Both, by two threads, of which others know after a barrier.
template <PortableBackwardConfig C>
HEED_DEVICE void set_tile(const BackwardParams& bp, i64 tile, void* state, u32 thread) {
  if (thread != 0 && thread != 32) return;
  const TileState t = new_tile<C>(bp.forward, tile);
  if (thread == 0) {
    *static_cast<TileState*>(state) = t;
  } else {
    *reinterpret_cast<TileBlocks*>(static_cast<TileState*>(state) + 1) = blocks_of<C>(bp, t);
  }
}

}  // namespace heed::kernels
