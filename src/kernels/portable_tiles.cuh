// Tiles of the portable family: from global to shared memory, and the two products of attention for one warp.
//
// A tile in shared memory is rows of 16-byte chunks, the chunks of a row permuted so that eight rows, read at the same
// column, meet eight different groups of banks.
//
// A warp's 16 rows of scores, and of O where the type has 16 bits, lie as forward_features.cuh says:
//   x[4 * n + 2 * half + e]  =  row lane / 4 + 8 * half, column 8 * n + 2 * (lane % 4) + e
// O in f32 has the same rows, and four neighbouring columns in two consecutive n:
//   o[4 * n + 2 * half + e]  =  column 16 * (n / 2) + 4 * (lane % 4) + 2 * (n % 2) + e
#pragma once

#include "mma.cuh"

namespace heed::kernels {

/// So many neighbouring chunks of a row change places: few, so that few offsets depend on the lane.
template <int kChunks>
constexpr u32 kTurned = kChunks % 8 == 0 ? 8 : 4;

template <int kChunks>
HEED_DEVICE u32 chunk_offset(u32 row, u32 chunk) {
  static_assert(kChunks % 4 == 0, "two rows of four chunks are one line of banks");
  constexpr u32 kTurns = kTurned<kChunks>;
  const u32 turn = row / (8 / kTurns) % kTurns;
  return (row * kChunks + chunk / kTurns * kTurns + (chunk % kTurns ^ turn)) * 16;
}

/// A matrix in global memory; nothing of it is read behind `rows` and `columns`, where the tiles hold zeros.
template <class T>
struct Matrix {
  const typename T::Raw* data;
  i64 row_step, column_step;
  int rows, columns;
};

/// The same to write to.
template <class T>
struct Rows {
  typename T::Raw* data;
  i64 row_step, column_step;
  int rows, columns;
};

/// load_tile for a tile of f32 from 16-bit elements: a thread turns four into one chunk.
template <class T, int kRows, int kColumns, int kThreads, int kRowBytes>
HEED_DEVICE void load_widened(u32 to, const Matrix<T>& from, int first_row, u32 thread) {
  using Raw = typename T::Raw;
  constexpr int kChunks = kColumns / 4;
  const bool down = kRowBytes == sizeof(Raw) && from.row_step == 1;
#pragma unroll 2
  for (u32 i = thread; i < kRows * kChunks; i += kThreads) {
    const int row = down ? i % kRows : i / kChunks, chunk = down ? i / kRows : i % kChunks, column = 4 * chunk;
    const bool inside = first_row + row < from.rows;
    const Raw* source = from.data + (inside ? first_row + row : 0) * from.row_step;
    float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (kRowBytes >= 8 && inside && column + 4 <= from.columns) {
      const uint2 four = *reinterpret_cast<const uint2*>(source + column);
      x[0] = to_float<T>(Raw(four.x)), x[1] = to_float<T>(Raw(four.x >> 16));
      x[2] = to_float<T>(Raw(four.y)), x[3] = to_float<T>(Raw(four.y >> 16));
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (inside && column + e < from.columns) x[e] = to_float<T>(source[(column + e) * from.column_step]);
    }
    store_shared(to + chunk_offset<kChunks>(row, chunk), x);
  }
}

/// load_tile for a tile of 16-bit elements from f32: a thread rounds eight into one chunk.
template <class Tile, int kRows, int kColumns, int kThreads>
HEED_DEVICE void load_rounded(u32 to, const Matrix<f32>& from, int first_row, u32 thread) {
  constexpr int kChunks = kColumns / 8;
#pragma unroll 1
  for (u32 i = thread; i < kRows * kChunks; i += kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const bool inside = first_row + row < from.rows;
    const float* source = from.data + (inside ? first_row + row : 0) * from.row_step;
    u32 pairs[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float x[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int column = chunk * 8 + 2 * e + j;
        x[j] = inside && column < from.columns ? source[column * from.column_step] : 0.0f;
      }
      pairs[e] = pack<Tile>(x[0], x[1]);
    }
    store_shared(to + chunk_offset<kChunks>(row, chunk), pairs);
  }
}

/// Rows first_row .. of `from` -> a tile [kRows, kColumns] of Tile at `to`, by all threads of the CTA. Where the memory
/// allows it the copies are asynchronous; either way the tile is there after wait_copies and a barrier.
/// kRowBytes: see PortableConfig::row_bytes.
template <class Tile, class T, int kRows, int kColumns, int kThreads, int kRowBytes>
HEED_DEVICE void load_tile(u32 to, const Matrix<T>& from, int first_row, u32 thread_index) {
  const u32 thread = fresh(thread_index);
  using Raw = typename T::Raw;
  constexpr int kElements = 16 / sizeof(Raw), kChunks = kColumns / kElements;
  if constexpr (sizeof(typename Tile::Raw) > sizeof(Raw)) {
    load_widened<T, kRows, kColumns, kThreads, kRowBytes>(to, from, first_row, thread);
  } else if constexpr (sizeof(typename Tile::Raw) < sizeof(Raw)) {
    load_rounded<Tile, kRows, kColumns, kThreads>(to, from, first_row, thread);
  } else if constexpr (kRowBytes > int(sizeof(Raw))) {
    // Neighbouring threads copy kRowBytes each of a 128-byte (or 64-byte) piece of a row. Piece by piece: unrolled, the
    // offsets of all pieces would need registers that the larger tiles do not have.
    constexpr int kPieceChunks = kChunks % 8 == 0 ? 8 : 4, kCopies = 16 / kRowBytes;  // of a chunk
    constexpr int kPiece = kPieceChunks * kCopies, kStep = kThreads / kPiece, kUnroll = kRowBytes == 16 ? 2 : 4;
    constexpr int kCopied = kRowBytes / sizeof(Raw);
    const u32 copy_index = thread % kPiece;
    if constexpr (kRowBytes == 16 && kStep % 8 == 0) {
      // As nearly always, all rows are there and all chunks whole: a thread's rows lie alike, its places differ by
      // constants.
      if (first_row + kRows <= from.rows && from.columns % kElements == 0) {
        const int row = int(thread / kPiece), column = int(copy_index) * kElements;
        const u32 place = fresh(to + chunk_offset<kChunks>(row, copy_index));
        const Raw* source = from.data + (first_row + row) * from.row_step + column;
#pragma unroll
        for (int r = 0; r < kRows; r += kStep) {
          if (kRows % kStep != 0 && r + row >= kRows) break;
#pragma unroll
          for (int piece = 0; piece < kChunks; piece += kPieceChunks)
            copy_16_or_zeros(place + (r * kChunks + piece) * 16, source + piece * kElements,
                             column < from.columns - piece * kElements);
          source += kStep * from.row_step;
        }
        return;
      }
    }
#pragma unroll 1
    for (int piece = 0; piece < kChunks; piece += kPieceChunks) {
      const u32 chunk = piece + copy_index / kCopies;
      const int column = int(piece * kElements + copy_index * kCopied);
      const int elements = max(min(from.columns - column, kCopied), 0);
      const Raw* const source = from.data + (elements > 0 ? column : 0);
#pragma unroll kUnroll
      for (int r = 0; r < kRows; r += kStep) {
        const int row = r + int(thread / kPiece);
        if (kRows % kStep != 0 && row >= kRows) break;
        const bool inside = first_row + row < from.rows;
        copy<kRowBytes>(to + chunk_offset<kChunks>(row, chunk) + copy_index % kCopies * kRowBytes,
                        source + (inside ? first_row + row : 0) * from.row_step,
                        inside ? elements * int(sizeof(Raw)) : 0);
      }
    }
  } else {
    // Neighbouring threads follow the memory: down a column where the rows are neighbours (a column-major V).
    const bool down = from.row_step == 1;
    if constexpr (sizeof(Raw) == 4) {
#pragma unroll 1
      for (u32 i = thread; i < kRows * kColumns; i += kThreads) {
        const int row = down ? i % kRows : i / kColumns, column = down ? i / kRows : i % kColumns;
        const bool inside = first_row + row < from.rows && column < from.columns;
        const Raw* source = from.data + (inside ? (first_row + row) * from.row_step + column * from.column_step : 0);
        copy_4(to + chunk_offset<kChunks>(row, column / 4) + column % 4 * 4, source, inside ? 4 : 0);
      }
    } else {
#pragma unroll 2
      for (u32 i = thread; i < kRows * kChunks; i += kThreads) {
        const int row = down ? i % kRows : i / kChunks, chunk = down ? i / kRows : i % kChunks;
        const bool inside = first_row + row < from.rows;
        const Raw* source = from.data + (inside ? first_row + row : 0) * from.row_step;
        u32 x[8], pairs[4];
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          const int column = chunk * 8 + e;
          x[e] = 0;
          if (inside && column < from.columns) x[e] = source[column * from.column_step];
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) pairs[e] = x[2 * e] | x[2 * e + 1] << 16;
        store_shared(to + chunk_offset<kChunks>(row, chunk), pairs);
      }
    }
  }
}

