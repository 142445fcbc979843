// Which rows or keys a CTA of the portable family computes, and which blocks of the other side see them.
#pragma once

#include "forward_features.cuh"
#include "mma.cuh"

namespace heed::kernels {

struct PortableTile {
  int row_tile, head, batch;
};

/// Rows of a head one after the other. Under a right mask p.section heads go together, their rows with the most keys
/// first.
template <MaskShape kMask>
HEED_DEVICE PortableTile portable_tile(const ForwardParams& p, i64 tile) {
  i64 pair, row;
  if constexpr (kMask == MaskShape::right) {
    const i64 pairs = i64(p.batch) * p.heads, section = max(p.section, 1);
    const i64 before = tile / (section * p.row_tiles) * section;
    const i64 heads = min(pairs - before, section), in_section = tile - before * p.row_tiles;
    row = p.row_tiles - 1 - in_section / heads;
    pair = before + in_section % heads;
  } else {
    pair = tile / p.row_tiles;
    row = tile % p.row_tiles;
  }
  return {int(row), int(fresh(u32(pair % p.heads))), int(fresh(u32(pair / p.heads)))};  // 32 bits, or the other 32 stay
}

/// The blocks of keys that rows [first_row, last_row] see some of, the last one first:
/// [first, last) of the window, then [0, sinks) of the sink columns.
struct KeyBlocks {
  int last, first, sinks, count;

  template <ForwardFeatures F, int kN>
  __device__ __forceinline__ void set(const Sequence& q, int first_row, int last_row) {
    const int end = F.mask == MaskShape::none ? q.s_k : q.end(last_row);
    last = (end + kN - 1) / kN;
    first = F.mask == MaskShape::window ? min(q.begin(first_row) / kN, last) : 0;
    sinks = F.mask == MaskShape::window ? min((q.sink_end(last_row) + kN - 1) / kN, first) : 0;
    count = last - first + sinks;
  }
  __device__ __forceinline__ int at(int i) const {
    const int block = last - 1 - i;
    return block >= first ? block : block - first + sinks;
  }
};

/// The query rows [begin, end) that see some of the keys [first_key, last_key].
struct QueryRange {
  int begin, end;

  template <ForwardFeatures F>
  __device__ __forceinline__ void set(const Sequence& q, int first_key, int last_key) {
    begin = F.mask == MaskShape::none ? 0 : max(first_key - q.x + 1, 0);
    end = F.mask == MaskShape::window && first_key >= q.sink ? min(last_key + q.y, q.s_q) : q.s_q;
  }
};

/// A tile of keys.
struct KeyPlace {
  int tile, kv_head, batch;
};

/// Tiles of a head one after the other. Under a right mask p.section heads go together, their first keys, which most
/// rows see, first.
template <MaskShape kMask>
HEED_DEVICE KeyPlace key_place(const ForwardParams& p, i64 tile) {
  const int kv_heads = p.heads / p.group;
  i64 pair = tile / p.row_tiles;
  int at = int(tile % p.row_tiles);
  if constexpr (kMask == MaskShape::right) {
    const i64 pairs = i64(p.batch) * kv_heads, section = max(p.section, 1);
    const i64 before = tile / (section * p.row_tiles) * section;
    const i64 heads = min(pairs - before, section), in_section = tile - before * p.row_tiles;
    at = int(in_section / heads);
    pair = before + in_section % heads;
  }
  return {at, int(pair % kv_heads), int(pair / kv_heads)};
}

}  // namespace heed::kernels
