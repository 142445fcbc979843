// The arithmetic units a tile can be computed on: how words are laid out, and which products run.
#pragma once

#include "cpu/kernels/pack.hpp"

namespace heed::cpu::HEED_ISA {

/// Calls f with the number n as a compile-time constant, 1 <= n <= kVectors.
template <class Function>
HEED_INLINE void with_vectors(int n, Function f) {
  if (n == kVectors) return f.template operator()<kVectors>();
  if (n == 1) return f.template operator()<1>();
  if constexpr (kVectors > 2)
    if (n == 2) return f.template operator()<2>();
  if constexpr (kVectors > 3) f.template operator()<3>();
}

/// f32 FMA, or with Dot the bf16 dot product (pairs of elements in each word).
template <bool Dot>
struct VectorUnit {
  static constexpr bool kPairs = Dot;
  static constexpr bool kFuseExp = HEED_ISA::kFuseExp;
  static constexpr int kKeyStep = 16;  // blocks are padded to a multiple of this many keys
  static constexpr int kOutputStep = kRows;
  static constexpr int kVectorStep = 1;  // vectors of queries come in multiples of this many

  static int words(int d) { return Dot ? (d + 1) / 2 : d; }
  static long value_floats(int d_v, int keys) { return static_cast<long>(round_up(d_v, kRows)) * keys / (Dot ? 2 : 1); }
  static void begin_tile() {}
  static void end_tile() {}

  /// Whether K can be read where it lies.
  static bool reads_in_place(const ForwardJob& job) {
    return Dot ? job.d % 2 == 0 && job.k.row % 2 == 0 : job.k.type == Element::f32;
  }
  static long in_place_row(const ForwardJob& job) { return Dot ? job.k.row / 2 : job.k.row; }

  static bool pack_values(const ForwardJob& job, int first, int keys, int padded, float* v) {
#ifdef __AVX512BF16__
    if constexpr (Dot) return pack_value_pairs(job, first, keys, padded, v);
#endif
    return HEED_ISA::pack_values(job, first, keys, padded, v);
  }
  static void scores(int vectors, const LooseWord* k, long k_row, const float* q, float* s, int keys, int words) {
    with_vectors(vectors, [&]<int N>() { HEED_ISA::scores<N, Dot, false>(k, k_row, q, s, keys, words, nullptr); });
  }
  static void scores_and_highest(const LooseWord* k, long k_row, const float* q, float* s, int keys, int words,
                                 float* highest) {
    HEED_ISA::scores<kVectors, Dot, true>(k, k_row, q, s, keys, words, highest);
  }
  static void scores_with_exp(const LooseWord* k, long k_row, const float* q, float* s, int keys, int words,
                              float* highest, const ExpBlock& e, const Ahead* ahead) {
    constexpr int kUnits = (Dot ? 2 : 4) * kVectors;  // d = 64 and d = 128 are unrolled
    if (words == 4 * kUnits)
      HEED_ISA::scores_with_exp<Dot, 4>(k, k_row, q, s, keys, words, highest, e, ahead);
    else if (words == 8 * kUnits)
      HEED_ISA::scores_with_exp<Dot, 8>(k, k_row, q, s, keys, words, highest, e, ahead);
    else
      HEED_ISA::scores_with_exp<Dot, 0>(k, k_row, q, s, keys, words, highest, e, ahead);
  }
  /// Keys [first, first + keys) of a block of `padded`, for the vectors [low, low + vectors).
  static void accumulate(int vectors, int low, const float* v, int padded, const float* p, float* o, int first,
                         int keys, int d_v) {
    constexpr int kKeysPerWord = Dot ? 2 : 1;
    const int word = first / kKeysPerWord;
    with_vectors(vectors, [&]<int N>() {
      HEED_ISA::accumulate<N, Dot>(v + word * kRows, padded / kKeysPerWord,
                                   p + static_cast<long>(word) * kStrip + low * kLanes, o + low * kLanes,
                                   keys / kKeysPerWord, (d_v + kRows - 1) / kRows);
    });
  }
  /// c [keys][pitch] += a [keys][terms] b [terms][pitch], in words: as many vectors of columns at a time as there are
  /// registers for.
  static void add_outer(const float* a, long a_row, const float* b, float* c, int pitch, int keys, int terms) {
    for (int column = 0; column < pitch; column += kStrip)
      with_vectors(smaller(pitch - column, kStrip) / kLanes,
                   [&]<int N>() { HEED_ISA::add_outer<N, Dot>(a, a_row, b + column, c + column, pitch, keys, terms); });
  }
};

using F32Unit = VectorUnit<false>;

}  // namespace heed::cpu::HEED_ISA
