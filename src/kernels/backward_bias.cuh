// dBias as its kernels share it, those of the portable family and the one of Hopper: its tiles, what each of them sums and
// in which order, the bias in shared memory, and the way of the sums to global memory. C says how a kernel's warps share a
// tile: PortableBackwardConfig.
#pragma once

#include "portable_backward_features.cuh"
#include "portable_schedule.cuh"

namespace heed::kernels {

/// A tile of dBias, or a part of what it sums: some of the pairs of batch entry and head that share it.
struct DBiasTile {
  int first_row, first_key;
  int batch, head;              ///< of dBias
  int first_batch, first_head;  ///< of the first pair
  int pairs;
};

/// The rows and columns of dBias that some sequence has, or 1 for all. What a table has behind the longest sequence is
/// nobody's: zero_unreached_dbias().
HEED_DEVICE int reached_rows(const BackwardParams& bp) {
  return bp.d_bias_rows == 1 ? 1 : min(bp.d_bias_rows, bp.forward.longest_q);
}
HEED_DEVICE int reached_columns(const BackwardParams& bp) {
  return bp.d_bias_columns == 1 ? 1 : min(bp.d_bias_columns, bp.forward.longest_k);
}

/// Of these. The workspace of parts has as many tiles: shared_dbias() in src/cuda/portable_backward.cpp.
template <PortableBackwardConfig C>
struct DBiasTiles {
  int key_tiles, row_tiles;
  i64 count;         ///< of tiles
  int heads, pairs;  ///< that share an entry

  __device__ __forceinline__ explicit DBiasTiles(const BackwardParams& bp) {
    const ForwardParams& p = bp.forward;
    key_tiles = (reached_columns(bp) + C.block - 1) / C.block;
    row_tiles = (reached_rows(bp) + C.tile() - 1) / C.tile();
    count = i64(key_tiles) * row_tiles * bp.d_bias_heads * bp.d_bias_batch;
    heads = bp.d_bias_heads == 1 ? p.heads : 1;
    pairs = heads * (bp.d_bias_batch == 1 ? p.batch : 1);
  }
  /// index: of all parts of all tiles, those of one part together.
  __device__ __forceinline__ DBiasTile at(const BackwardParams& bp, i64 index) const {
    const i64 part = index / count, tile = index % count, own = tile / key_tiles / row_tiles;
    const int first = int(part * pairs / bp.d_bias_parts), last = int((part + 1) * pairs / bp.d_bias_parts);
    const int batch = int(own / bp.d_bias_heads), head = int(own % bp.d_bias_heads);
    return {int(tile / key_tiles % row_tiles) * C.tile(),
            int(tile % key_tiles) * C.block,
            batch,
            head,
            batch + first / heads,
            head + first % heads,
            last - first};
  }
};

/// Zeros in the rows and columns of dBias that no sequence reaches: all threads of all thread blocks, kThreads in each, a
/// row for each warp.
template <PortableBackwardConfig C, int kThreads>
HEED_DEVICE void zero_unreached_dbias(const BackwardParams& bp) {
  const int rows = reached_rows(bp), columns = reached_columns(bp);
  if (rows == bp.d_bias_rows && columns == bp.d_bias_columns) return;
  using Bias = typename TagOf<C.d_bias>::Type;
  constexpr int kWarps = kThreads / 32;
  const Steps& steps = bp.d_bias_steps;
  const i64 lines = i64(bp.d_bias_batch) * bp.d_bias_heads * bp.d_bias_rows;
#pragma unroll 1
  for (i64 line = i64(blockIdx.x) * kWarps + threadIdx.x / 32; line < lines; line += i64(gridDim.x) * kWarps) {
    const i64 own = line / bp.d_bias_rows;
    const int row = int(line % bp.d_bias_rows);
    typename Bias::Raw* const to = static_cast<typename Bias::Raw*>(bp.d_bias) +
                                   own / bp.d_bias_heads * steps.batch + own % bp.d_bias_heads * steps.head +
                                   row * steps.row;
#pragma unroll 1
    for (int column = (row < rows ? columns : 0) + int(threadIdx.x % 32); column < bp.d_bias_columns; column += 32)
      to[column * steps.column] = from_float<Bias>(0.0f);
  }
}

/// Whether some of `rows` rows from first_row on sees some of the kKeys keys from first_key on, a multiple of kKeys.
template <ForwardFeatures F, int kKeys>
HEED_DEVICE bool some_visible(const Sequence& q, int first_row, int rows, int first_key) {
  if (first_row >= q.s_q || first_key >= q.s_k) return false;
  KeyBlocks blocks{};
  blocks.template set<F, kKeys>(q, first_row, min(first_row + rows, q.s_q) - 1);
  const int block = first_key / kKeys;
  return (block < blocks.last && block >= blocks.first) || block < blocks.sinks;
}

/// What a tile sums, step by step: C.tile() rows of one head, of those that see some of C.block keys. Where dBias has one
/// row for all queries, or one column for all keys, a tile has all of them.
template <PortableBackwardConfig C>
struct DBiasSteps {
  int first_row = 0;                 ///< of the tile
  int first_key = 0;                 ///< of the step
  int pairs = 0;                     ///< that are left, with this one
  int batch = 0, head = 0, row = 0;  ///< the first row
  Sequence q{};

