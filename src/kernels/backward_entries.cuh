// What the backward pass of the Hopper family reads for every pair of a query and a key: bias and boolean mask.
//
// In memory the keys of a query are neighbours; a thread of S^T has two keys and many queries. So lanes read as S would have it,
// two neighbouring keys of one query at a time, and the warp transposes what it has read, eight queries by eight keys at once.
// A bias that was copied into shared memory is transposed as ldmatrix reads it.
#pragma once

#include "copied_bias.cuh"
#include "forward_features.cuh"
#include "mma.cuh"

namespace heed::kernels {

/// Sixteen queries by sixteen keys. [query half][key half]: first two keys of one query, then, transposed, two queries of one
/// key. kBytes: of an element, 1, 2 or 4.
template <int kBytes>
struct PairEntries {
  static constexpr int kWords = kBytes == 4 ? 2 : 1;
  u32 word[2][2][kWords];

  /// `data`: query 0, key 0. Behind the sequence's ends it is as if there were `outside`.
  __device__ __forceinline__ void fetch(const void* data, const Steps& steps, const Sequence& sequence, int first_query,
                                        int first_key, int lane, u32 outside) {
    const int query = first_query + lane / 4, key = first_key + lane % 4 * 2;
    const char* at = static_cast<const char*>(data) + (query * steps.row + key * steps.column) * kBytes;
    const bool whole = first_query + 16 <= sequence.s_q && first_key + 16 <= sequence.s_k;
    // The same in all lanes: keys differ by two, rows by an even number of elements.
    const bool in_pairs =
        steps.column == 1 && steps.row % 2 == 0 && reinterpret_cast<u64>(at) % (2 * kBytes) == 0;
    if (whole && in_pairs) {
#pragma unroll
      for (int q = 0; q < 2; ++q)
#pragma unroll
        for (int k = 0; k < 2; ++k) load_two(word[q][k], at + (q * steps.row + k) * (8 * kBytes));
    } else {
#pragma unroll
      for (int q = 0; q < 2; ++q)
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          u32 one[2] = {outside, outside};
#pragma unroll
          for (int e = 0; e < 2; ++e)
            if (query + 8 * q < sequence.s_q && key + 8 * k + e < sequence.s_k)
              one[e] = load_one(at + (8 * q * steps.row + (8 * k + e) * steps.column) * kBytes);
          put(word[q][k], one[0], one[1]);
        }
    }
  }
  /// Before entries are read.
  __device__ __forceinline__ void transpose() {
#pragma unroll
    for (int q = 0; q < 2; ++q)
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        u32(&w)[kWords] = word[q][k];
        if constexpr (kBytes == 4) {
          const u32 low = transpose_8x8(__byte_perm(w[0], w[1], 0x5410));
          const u32 high = transpose_8x8(__byte_perm(w[0], w[1], 0x7632));
          w[0] = __byte_perm(low, high, 0x5410);
          w[1] = __byte_perm(low, high, 0x7632);
        } else {
          w[0] = transpose_8x8(w[0]);
        }
      }
  }
  /// Transposed, from shared memory: `at` is this lane's row of a matrix, of [query half][key half][8 queries].
  __device__ __forceinline__ void read_transposed(u32 at) {
    static_assert(kBytes == 2);
    u32 four[4];
    load_transposed(four, at);
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i / 2][i % 2][0] = four[i];
  }
  /// The bits of query 2 * (lane % 4) + e of its half.
  __device__ __forceinline__ u32 at(int query_half, int key_half, int e) const {
    const u32(&w)[kWords] = word[query_half][key_half];
    if constexpr (kBytes == 4) {
      return w[e];
    } else {
      return w[0] >> (16 * e) & 0xffff;
    }
  }

 private:
  __device__ __forceinline__ static void load_two(u32 (&to)[kWords], const char* from) {
    if constexpr (kBytes == 4) {
      const uint2 two = *reinterpret_cast<const uint2*>(from);
      to[0] = two.x;
      to[1] = two.y;
    } else if constexpr (kBytes == 2) {
      to[0] = *reinterpret_cast<const u32*>(from);
    } else {
      to[0] = __byte_perm(*reinterpret_cast<const u16*>(from), 0, 0x4140);  // a byte in each half
    }
  }
  __device__ __forceinline__ static u32 load_one(const char* from) {
    if constexpr (kBytes == 4) return *reinterpret_cast<const u32*>(from);
    if constexpr (kBytes == 2) return *reinterpret_cast<const u16*>(from);
    return *reinterpret_cast<const u8*>(from);
  }
  __device__ __forceinline__ static void put(u32 (&to)[kWords], u32 first, u32 second) {
    if constexpr (kBytes == 4) {
      to[0] = first;
      to[1] = second;
    } else {
      to[0] = first | second << 16;
    }
  }
};