/// load_tile where all rows and columns are there: `from` is the first of kRows rows, which begin at multiples of 16
/// bytes. A thread's rows lie alike, its places differ by constants.
template <class T, int kRows, int kColumns, int kThreads>
HEED_DEVICE void load_whole_tile(u32 to, const typename T::Raw* from, i64 row_step, u32 thread) {
  constexpr int kElements = 16 / sizeof(typename T::Raw), kChunks = kColumns / kElements;
  constexpr int kPiece = kChunks % 8 == 0 ? 8 : 4, kStep = kThreads / kPiece;  // chunks that neighbours copy, and rows
  static_assert(kStep % 8 == 0);
  const u32 row = thread / kPiece, chunk = thread % kPiece, place = to + chunk_offset<kChunks>(row, chunk);
  const typename T::Raw* source = from + (u64(row) * u64(row_step) + chunk * kElements);
#pragma unroll
  for (int r = 0; r < kRows; r += kStep) {
    if (kRows % kStep != 0 && r + int(row) >= kRows) break;
#pragma unroll
    for (int piece = 0; piece < kChunks; piece += kPiece)
      copy_16_or_zeros(place + (r * kChunks + piece) * 16, source + piece * kElements, true);
    source += kStep * row_step;
  }
}

/// Where a lane points for the four 8 x 8 matrices of a tile's first 16 rows and first two chunks, which come row by
/// row: as the right operand wants them, two neighbouring registers for each eight rows.
template <int kChunks>
HEED_DEVICE u32 matrices_across(u32 tile, u32 lane) {
  return tile + chunk_offset<kChunks>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
}
/// The same, column by column: as the left operand wants them, and the right one when it is transposed.
template <int kChunks>
HEED_DEVICE u32 matrices_down(u32 tile, u32 lane) {
  return tile + chunk_offset<kChunks>(lane / 8 % 2 * 8 + lane % 8, lane / 16);
}
/// From there to the 16 rows from `row`, a multiple of 16, and the two chunks from `chunk`, an even number: one
/// instruction for each place of the chunks, however many rows are read there; the rest is a constant of the load.
/// Needs tiles that begin at multiples of 128 bytes.
template <int kChunks>
HEED_DEVICE u32 moved(u32 first, u32 row, u32 chunk) {
  constexpr u32 kTurns = kTurned<kChunks>;
  return (first ^ chunk % kTurns * 16) + (row * kChunks + chunk / kTurns * kTurns) * 16;
}