  __device__ __forceinline__ void begin(const BackwardParams& bp, const DBiasTiles<C>& tiles, const DBiasTile& which) {
    first_row = row = which.first_row;
    first_key = which.first_key;
    pairs = which.pairs;
    batch = which.first_batch;
    head = which.first_head;
    if (pairs > 0) q = sequence_of<C.features>(bp.forward, batch);
    seek(bp, tiles);
  }
  __device__ __forceinline__ bool done() const { return pairs == 0; }
  __device__ __forceinline__ void next(const BackwardParams& bp, const DBiasTiles<C>& tiles) {
    row += C.tile();
    seek(bp, tiles);
  }

 private:
  /// To the first step from here on.
  __device__ __forceinline__ void seek(const BackwardParams& bp, const DBiasTiles<C>& tiles) {
    const bool one_row = bp.d_bias_rows == 1;
#pragma unroll 1
    while (pairs > 0) {
      const int rows_end = one_row ? q.s_q : min(first_row + C.tile(), q.s_q);
#pragma unroll 1
      for (; row < rows_end; row += C.tile())
        if (some_visible<C.features, C.block>(q, row, C.tile(), first_key)) return;
      row = first_row;
      if (bp.d_bias_columns == 1) {
        first_key += C.block;
        if (first_key < q.s_k) continue;
        first_key = 0;
      }
      --pairs;
      if (tiles.heads > 1 && head + 1 < tiles.heads) {
        ++head;
      } else if (pairs > 0) {
        if (tiles.heads > 1) head = 0;
        q = sequence_of<C.features>(bp.forward, ++batch);
      }
    }
  }
};

/// The bias of a tile in shared memory, each thread's own entries, two pairs of keys at a time.
template <PortableBackwardConfig C>
struct KeptBias {
  static constexpr ForwardFeatures F = C.features;
  using Input = typename TagOf<C.input>::Type;
  using Row = BiasRow<F, Input, C.warp_keys() / 8>;
  static constexpr int kTiles = C.warp_keys() / 16;         // of 16 x 16 entries, in 16 rows of a warp
  static constexpr u32 kChunkBytes = 4 * Row::kBytes;  // two pairs

  u32 at;    ///< this thread's first chunk
  int tile;  ///< of 16 x 16 entries, the one that differentiate() is at

  /// row: the warp's first. Entries behind the last row or key are read by nobody. One column for all keys is here for
  /// the first of them, and the same for the others.
  __device__ __forceinline__ void fill(const BackwardParams& bp, int batch, int head, int row, int first_key,
                                       int lane) const {
    Sequence all{};
    all.s_q = bp.d_bias_rows;
    all.s_k = bp.forward.longest_k;
#pragma unroll
    for (int r = 0; r < C.warp_rows / 8; ++r) {
      RowFeatures<F, Input> features;
      features.set(bp.forward, all, batch, head, row + 8 * r + lane / 4);
      Row bias;
      bias.fetch(bp.forward, features, first_key, lane, all.s_k);
      bias.settle(lane);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const u32* const x = bias.raw + n * (kChunkBytes / 4);
        store_shared(chunk(r / 2 * kTiles + n, r % 2), *reinterpret_cast<const u32(*)[kChunkBytes / 4]>(x));
      }
    }
  }
  /// As differentiate() asks for it.
  __device__ __forceinline__ void read(BiasRow<F, Input, 2>& bias, int half, const ForwardParams&,
                                       const RowFeatures<F, Input> (&)[2], const ScoreTile&, int) const {
    read(bias, tile, half);
  }
  __device__ __forceinline__ void read(BiasRow<F, Input, 2>& bias, int which, int half) const {
    load_shared(bias.raw, chunk(which, half));
  }

 private:
  __device__ __forceinline__ u32 chunk(int tile_index, int half) const {
    return at + (tile_index * 2 + half) * C.threads() * kChunkBytes;
  }
};

/// A column of sums over the keys of a CTA's tile, to dBias. The rest as below.
template <PortableBackwardConfig C, int kM, int kR, class Meet>
HEED_DEVICE void store_dbias_column(const Rows<typename TagOf<C.d_bias>::Type>& out, int first_row,
                                    const float (&sum)[kM][kR], float* over_keys, int warp, u32 thread,
                                    const Meet& meet) {
  static_assert(C.across * C.tile() * 4 <= C.over_rows_bytes());
  const int lane = int(thread % 32);
  meet();  // over the keys of a warp, then over the warps
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float x = 0.0f;
#pragma unroll
      for (int n = 0; n < kR / 4; ++n) x += sum[m][4 * n + 2 * half] + sum[m][4 * n + 2 * half + 1];
#pragma unroll
      for (int over = 1; over < 4; over *= 2) x += __shfl_xor_sync(0xffffffffu, x, over);
      if (lane % 4 == 0)
        over_keys[warp % C.across * C.tile() + warp / C.across * C.warp_rows + 16 * m + 8 * half + lane / 4] = x;
    }
  meet();
  if (int(thread) < C.tile() && first_row + int(thread) < out.rows) {
    float x = 0.0f;
#pragma unroll
    for (int w = 0; w < C.across; ++w) x += over_keys[w * C.tile() + thread];
    out.data[(first_row + int(thread)) * out.row_step] = from_float<typename TagOf<C.d_bias>::Type>(x);
  }
  meet();
}

