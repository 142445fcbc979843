// What the Hopper backward kernels compute when, and the products that they share. C is the configuration of any of them.
#pragma once

#include "backward_features.cuh"
#include "backward_params.h"
#include "mma.cuh"
#include "portable_backward_careful.cuh"
#include "ring.cuh"
#include "wgmma.cuh"

namespace heed::kernels {

/// A tile of keys, as the copying warp hands it to the others together with its K.
struct alignas(64) KeyTile {
  int tile;  ///< -1: no more work
  int head, batch;
  int q_row, k_row, s_q, s_k;  ///< of its sequence
  int first_block, end_block;  ///< of queries
  int row_block;               ///< of the sequence's first query, in the workspace

  __device__ __forceinline__ void set(const KeyTile& work, bool done) volatile {
    tile = done ? -1 : work.tile;
    head = work.head;
    batch = work.batch;
    q_row = work.q_row;
    k_row = work.k_row;
    s_q = work.s_q;
    s_k = work.s_k;
    first_block = work.first_block;
    end_block = work.end_block;
    row_block = work.row_block;
  }
};

/// Where a thread block's tile number so-and-so has its K and V, and what is known of it. One before the first has
/// barriers for which a wait ends at once.
template <auto C>
struct TileTurn : RingTurn<C.k_stages()> {  // of K
  u32 slot;
  __device__ __forceinline__ explicit TileTurn(u32 tile_count)
      : RingTurn<C.k_stages()>(tile_count),
        slot(tile_count % work_slots(C.k_stages())) {}
  __device__ __forceinline__ u32 k_at() const { return this->stage * C.k_bytes(); }
  __device__ __forceinline__ u32 v_at() const {
    if constexpr (C.swaps_k_and_v()) {
      return (this->stage ^ 1) * C.k_bytes();
    } else {
      return C.v_at() + (C.v_with_k() ? this->stage * C.k_bytes() : 0);
    }
  }
};

/// The last entry (of a batch, of a list of tiles) that begins at or before `place`; entries begin in rising order.
template <class Place, class Begin>
HEED_DEVICE int last_that_begins(int entries, Place place, const Begin& begin_of) {
  int low = 0, high = entries;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (begin_of(middle) <= place) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// Where the rows of batch entry b begin in the workspace, in blocks of kM. Group mode: sequences begin at whole blocks,
/// and each has one more than its rows fill.
template <ForwardFeatures F, int kM>
HEED_DEVICE int row_block_of(const BackwardParams& p, int b) {
  if (F.own_lengths && p.forward.start_q.data)
    return (min(index_at(p.forward.start_q, b), p.forward.s_q) + b * kM) / kM;
  return b * p.row_blocks;
}

/// Where the keys of batch entry b begin in the key_space of the parts' sums: every sequence at a whole tile.
template <auto C>
HEED_DEVICE i64 key_sum_row(const BackwardParams& p, int b) {
  if (C.features.own_lengths && p.forward.start_k.data)
    return i64(min(index_at(p.forward.start_k, b), p.forward.s_k) / C.kTileK + b) * C.kTileK;
  return i64(b) * p.key_tiles * C.kTileK;
}

/// Tile number t -> its keys; numbers are asked for in rising order. Under a right mask the tiles with the most queries
/// come first within sections of heads that share the second-level cache; sequences with their own lengths are sections.
/// Without one a head's tiles follow each other. In any case a tile comes behind those whose turn at dQ is before its own.
template <auto C>
struct KeyTileSearch {
  int batch = 0, tiles_before = 0;  // own lengths only

  __device__ __forceinline__ bool find(const BackwardParams& params, int t, KeyTile& work) {
    constexpr ForwardFeatures F = C.features;
    const ForwardParams& p = params.forward;
    const int heads = p.heads / p.group;
    Sequence q;
    if constexpr (F.own_lengths) {
      int in = 0, of_head = 0;  // tiles
      while (true) {
        if (batch >= p.batch) return false;
        q = lengths_of<F>(p, batch);
        of_head = (q.s_k + C.kTileK - 1) / C.kTileK;
        const int tiles = of_head * heads;
        in = t - tiles_before;
        if (in < tiles) break;
        tiles_before += tiles;
        ++batch;
      }
      work.batch = batch;
      if constexpr (F.mask == MaskShape::right || C.ordered) {
        const int tile = in / heads;
        work.head = in - tile * heads;
        work.tile = C.last_tile_first() ? of_head - 1 - tile : tile;
      } else {
        work.head = in / of_head;
        work.tile = in - work.head * of_head;
      }
    } else {
      const int pairs = heads * p.batch;
      if (t >= pairs * params.key_tiles) return false;
      q = lengths_of<F>(p, 0);
      const int section = t / (params.section * params.key_tiles), before = section * params.section;
      const int in = t - before * params.key_tiles, count = min(pairs - before, params.section);
      const int tile = in / count, pair = before + in - tile * count;
      work.tile = C.last_tile_first() ? params.key_tiles - 1 - tile : tile;
      work.batch = pair / heads;
      work.head = pair - work.batch * heads;
    }
    q = with_mask<F>(p, q);
    const QueryBlocks blocks =
        query_blocks<F, C.tile_q>(q, work.tile * C.kTileK, work.tile * C.kTileK + C.kTileK);
    work.q_row = q.q_row;
    work.k_row = q.k_row;
    work.s_q = q.s_q;
    work.s_k = q.s_k;
    work.first_block = blocks.first;
    work.end_block = blocks.end;
    work.row_block = row_block_of<F, C.tile_q>(params, work.batch);
    return true;
  }
};

/// The steps of a tile: the blocks of queries of the group's first head, then of the next. From the last block to the
/// first where tiles add to dQ from the first tile to the last: under a right mask all tiles have the last block, and
/// each follows the one before at a distance. Under a window the last tile goes first: it begins behind the others'
/// first blocks, and is past a block when they come to it.
template <auto C>
struct TileSteps {
  static constexpr bool kDown = C.ordered && !C.last_tile_first();
  int block, head;  ///< of the current step
  int first, end;   ///< where a head begins, and the block behind its last

  __device__ __forceinline__ TileSteps(int first_block, int end_block, int first_head)
      : head(first_head), first(kDown ? end_block - 1 : first_block), end(kDown ? first_block - 1 : end_block) {
    block = first;
  }
  __device__ __forceinline__ void next() {
    block += kDown ? -1 : 1;
    if (block == end) {
      block = first;
      ++head;
    }
  }
};

// c [64 keys x tile_q] = A [64 keys x d] B [tile_q x d]^T
template <auto C, class T>
HEED_DEVICE void multiply_scores(float (&c)[C.tile_q / 2], u64 a, u64 b) {
  WgmmaMajor<T, C.tile_q>::template first<false, false>(c, a, b);
#pragma unroll
  for (int i = 1; i < C.d / 16; ++i)
    WgmmaMajor<T, C.tile_q>::template add<false, false>(c, a + (i % 4) * 2 + (i / 4) * (C.kTileK * 128 / 16),
                                                        b + (i % 4) * 2 + (i / 4) * (C.tile_q * 128 / 16));
}
// c [64 keys x d] += A [64 keys x tile_q] (registers) B [tile_q x d]; kFirst: c = A B
template <auto C, class T, bool kFirst = false>
HEED_DEVICE void multiply_gradient(float (&c)[C.d / 2], const u32 (&a)[C.tile_q / 4], u64 b) {
  if constexpr (kFirst) WgmmaFirst<T, C.d>::registers_shared(c, a[0], a[1], a[2], a[3], b);
#pragma unroll
  for (int i = kFirst ? 1 : 0; i < C.tile_q / 16; ++i)
    Wgmma<T, C.d>::template registers_shared<true>(c, a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3],
                                                   b + i * (16 * 128 / 16), 1);
}
/// Whether dropout took the entry, as make_weights marks it.
HEED_DEVICE bool lost(float weight) { return __float_as_int(weight) < 0; }

/// S^T of 64 keys by tile_q queries -> P^T: 16 bits in `weights`, and in s what dS is made of: P times the soft cap's
/// slope, negative where dropout took the entry. lse_at: where this thread's LSEs of the first 16 queries lie. `entries`,
/// BlockEntries, were fetched before. Of queries [16 * kFrom, 16 * kTo), which are asked for in rising order.
template <auto C, class T, int kFrom = 0, int kTo = C.tile_q / 16, class Entries>
HEED_DEVICE void make_weights(const ForwardParams& p, const Sequence& sequence, int batch, int head, int first_query,
                              int first_key, u32 warp, u32 lane, const DropKey& drop_keys, u32 lse_at,
                              Entries& entries, float (&s)[C.tile_q / 2], u32 (&weights)[C.tile_q / 4]) {
  constexpr ForwardFeatures F = C.features;
  const int warp_key = first_key + int(warp) * 16;
  const EntryPlace place{batch, head, first_query, warp_key, int(lane)};
  KeyFeatures<F, T> keys;
  keys.set(p, batch, head, warp_key + int(lane) / 4);
  if constexpr (kFrom == 0) {
    if (F.blocks || hides_some<F, C.tile_q>(sequence, first_query, first_key))
      hide<F, T>(p, sequence, keys, s, first_query, lane);
    if constexpr (F.soft_cap) cap_scores<F>(p, s);
  }
  // Of this thread's first query from its first key.
  const float distance = float(first_query + int(lane % 4) * 2 + sequence.s_k - sequence.s_q - keys.key);
#pragma unroll
  for (int i = kFrom; i < kTo; ++i) {
    float lse[4], slopes[8], bias[8];
    load_shared(lse, lse_at + i * 64);
    if constexpr (F.bias != BiasType::none) {
      const auto& added = entries.bias_of(p, sequence, place, i);
#pragma unroll
      for (int e = 0; e < 8; ++e) bias[e] = entries.value(added.at(e >> 2, e >> 1 & 1, e & 1));
    }
    if constexpr (F.keep) {
      const auto& kept = entries.keep_of(p, sequence, place, i);
#pragma unroll
      for (int e = 0; e < 8; ++e)
        if (kept.at(e >> 2, e >> 1 & 1, e & 1) == 0) s[8 * i + e] = -HEED_INFINITY;
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float reference = lse[(e & 1) + (e >> 2) * 2];
      float& x = s[8 * i + e];
      if constexpr (F.changes_scores()) {
        const Score score = score_of<F, T>(p, keys, x, F.bias != BiasType::none ? bias[e] : 0.0f,
                                           distance + float(16 * i + (e >> 2) * 8 + (e & 1) - (e >> 1 & 1) * 8));
        x = exp2_approx(score.value - reference);
        slopes[e] = score.slope;
      } else {
        x = exp2_approx(__fmaf_rn(x, p.scale_log2, -reference));
      }
    }
    if constexpr (F.dropout) {
      DropWords words;
      words.draw(drop_keys, batch * p.heads + head, first_query + 16 * i, first_key + warp * 16, lane);
#pragma unroll
      for (int e = 0; e < 8; ++e)
        if (words.lost(e >> 2, e >> 1 & 1, e & 1, p.drop_threshold)) s[8 * i + e] = -s[8 * i + e];
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float a = s[8 * i + 2 * e], b = s[8 * i + 2 * e + 1];
      weights[4 * i + e] = F.dropout ? pack<T>(lost(a) ? 0.0f : a, lost(b) ? 0.0f : b) : pack<T>(a, b);
    }
    if constexpr (F.soft_cap) {
#pragma unroll
      for (int e = 0; e < 8; ++e) s[8 * i + e] *= slopes[e];
    }
  }
}

/// What dS is of, and dP^T -> dS^T of 16 queries. dot_at: where this thread's Ds of these queries lie.
template <ForwardFeatures F, class T>
HEED_DEVICE void make_gradient(const ForwardParams& p, u32 dot_at, const float* weights, const float* dp, u32* ds) {
  float dot[4], x[8];
  load_shared(dot, dot_at);
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const float d = dot[(e & 1) + (e >> 2) * 2];
    if constexpr (F.dropout) {
      x[e] = fabsf(weights[e]) * (lost(weights[e]) ? -d : __fmaf_rn(dp[e], p.drop_scale, -d));
    } else {
      x[e] = weights[e] * (dp[e] - d);
    }
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) ds[e] = pack<T>(x[2 * e], x[2 * e + 1]);
}
template <auto C, class T>
HEED_DEVICE void make_gradients(const ForwardParams& p, u32 dot_at, const float (&s)[C.tile_q / 2],
                                const float (&dp)[C.tile_q / 2], u32 (&ds)[C.tile_q / 4]) {
#pragma unroll
  for (int i = 0; i < C.tile_q / 16; ++i)
    make_gradient<C.features, T>(p, dot_at + i * 64, s + 8 * i, dp + 8 * i, ds + 4 * i);
}