/// s [16 * kM, kN] += Q [16 * kM, kPiece] K^T [kPiece, kN] on the tensor cores. q_rows is the warp's Q in shared
/// memory, whose rows have kD columns; the fragments of its first 16 * kHeld columns are in `held`. kUnroll: 4 suffice,
/// for the order of chunks repeats after four steps; more give the compiler more to load ahead, and to keep.
template <class T, int kD, int kPiece, int kN, int kM, int kHeld, int kPlaces,
          int kUnroll = (kPiece > 512 ? 4 : kPiece / 16)>
HEED_DEVICE void multiply_keys(float (&s)[kM][kN / 2], u32 q_rows, const u32 (&held)[kM][kPlaces][4], u32 k_at,
                               u32 lane_index) {
  const u32 lane = fresh(lane_index) % 32;
  const u32 q_first = matrices_down<kD / 8>(q_rows, lane), k_first = matrices_across<kPiece / 8>(k_at, lane);
#pragma unroll kUnroll
  for (int step = 0; step < kPiece / 16; ++step) {
    u32 a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      if (step < kHeld) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][i] = held[m][step][i];
      } else {
        load_matrices(a[m], moved<kD / 8>(q_first, 16 * m, 2 * step));
      }
    }
#pragma unroll
    for (int n = 0; n < kN / 16; ++n) {
      u32 b[4];  // keys 0..7: columns 0..7, 8..15; keys 8..15: the same
      load_matrices(b, moved<kPiece / 8>(k_first, 16 * n, 2 * step));
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add<T>(s[m] + 8 * n, a[m], b[0], b[1]);
        multiply_add<T>(s[m] + 8 * n + 4, a[m], b[2], b[3]);
      }
    }
  }
}

