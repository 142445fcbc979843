// Boolean and block masks as bits, a whole block of keys at once and ahead of its use: for kernels that have the registers.
// One entry by itself is RowFeatures::visible(), and must come to the same.
#pragma once

#include "forward_features.cuh"

namespace heed::kernels {

/// A bit for each of a thread's R entries of a block, in their order.
template <int R>
struct EntryBits {
  u32 words[(R + 31) / 32];

  __device__ __forceinline__ void fill(u32 with) {
#pragma unroll
    for (u32& word : words) word = with;
  }
  __device__ __forceinline__ bool at(int i) const { return words[i / 32] >> (i % 32) & 1; }
  __device__ __forceinline__ void set_where_unset(float (&x)[R], float to) const {
#pragma unroll
    for (int i = 0; i < R; ++i)
      if (!at(i)) x[i] = to;
  }
};

/// Which entries the boolean and the block mask show. The boolean mask is fetched ahead, so that its loads are under way
/// while something else is waited for, and settled before the bits are used. The whole warp does both.
template <ForwardFeatures F, class T, int R>
struct ShownEntries {
  static constexpr int kKeys = 2 * R;
  static constexpr int kChunks = F.keep ? (kKeys + 63) / 64 : 0;  ///< of 64 keys, sixteen for each of a row's four lanes
  EntryBits<F.bit_masks() ? R : 1> bits;
  u32 raw[2][kChunks > 0 ? kChunks : 1][4];  ///< [row][chunk]: sixteen bytes of the boolean mask
  bool fetched;                              ///< otherwise every entry is loaded for itself, when they are settled

  __device__ __forceinline__ void fetch(const ForwardParams& p, const RowFeatures<F, T> (&rows)[2], int first_key,
                                        int s_k, int lane) {
    if constexpr (F.keep) {
      const u8* places[2] = {rows[0].keep + first_key, rows[1].keep + first_key};
      const u64 both = reinterpret_cast<u64>(places[0]) | reinterpret_cast<u64>(places[1]);
      const bool whole = kKeys % 32 == 0 && p.keep_steps.column == 1 && first_key >= 0 && first_key + kKeys <= s_k;
      fetched = __all_sync(0xffffffffu, whole && both % 4 == 0);
      if (!fetched) return;
      const bool aligned = __all_sync(0xffffffffu, both % 16 == 0);
      const int lane_key = lane % 4 * 16;
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
          u32(&four)[4] = raw[half][chunk];
          if (64 * chunk + 64 > kKeys && lane_key >= 32) {  // the block ends with half a chunk
            four[0] = four[1] = four[2] = four[3] = 0;
            continue;
          }
          const u32* at = reinterpret_cast<const u32*>(places[half] + 64 * chunk + lane_key);
          if (aligned) {
            const uint4 words = *reinterpret_cast<const uint4*>(at);
            four[0] = words.x;
            four[1] = words.y;
            four[2] = words.z;
            four[3] = words.w;
          } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) four[i] = at[i];
          }
        }
    }
  }
  __device__ __forceinline__ void settle(const ForwardParams& p, const RowFeatures<F, T> (&rows)[2], int first_key,
                                         int s_k, int lane) {
    if constexpr (F.bit_masks()) bits.fill(F.keep ? 0 : ~0u);
    if constexpr (F.keep) {
      if (fetched) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int chunk = 0; chunk < kChunks; ++chunk) settle_chunk(half, chunk, lane);
      } else {
        settle_by_entries(p, rows, first_key, s_k, lane);
      }
    }
    if constexpr (F.blocks) hide_by_blocks(p, rows, first_key, s_k, lane);
  }
  __device__ __forceinline__ void hide_others(float (&s)[R]) const {
    if constexpr (F.bit_masks()) bits.set_where_unset(s, -HEED_INFINITY);
  }

 private:
  /// 64 keys of a row: its four lanes make bits of sixteen bytes each and give them to the others.
  __device__ __forceinline__ void settle_chunk(int half, int chunk, int lane) {
    constexpr u32 kLow = 0x7f7f7f7f;
    const int q = lane % 4;
    u32 shown = 0;
#pragma unroll
    for (int i = 3; i >= 0; --i) {
      const u32 four = raw[half][chunk][i];
      const u32 seen = (((four & kLow) + kLow) | four) & ~kLow;  // the highest bit of a byte that is not 0
      // Its bits 7, 15, 23 and 31 become 28 to 31 of the product.
      shown = __funnelshift_l(seen * (1u << 21 | 1u << 14 | 1u << 7 | 1u), shown, 4);
    }
    const u32 beside = __shfl_xor_sync(0xffffffffu, shown, 1);
    const u32 pair = q & 1 ? beside | shown << 16 : shown | beside << 16;
    const u32 far = __shfl_xor_sync(0xffffffffu, pair, 2);
    const u32 row[2] = {q & 2 ? far : pair, q & 2 ? pair : far};  // keys 0 to 31, 32 to 63
#pragma unroll
    for (int w = 0; w < 2 && 64 * chunk + 32 * w < kKeys; ++w) {
      // Of every eight keys this lane's two, side by side in fours, where the other row's two are between them.
      u32 mine = row[w] >> (2 * q) & 0x03030303;
      mine = (mine | mine >> 4) & 0x00330033;
      mine = (mine | mine >> 8) & 0x3333;
      const int entry = 32 * chunk + 16 * w;
      bits.words[entry / 32] |= mine << (entry % 32 + 2 * half);
    }
  }
  __device__ __forceinline__ void settle_by_entries(const ForwardParams& p, const RowFeatures<F, T> (&rows)[2],
                                                    int first_key, int s_k, int lane) {
    int key = first_key + lane % 4 * 2;
#pragma unroll
    for (int w = 0; w < (R + 31) / 32; ++w) {
      const int fours = R / 4 - 8 * w < 8 ? R / 4 - 8 * w : 8;  // of entries
#pragma unroll 1
      for (int n = 0; n < fours; ++n, key += 8) {
        u32 four = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (key + i % 2 < s_k && rows[i / 2].keep[(key + i % 2) * p.keep_steps.column] != 0) four |= 1u << i;
        bits.words[w] |= four << (4 * n);
      }
    }
  }
  /// The first row's entries of word w whose keys are less than `limit` behind this lane's first key.
  static __device__ __forceinline__ u32 entries_below(int limit, int w) {
    const auto fours = [&](int keys) {  // as many of the eight fours of a word
      const int n = min(max((keys >> 3) - 8 * w, 0), 8);
      return n == 8 ? ~0u : (1u << (4 * n)) - 1;
    };
    return (fours(limit + 7) & 0x11111111) | (fours(limit + 6) & 0x22222222);
  }
  __device__ __forceinline__ void hide_by_blocks(const ForwardParams& p, const RowFeatures<F, T> (&rows)[2],
                                                 int first_key, int s_k, int lane) {
    const i64 step = p.block_steps.column;
    const int key0 = first_key + lane % 4 * 2, end_key = min(first_key + kKeys, s_k);
    if (end_key <= first_key) return;  // a sequence without keys
    const int first = first_key / p.block_k, last = (end_key - 1) / p.block_k;
#pragma unroll 1
    for (int column = first; column <= last; ++column) {
      const int begin = column * p.block_k - key0, end = begin + p.block_k;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (rows[half].blocks[column * step] != 0) continue;
#pragma unroll
        for (int w = 0; w < (R + 31) / 32; ++w)
          bits.words[w] &= ~((entries_below(end, w) & ~entries_below(begin, w)) << (2 * half));
      }
    }
  }
};

}  // namespace heed::kernels