/// Sums of a CTA's tile, [warp_rows, warp_keys] of each warp, to dBias. over_rows: memory for a row of sums of each row of
/// warps, where others may be until all have met. meet(): a barrier of all threads that have sums.
template <PortableBackwardConfig C, int kM, int kR, class Meet>
HEED_DEVICE void store_dbias(const BackwardParams& bp, const DBiasTile& tile, const float (&sum)[kM][kR], float* over_rows,
                            int warp, u32 thread, const Meet& meet) {
  using Bias = typename TagOf<C.d_bias>::Type;
  const int lane = int(thread % 32), row_warp = warp / C.across, warp_key = warp % C.across * C.warp_keys();
  const Rows<Bias> out{static_cast<typename Bias::Raw*>(bp.d_bias) + tile.batch * bp.d_bias_steps.batch +
                           tile.head * bp.d_bias_steps.head,
                       bp.d_bias_steps.row, bp.d_bias_steps.column, reached_rows(bp), reached_columns(bp)};
  const bool over_queries = bp.d_bias_rows == 1 && bp.forward.longest_q != 1;
  const bool over_keys = bp.d_bias_columns == 1 && bp.forward.longest_k != 1;
  if (over_keys && !over_queries) {
    store_dbias_column<C>(out, tile.first_row, sum, over_rows, warp, thread, meet);
    return;
  }
  if (!over_queries) {
    const float factor[2] = {1.0f, 1.0f};
#pragma unroll
    for (int m = 0; m < kM; ++m)
      store_rows<f16, Bias, C.warp_keys()>(out, tile.first_row + row_warp * C.warp_rows + 16 * m, tile.first_key + warp_key,
                                    sum[m], factor, lane);
    return;
  }
  meet();  // over the rows of a warp, then over the warps
#pragma unroll
  for (int n = 0; n < kR / 4; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float x = 0.0f;
#pragma unroll
      for (int m = 0; m < kM; ++m) x += sum[m][4 * n + e] + sum[m][4 * n + 2 + e];
#pragma unroll
      for (int over = 4; over < 32; over *= 2) x += __shfl_xor_sync(0xffffffffu, x, over);
      if (lane < 4) over_rows[row_warp * C.block + warp_key + 8 * n + lane * 2 + e] = x;
    }
  meet();
  const int key = tile.first_key + int(thread);
  if (over_keys) {  // one number
    float x = 0.0f;
#pragma unroll
    for (int i = 0; i < C.warps / C.across * C.block; i += 32) x += over_rows[i + lane];
#pragma unroll
    for (int over = 1; over < 32; over *= 2) x += __shfl_xor_sync(0xffffffffu, x, over);
    if (thread == 0) *out.data = from_float<Bias>(x);
  } else if (int(thread) < C.block && key < out.columns) {
    float x = 0.0f;
#pragma unroll
    for (int w = 0; w < C.warps / C.across; ++w) x += over_rows[w * C.block + thread];
    out.data[key * out.column_step] = from_float<Bias>(x);
  }
  meet();
}

/// Where a thread's i-th four sums of a part of a tile wait for those of the others.
template <PortableBackwardConfig C>
HEED_DEVICE float4* sums_of_part(const BackwardParams& bp, i64 index, u32 thread, int i) {
  constexpr int kFours = C.tile() * C.block / C.threads() / 4;
  return reinterpret_cast<float4*>(bp.d_bias_part) + (index * kFours + i) * C.threads() + thread;
}

/// Sums of the index-th part of all tiles to where they belong: dBias, where they are whole.
template <PortableBackwardConfig C, int kM, int kR, class Meet>
HEED_DEVICE void store_sums(const BackwardParams& bp, i64 index, const DBiasTile& tile, const float (&sum)[kM][kR],
                            float* over_rows, int warp, u32 thread, const Meet& meet) {
  if (bp.d_bias_parts == 1) {
    store_dbias<C>(bp, tile, sum, over_rows, warp, thread, meet);
    return;
  }
#pragma unroll
  for (int i = 0; i < kM * kR / 4; ++i) {
    const float* const x = sum[4 * i / kR] + 4 * i % kR;
    *sums_of_part<C>(bp, index, thread, i) = make_float4(x[0], x[1], x[2], x[3]);
  }
}

}  // namespace heed::kernels