/// The fragments of P for 16 keys: the weights' registers are the left operand.
template <class T, int kN, int kM>
HEED_DEVICE void pack_weights(u32 (&a)[kM][4], const float (&weights)[kM][kN / 2], int step) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[m][i] = pack<T>(weights[m][8 * step + 2 * i], weights[m][8 * step + 2 * i + 1]);
}

/// o [16 * kM, kColumns] += P [16 * kM, 16] V [16, kColumns] for the 16 keys of a step: columns of a tile that has kDv,
/// of which v_first points to the first.
template <class T, int kDv, int kColumns, int kM>
HEED_DEVICE void multiply_values_of_step(float (&o)[kM][kColumns / 2], const u32 (&a)[kM][4], u32 v_first, int step) {
#pragma unroll
  for (int n = 0; n < kColumns / 16; ++n) {
    u32 b[4];  // columns 0..7: keys 0..7, 8..15; columns 8..15: the same
    load_transposed(b, moved<kDv / 8>(v_first, 16 * step, 2 * n));
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      multiply_add<T>(o[m] + 8 * n, a[m], b[0], b[1]);
      multiply_add<T>(o[m] + 8 * n + 4, a[m], b[2], b[3]);
    }
  }
}

/// o [16 * kM, kDv] += P [16 * kM, kN] V [kN, kDv] on the tensor cores.
template <class T, int kDv, int kN, int kM>
HEED_DEVICE void multiply_values(float (&o)[kM][kDv / 2], const float (&weights)[kM][kN / 2], u32 v_at,
                                 u32 lane_index) {
  const u32 v_first = matrices_down<kDv / 8>(v_at, fresh(lane_index) % 32);
#pragma unroll
  for (int step = 0; step < kN / 16; ++step) {
    u32 a[kM][4];
    pack_weights<T, kN, kM>(a, weights, step);
    multiply_values_of_step<T, kDv, kDv, kM>(o, a, v_first, step);
  }
}

/// One warp of a pair: o [16 * kM, kDv / 2] += P [16 * kM, kN] V [kN, kDv / 2], of which it has the weights of half of
/// the keys and the other warp those of the rest. Each multiplies its own first, while the other's arrive.
/// weights_at: [2][kN / 32][kM] fragments of 512 bytes, those of each warp; part: which it is, and which columns it has.
template <class T, int kDv, int kN, int kM>
HEED_DEVICE void multiply_values_by_pair(float (&o)[kM][kDv / 4], const float (&weights)[kM][kN / 4], u32 weights_at,
                                         u32 v_at, u32 part, u32 barrier, u32 lane_index) {
  constexpr int kSteps = kN / 32;
  constexpr u32 kHalfBytes = kSteps * kM * 512, kHalfOfV = kN / 2 * kDv * sizeof(typename T::Raw);
  const u32 lane = fresh(lane_index) % 32, mine = fresh(part);
  const u32 to = weights_at + mine * kHalfBytes + lane * 16, from = weights_at + (mine ^ 1) * kHalfBytes + lane * 16;
  const u32 v_first = matrices_down<kDv / 8>(v_at + mine * (kDv / 2 * u32(sizeof(typename T::Raw))), lane);
  u32 a[kSteps][kM][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    pack_weights<T, kN / 2, kM>(a[step], weights, step);
#pragma unroll
    for (int m = 0; m < kM; ++m) store_shared(to + (step * kM + m) * 512, a[step][m]);
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
    multiply_values_of_step<T, kDv, kDv / 2, kM>(o, a[step], v_first + mine * kHalfOfV, step);
  join_pair(barrier);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    u32 others[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) load_shared(others[m], from + (step * kM + m) * 512);
    multiply_values_of_step<T, kDv, kDv / 2, kM>(o, others, v_first + (mine ^ 1) * kHalfOfV, step);
  }
}

