// What each query of a strip may see, and the bits of masks that are not windows.
#pragma once

#include "cpu/kernels/pack.hpp"

namespace heed::cpu::HEED_ISA {

/// The windows of a strip: lane r sees keys [begin, end) and [0, sink). Lanes without a row repeat the last row;
/// vectors without a row see nothing, so that nothing is computed for them.
struct StripWindows {
  alignas(64) int32_t begin[kStrip];
  alignas(64) int32_t end[kStrip];
  alignas(64) int32_t sink[kStrip];
  // Over the lanes of each vector: what any of them sees.
  int32_t any_begin[kVectors], any_end[kVectors], any_sink[kVectors];
  // Over the whole strip: what all of them see, and what any of them sees.
  int32_t all_begin, all_end, first, last, last_sink;

  void set(const ForwardJob& job, int64_t first_row, int rows);
  bool sees(int key, int keys) const { return (key < last && key + keys > first) || key < last_sink; }
  /// Of these keys, how many lie between the first and the last that any row sees; sink keys not counted.
  int keys_seen(int key, int keys) const { return larger(0, smaller(key + keys, last) - larger(key, first)); }
  bool sees_all(int key, int keys) const { return all_begin <= key && key + keys <= all_end; }
  /// The lanes of a vector that see key j; j is the same in all of them.
  HEED_INLINE_MEMBER M visible(I j, int vector) const {
    const M window = both(less_equal(load_int(&begin[vector * kLanes]), j), less(j, load_int(&end[vector * kLanes])));
    return either(window, less(j, load_int(&sink[vector * kLanes])));
  }
  /// The vectors [low, high) in which anything of keys [key, key + keys) is visible.
  void active_vectors(int key, int keys, int& low, int& high) const {
    low = kVectors;
    high = 0;
    for (int v = 0; v < kVectors; ++v)
      if ((key < any_end[v] && key + keys > any_begin[v]) || key < any_sink[v]) {
        low = smaller(low, v);
        high = v + 1;
      }
  }
};

HEED_INLINE int32_t clamp_key(int64_t key, int64_t s_k) {
  return static_cast<int32_t>(key < 0 ? 0 : key < s_k ? key : s_k);
}

inline void StripWindows::set(const ForwardJob& job, int64_t first_row, int rows) {
  all_begin = last = last_sink = 0;
  all_end = first = job.s_k;
  for (int v = 0; v < kVectors; ++v) {
    any_begin[v] = job.s_k;
    any_end[v] = any_sink[v] = 0;
  }
  for (int r = 0; r < kStrip; ++r) {
    const int v = r / kLanes;
    const int64_t i = (first_row + smaller(r, rows - 1)) / job.heads;
    const bool empty = v * kLanes >= rows;
    begin[r] = empty ? 0 : clamp_key(i - job.mask_y + 1, job.s_k);
    end[r] = empty ? 0 : clamp_key(i + job.mask_x, job.s_k);
    sink[r] = smaller(clamp_key(job.mask_sink, job.s_k), end[r]);
    if (begin[r] < end[r]) {
      any_begin[v] = smaller(any_begin[v], begin[r]);
      any_end[v] = larger(any_end[v], end[r]);
    }
    any_sink[v] = larger(any_sink[v], sink[r]);
    all_begin = larger(all_begin, begin[r]);
    all_end = smaller(all_end, end[r]);
  }
  for (int v = 0; v < kVectors; ++v) {
    first = smaller(first, any_begin[v]);
    last = larger(last, any_end[v]);
    last_sink = larger(last_sink, any_sink[v]);
  }
}

/// One bit per (key of a block, lane): bits[key / 32][lane] >> key % 32.
struct BlockBits {
  alignas(64) uint32_t words[kKeyBlock / 32][kStrip];

  HEED_INLINE_MEMBER M visible(int key, int vector) const {
    return bit_set(load_int(&words[key / 32][vector * kLanes]), broadcast_int(static_cast<int>(1u << (key % 32))));
  }
};

/// Which rows of a strip see which of the keys from `first` on. A weight does not tell: one of a visible key may be too
/// small for f32.
struct VisiblePairs {
  const StripWindows& windows;
  const BlockBits* bits;  // null: no boolean or block mask
  int first;

  M lanes(int key, int vector) const {
    const M seen = windows.visible(broadcast_int(first + key), vector);
    return bits == nullptr ? seen : both(seen, bits->visible(key, vector));
  }
  bool row(int key, int r) const {
    const int j = first + key;
    const bool seen = (windows.begin[r] <= j && j < windows.end[r]) || j < windows.sink[r];
    return seen && (bits == nullptr || (bits->words[key / 32][r] >> (key % 32) & 1u) != 0);
  }
};

/// The bits of one query row of the boolean mask for keys [key, key + n), n <= 32.
HEED_INLINE uint32_t keep_bits(const uint8_t* row, int64_t column, int key, int n) {
  if (column == 1 && n == 32) return nonzero_bytes32(row + key);
  uint32_t bits = 0;
  for (int i = 0; i < n; ++i) bits |= (row[(key + i) * column] != 0 ? 1u : 0u) << i;
  return bits;
}

/// Likewise of the block mask: runs of keys that share one byte.
HEED_INLINE uint32_t block_bits(const uint8_t* row, int64_t column, int block_k, int key, int n) {
  uint32_t bits = 0;
  for (int i = 0; i < n;) {
    const int block = (key + i) / block_k;
    const int run = smaller(n - i, (block + 1) * block_k - (key + i));
    if (row[block * column] != 0) bits |= (run == 32 ? ~0u : (1u << run) - 1u) << i;
    i += run;
  }
  return bits;
}

/// Boolean and block masks of the strip for keys [first, first + keys). Returns whether anything is kept.
HEED_NOINLINE bool gather_mask_bits(const ForwardJob& job, int64_t first_row, int rows, int first, int keys,
                                    BlockBits& bits) {
  uint32_t any_kept = 0;
  for (int r = 0; r < kStrip; ++r) {
    const int64_t n = first_row + smaller(r, rows - 1), i = n / job.heads, g = n % job.heads;
    const uint8_t* keep = job.keep == nullptr ? nullptr : job.keep + g * job.keep_head + i * job.keep_row;
    const uint8_t* blocks =
        job.blocks == nullptr ? nullptr : job.blocks + g * job.blocks_head + i / job.block_q * job.blocks_row;
    for (int word = 0; word < kKeyBlock / 32; ++word) {
      const int count = larger(0, smaller(32, keys - 32 * word)), key = first + 32 * word;
      uint32_t kept = count == 0 ? 0u : ~0u;
      if (keep != nullptr && count > 0) kept &= keep_bits(keep, job.keep_column, key, count);
      if (blocks != nullptr && count > 0) kept &= block_bits(blocks, job.blocks_column, job.block_k, key, count);
      bits.words[word][r] = kept;
      any_kept |= kept;
    }
  }
  return any_kept != 0;
}

}  // namespace heed::cpu::HEED_ISA