/// In each 16 rows the order in which a thread of the main kernel wants their LSEs and Ds: its four side by side.
HEED_DEVICE int place_in_16(int row) { return row % 8 / 2 * 4 + row % 16 / 8 * 2 + row % 2; }

/// Where the Hopper family keeps the LSE and D of rows of a sequence whose first block in the workspace is this.
template <auto C>
struct BlockRows {
  const BackwardParams& p;
  const int row_block;
  __device__ __forceinline__ i64 operator()(int head, int i) const {
    const i64 block = head * (p.row_space / C.tile_q) + row_block + i / C.tile_q;
    return block * C.tile_q + i % C.tile_q / 16 * 16 + place_in_16(i);
  }
};

/// Where a warp's part of dQ waits to be added: the warps of a warpgroup side by side, and in 16 bits in the first half of
/// the warpgroup's memory.
template <auto C>
HEED_DEVICE u32 staged_dq_at(u32 warpgroup, u32 warp) {
  if constexpr (C.dq_in_16_bits) return warpgroup * (4 * C.dq_chunks() * 512) + warp * (C.sum_chunks() * 512);
  return (warpgroup * 4 + warp) * (C.dq_chunks() * 512);
}
/// This thread's part of dQ -> the memory that it is added from, [chunk][lane][16 bytes] of its warp. In 16 bits it is
/// scaled before: f16 might not hold it else, and nothing is left to do afterwards.
template <auto C, class T, int R>
HEED_DEVICE void stage_dq(const float (&dq)[R], u32 to, float scale) {
#pragma unroll
  for (int j = 0; j < C.sum_chunks(); ++j) {
    if constexpr (C.dq_in_16_bits) {
      u32 eight[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) eight[i] = pack<T>(dq[8 * j + 2 * i] * scale, dq[8 * j + 2 * i + 1] * scale);
      store_shared(to + j * 512, eight);
    } else {
      const float four[4] = {dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]};
      store_shared(to + j * 512, four);
    }
  }
}
/// Adds so many elements to the sum of dQ, from element `at` on.
template <auto C>
HEED_DEVICE void add_staged_dq(const BackwardParams& p, i64 at, u32 from, int elements, u64 policy) {
  if constexpr (C.dq_in_16_bits) {
    bulk_add<typename TagOf<C.type>::Type>(static_cast<u16*>(p.dq_sum) + at, from, elements * 2, policy);
  } else {
    bulk_add<f32>(static_cast<float*>(p.dq_sum) + at, from, elements * 4, policy);
  }
}

}  // namespace heed::kernels