/// The scores in f32: a thread has 2 * kM rows and kN / 4 keys, and takes kColumns (2 or 4) columns at a time: four
/// need fewer loads, two fewer registers. Of the piece only d columns count.
template <int kD, int kPiece, int kN, int kM, int kColumns>
HEED_DEVICE void multiply_keys_f32(float (&s)[kM][kN / 2], u32 q_rows, u32 k_at, int d, u32 lane_index) {
  const u32 lane = fresh(lane_index) % 32;
#pragma unroll 1
  for (int column = 0; column < d; column += kColumns) {
    float q[2 * kM][kColumns];
#pragma unroll
    for (int r = 0; r < 2 * kM; ++r)
      load_shared(q[r], q_rows + chunk_offset<kD / 4>(8 * r + lane / 4, column / 4) + column % 4 * 4);
#pragma unroll
    for (int n = 0; n < kN / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float k[kColumns];
        load_shared(k, k_at + chunk_offset<kPiece / 4>(8 * n + lane % 4 * 2 + e, column / 4) + column % 4 * 4);
#pragma unroll
        for (int r = 0; r < 2 * kM; ++r)
#pragma unroll
          for (int i = 0; i < kColumns; ++i) {
            float& x = s[r / 2][4 * n + r % 2 * 2 + e];
            x = __fmaf_rn(q[r][i], k[i], x);
          }
      }
  }
}

/// o [16 * kM, kDv] += W [16 * kM, kN] V [kN, kDv] in f32, all from shared memory: a thread sums over all keys for
/// 2 * kM rows and kDv / 4 columns.
template <int kDv, int kN, int kM>
HEED_DEVICE void multiply_stored_f32(float (&o)[kM][kDv / 2], u32 rows_at, u32 v_at, u32 lane_index) {
  const u32 lane = fresh(lane_index) % 32;
  // As many keys in one piece of straight code as leave room for their V in registers, should all be loaded ahead.
  constexpr int kKeys = kDv <= 64 ? 4 : kDv <= 128 ? 2 : 1;
#pragma unroll 1
  for (int key = 0; key < kN; key += kKeys) {
    float w[2 * kM][kKeys];
#pragma unroll
    for (int r = 0; r < 2 * kM; ++r)
      load_shared(w[r], rows_at + chunk_offset<kN / 4>(8 * r + lane / 4, key / 4) + key % 4 * 4);
#pragma unroll
    for (int n = 0; n < kDv / 16; ++n) {
      float v[kKeys][4];
#pragma unroll
      for (int j = 0; j < kKeys; ++j) load_shared(v[j], v_at + chunk_offset<kDv / 4>(key + j, 4 * n + lane % 4));
#pragma unroll
      for (int r = 0; r < 2 * kM; ++r)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& x = o[r / 2][8 * n + i / 2 * 4 + r % 2 * 2 + i % 2];
          if constexpr (kKeys == 4) {
            // Four keys by themselves: equal terms are rounded alike, and a long sum of single ones would drift.
            float four = w[r][0] * v[0][i];
#pragma unroll
            for (int j = 1; j < kKeys; ++j) four = __fmaf_rn(w[r][j], v[j][i], four);
            x += four;
          } else {
#pragma unroll
            for (int j = 0; j < kKeys; ++j) x = __fmaf_rn(w[r][j], v[j][i], x);
          }
        }
    }
  }
}

