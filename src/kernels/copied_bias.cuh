// A block of a bias of 16 bits in shared memory, from where ldmatrix reads it, and the warp that copies it there.
#pragma once

#include "forward_params.h"
#include "mma.cuh"
#include "ptx.cuh"

namespace heed::kernels {

/// Rows side by side, in chunks of eight keys. Chunks change places so that the eight rows of a matrix lie in different
/// banks.
template <int kRowCount, int kKeyCount>
struct CopiedBias {
  static constexpr int kRows = kRowCount, kKeys = kKeyCount, kChunks = kKeys / 8;
  static constexpr int kMoved = kChunks % 8 == 0 ? 8 : 4;  ///< chunks that change places among each other
  static_assert(kRows % 8 == 0 && kChunks % 4 == 0);

  static __device__ __forceinline__ u32 moved_by(u32 row) { return row * kMoved / 8 % kMoved; }
  static __device__ __forceinline__ u32 place(u32 row, u32 chunk) {
    return (row * kChunks + (chunk ^ moved_by(row))) * 16;
  }
};

/// A warp copies what lies at `from`, the bias of a tile's first row and first key. So many rows and keys are there, and
/// zeros behind them. All lanes arrive at `full`.
template <class Tile>
HEED_DEVICE void copy_bias_block(const Steps& steps, u32 to, u32 full, const char* from, int rows, int keys, u32 lane) {
  const i64 row_bytes = steps.row * 2;
  const u64 alignment = reinterpret_cast<u64>(from) | u64(row_bytes);
  // body(place, source, bytes to read) for each chunk of this lane. Little is kept in registers from block to block: the
  // copying warps have few.
  auto for_each_chunk = [&](bool whole, auto body) __attribute__((always_inline)) {
#pragma unroll 1
    for (u32 index = fresh(lane); index < 8 * Tile::kChunks; index += 32) {
      const u32 row = index / Tile::kChunks, chunk = index % Tile::kChunks;
      const int bytes = min(max(keys - int(chunk) * 8, 0), 8) * 2;
      const char* source = from + row * row_bytes + chunk * 16;
      u32 place = to + Tile::place(row, chunk);
#pragma unroll
      for (int r = 0; r < Tile::kRows; r += 8) {
        body(place, source, whole ? 16 : int(row) + r < rows ? bytes : 0);
        source += 8 * row_bytes;
        place += 8 * Tile::kChunks * 16;
      }
    }
  };
  auto by_sixteen = [&](u32 place, const char* source, int bytes) __attribute__((always_inline)) {
    copy<16>(place, source, bytes);
  };
  auto by_four = [&](u32 place, const char* source, int bytes) __attribute__((always_inline)) {
#pragma unroll
    for (int i = 0; i < 16; i += 4) copy<4>(place + i, source + i, min(max(bytes - i, 0), 4));
  };
  if (steps.column == 1 && alignment % 4 == 0) {
    if (alignment % 16 != 0) {
      for_each_chunk(false, by_four);
    } else if (rows >= Tile::kRows && keys >= Tile::kKeys) {
      for_each_chunk(true, by_sixteen);
    } else {
      for_each_chunk(false, by_sixteen);
    }
    arrive_after_copies(full);
  } else {
#pragma unroll 1
    for (u32 index = lane; index < Tile::kRows * Tile::kChunks; index += 32) {
      const u32 row = index / Tile::kChunks, chunk = index % Tile::kChunks;
      const u16* source = reinterpret_cast<const u16*>(from + row * row_bytes) + chunk * 8 * steps.column;
      u32 words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i] = 0;
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (int(row) < rows && int(chunk) * 8 + 2 * i + e < keys)
            words[i] |= u32(source[(2 * i + e) * steps.column]) << (16 * e);
      }
      store_shared(to + Tile::place(row, chunk), words);
    }
    mbarrier_arrive(full);
  }
}

}  // namespace heed::kernels