/// The entries of a warp: 16 keys from first_key on, of queries from first_query on.
struct EntryPlace {
  int batch, head, first_query, first_key, lane;
};

/// The entries of a tensor for a block of kM queries. kEarly: all of them are fetched before they are used; else 16 queries
/// at a time, where they are used.
template <int kBytes, bool kEarly, int kM>
struct BlockOfEntries {
  PairEntries<kBytes> held[kEarly ? kM / 16 : 1];

  __device__ __forceinline__ void fetch_early(const void* data, const Steps& steps, const Sequence& q,
                                              const EntryPlace& place, u32 outside) {
    if constexpr (kEarly) {
#pragma unroll
      for (int i = 0; i < kM / 16; ++i) fetch(data, steps, q, place, i, outside);
    }
  }
  /// Of the i-th 16 queries, ready to be read.
  __device__ __forceinline__ const PairEntries<kBytes>& of(const void* data, const Steps& steps, const Sequence& q,
                                                           const EntryPlace& place, int i, u32 outside) {
    if constexpr (!kEarly) fetch(data, steps, q, place, i, outside);
    PairEntries<kBytes>& sixteen = held[kEarly ? i : 0];
    sixteen.transpose();
    return sixteen;
  }

 private:
  __device__ __forceinline__ void fetch(const void* data, const Steps& steps, const Sequence& q, const EntryPlace& place,
                                        int i, u32 outside) {
    const char* of_head =
        static_cast<const char*>(data) + (place.batch * steps.batch + place.head * steps.head) * kBytes;
    held[kEarly ? i : 0].fetch(of_head, steps, q, place.first_query + 16 * i, place.first_key, place.lane, outside);
  }
};

/// The entries of a block of kM queries that lie in shared memory. They are read where they are used: earlier they would
/// only take registers.
template <int kM>
struct CopiedEntries {
  using Tile = CopiedBias<kM, 128>;
  PairEntries<2> held;
  u32 at;  ///< this lane's row of the first 16 queries

  /// `key`: the warp's first one in the tile.
  __device__ __forceinline__ void begin(u32 tile, u32 key, u32 lane) {
    at = tile + Tile::place(lane / 16 * 8 + lane % 8, key / 8 + lane / 8 % 2);
  }
  __device__ __forceinline__ const PairEntries<2>& of(int i) {
    held.read_transposed(at + Tile::place(16 * i, 0));
    return held;
  }
};

/// Bias and boolean mask. Those of few bytes are fetched while the products are computed, where other features leave
/// registers for them. kCopied: the bias was copied into shared memory.
template <ForwardFeatures F, class T, int kM, bool kCopied = false>
struct BlockEntries {
  static constexpr bool kBias = F.bias != BiasType::none;
  static constexpr int kBiasBytes = F.bias == BiasType::f32 ? 4 : 2;
  static constexpr bool kRoom = F.weight() <= 4;
  BlockOfEntries<kBiasBytes, kBias && kBiasBytes == 2 && kRoom && !kCopied, kM> bias;
  CopiedEntries<kM> copied;
  BlockOfEntries<1, F.keep && kRoom, kM> keep;

  __device__ __forceinline__ void fetch(const ForwardParams& p, const Sequence& q, const EntryPlace& place) {
    bias.fetch_early(p.bias, p.bias_steps, q, place, 0);
    keep.fetch_early(p.keep, p.keep_steps, q, place, 1);
  }
  __device__ __forceinline__ const PairEntries<kBiasBytes>& bias_of(const ForwardParams& p, const Sequence& q,
                                                                    const EntryPlace& place, int i) {
    if constexpr (kCopied) return copied.of(i);
    return bias.of(p.bias, p.bias_steps, q, place, i, 0);
  }
  __device__ __forceinline__ const PairEntries<1>& keep_of(const ForwardParams& p, const Sequence& q,
                                                           const EntryPlace& place, int i) {
    return keep.of(p.keep, p.keep_steps, q, place, i, 1);
  }
  /// The bias with these bits.
  __device__ __forceinline__ static float value(u32 bits) {
    if constexpr (kBiasBytes == 4) {
      return __uint_as_float(bits);
    } else {
      return to_float<T>(u16(bits));
    }
  }
};

}  // namespace heed::kernels