/// O in f32. The weights go through `rows_at`, the warp's own [16 * kM, kN] in shared memory.
template <int kDv, int kN, int kM>
HEED_DEVICE void multiply_values_f32(float (&o)[kM][kDv / 2], const float (&weights)[kM][kN / 2], u32 rows_at, u32 v_at,
                                     u32 lane_index) {
  const u32 lane = fresh(lane_index) % 32;
  __syncwarp();  // all lanes are done with the weights before
#pragma unroll
  for (int r = 0; r < 2 * kM; ++r)
#pragma unroll
    for (int n = 0; n < kN / 8; ++n)
      store_shared(rows_at + chunk_offset<kN / 4>(8 * r + lane / 4, 2 * n + lane % 4 / 2) + lane % 2 * 8,
                   weights[r / 2][4 * n + r % 2 * 2], weights[r / 2][4 * n + r % 2 * 2 + 1]);
  __syncwarp();
  multiply_stored_f32<kDv, kN, kM>(o, rows_at, v_at, lane);
}

/// 16 rows of sums, times their factors, from a warp's registers to global memory, kColumns columns from first_column
/// on: sixteen of each kApart. T tells how they lie: see above.
template <class T, class Output, int kColumns, int kApart = 16>
HEED_DEVICE void store_rows(const Rows<Output>& to, int first_row, int first_column, const float (&sums)[kColumns / 2],
                            const float (&factor)[2], u32 lane_index) {
  const u32 lane = fresh(lane_index) % 32;
  using Raw = typename Output::Raw;
  const i64 step = to.column_step;
  const bool fours = step == 1 && to.row_step % 4 == 0 && reinterpret_cast<u64>(to.data) % (4 * sizeof(Raw)) == 0;
  const bool whole = fours && first_column + (kColumns / 16 - 1) * kApart + 16 <= to.columns;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = first_row + int(lane / 4) + 8 * half;
    const bool inside = i < to.rows;
    Raw* const row = to.data + i * to.row_step;
    // Four neighbouring columns: pairs of lanes exchange what mma scattered over two groups of eight columns.
    constexpr bool kScattered = sizeof(typename T::Raw) == 2;
    const int column0 = first_column + int(kScattered ? lane % 2 * 8 + lane % 4 / 2 * 4 : lane % 4 * 4);
    const auto four_columns = [&](float (&x)[4], int n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) x[e] = sums[8 * n + 4 * (e / 2) + 2 * half + e % 2] * factor[half];
      if constexpr (kScattered) {
        const bool odd = lane % 2;
        const float other0 = __shfl_xor_sync(0xffffffffu, odd ? x[0] : x[2], 1);
        const float other1 = __shfl_xor_sync(0xffffffffu, odd ? x[1] : x[3], 1);
        x[0] = odd ? other0 : x[0];
        x[1] = odd ? other1 : x[1];
        x[2] = odd ? x[2] : other0;
        x[3] = odd ? x[3] : other1;
      }
    };
    const auto store_four = [&](const float (&x)[4], int column) {
      if constexpr (sizeof(Raw) == 2) {
        *reinterpret_cast<uint2*>(row + column) = make_uint2(pack<Output>(x[0], x[1]), pack<Output>(x[2], x[3]));
      } else {
        *reinterpret_cast<float4*>(row + column) = make_float4(x[0], x[1], x[2], x[3]);
      }
    };
    if (whole) {
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        float x[4];
        four_columns(x, n);
        if (inside) store_four(x, column0 + kApart * n);
      }
      continue;
    }
#pragma unroll
    for (int n = 0; n < kColumns / 16; ++n) {
      float x[4];
      four_columns(x, n);
      const int column = column0 + kApart * n;
      if (!inside || column >= to.columns) continue;
      if (fours && column + 4 <= to.columns) {
        store_four(x, column);
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (column + e < to.columns) row[(column + e) * step] = from_float<Output>(x[e]);
      }
    }
  }
}

}  // namespace heed::kernels
