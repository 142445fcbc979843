// The products of attention: all multiply broadcast words by vectors. Two have queries in the lanes, and the backward
// pass one with head dims there:
//   scores       S^T [keys][queries] = K [keys][d] Q^T [d][queries]
//   accumulate   O^T [d_v][queries] += V^T [d_v][keys] P^T [keys][queries]
//   add_outer    dV [keys][d_v] += P^T [keys][queries] dO [queries][d_v]
// A word is one f32, or a pair of bf16 (Dot). 4 rows of words x kVectors vectors are summed in registers.
// docs/kernels/cpu-forward.md has the arithmetic.
#pragma once

#include "cpu/kernels/exp.hpp"

namespace heed::cpu::HEED_ISA {

constexpr int kStrip = kLanes * kVectors;  // queries side by side
constexpr int kRows = 4;                   // broadcast rows per register tile

typedef float LooseWord __attribute__((aligned(1), may_alias));  // a word of K in the caller's memory

/// Asks for the cache lines of one row. The hardware's own prefetching loses its way at every page and in rows that are
/// read by columns.
HEED_INLINE void fetch_row(const char* row, long bytes) {
  constexpr int kSecondLevel = 2;  // into the first level it would push out what is being read
  for (long offset = 0; offset < bytes; offset += 64) __builtin_prefetch(row + offset, 0, kSecondLevel);
}

/// K and V of the block after this one, fetched while this one is multiplied. Its strips share the rows among them:
/// more than a few lines at once would wait for each other.
struct Ahead {
  const char *k, *v;
  long k_step, v_step;  // bytes from row to row
  long k_bytes, v_bytes;
  int strip, strips;

  /// The share of kRows keys, from this key of the block on. A call, because inlined into a product it takes registers
  /// that the product needs.
  HEED_NOINLINE_MEMBER void fetch(int key) const {
    asm volatile("");  // without an effect that it can see, the compiler would leave out the call
    const int from = (strip * kKeyBlock + key) / strips, to = (strip * kKeyBlock + key + kRows) / strips;
    for (int row = from; row < to; ++row) {
      fetch_row(k + row * k_step, k_bytes);
      fetch_row(v + row * v_step, v_bytes);
    }
  }
};

template <bool Dot>
HEED_INLINE F multiply_add(F word, F x, F sum) {
#ifdef __AVX512BF16__
  if constexpr (Dot) return _mm512_dpbf16_ps(sum, (__m512bh)word, (__m512bh)x);
#endif
  static_assert(!Dot || kHasDot);
  return fma(word, x, sum);
}

/// One step along the summed dimension: words a[i * a_row] against the vectors at b.
template <int N, bool Dot>
HEED_INLINE void product_step(F (&sum)[kRows][N], const LooseWord* a, long a_row, const float* b) {
  F x[N];
  HEED_UNROLL for (int j = 0; j < N; ++j) x[j] = load_kept(b + kLanes * j);
  HEED_UNROLL for (int i = 0; i < kRows; ++i) {
    const F word = broadcast(a[i * a_row]);
    HEED_UNROLL for (int j = 0; j < N; ++j) sum[i][j] = multiply_add<Dot>(word, x[j], sum[i][j]);
  }
}

/// s [keys][kStrip] for `keys` (a multiple of 4) rows of k [keys][words] and N vectors of q [words][kStrip].
/// With a running maximum: highest [N vectors] is raised to the largest score of each query.
template <int N, bool Dot, bool Highest>
HEED_NOINLINE void scores(const LooseWord* k, long k_row, const float* q, float* s, int keys, int words,
                          float* highest) {
  for (int key = 0; key < keys; key += kRows, k += kRows * k_row, s += kRows * kStrip) {
    F sum[kRows][N];
    HEED_UNROLL for (int i = 0; i < kRows; ++i) HEED_UNROLL for (int j = 0; j < N; ++j) sum[i][j] = zero();
    for (int w = 0; w < words; ++w) product_step<N, Dot>(sum, k + w, k_row, q + static_cast<long>(w) * kStrip);
    HEED_UNROLL for (int j = 0; j < N; ++j) {
      HEED_UNROLL for (int i = 0; i < kRows; ++i) store(s + i * kStrip + kLanes * j, sum[i][j]);
      if constexpr (Highest) {
        F m = load(highest + kLanes * j);
        HEED_UNROLL for (int i = 0; i < kRows; ++i) m = max(m, sum[i][j]);
        store(highest + kLanes * j, m);
      }
    }
  }
}

/// scores() over all vectors, with the exponentials of another block of at least as many keys spread through the stream
/// of products: the FMA units hardly notice them.
template <bool Dot, int Steps>
HEED_NOINLINE void scores_with_exp(const LooseWord* k, long k_row, const float* q, float* s, int keys, int words,
                                   float* highest, ExpBlock e, const Ahead* ahead) {
  constexpr int kKeysPerUnit = Dot ? 2 : 1;
  constexpr int kUnits = kRows / kKeysPerUnit * kVectors;
  const float* coefficients = kExp2Coefficients;
  const float* factor = &e.factor;
  asm("" : "+r"(coefficients), "+r"(factor) : : "memory");  // read as memory operands: no register is left to hold them
  const int steps = Steps > 0 ? Steps : words / kUnits;
  for (int key = 0; key < keys; key += kRows, k += kRows * k_row, s += kRows * kStrip) {
    if (ahead != nullptr) ahead->fetch(key);
    F sum[kRows][kVectors];
    HEED_UNROLL for (int i = 0; i < kRows; ++i) HEED_UNROLL for (int j = 0; j < kVectors; ++j) sum[i][j] = zero();
    const LooseWord* a = k;
    const float* b = q;
    float* from = e.s + static_cast<long>(key) * kStrip;
    float* to = e.s + static_cast<long>(key / kKeysPerUnit) * kStrip;
    for (int row = 0; row < kRows / kKeysPerUnit; ++row, from += kKeysPerUnit * kStrip, to += kStrip) {
      HEED_UNROLL for (int j = 0; j < kVectors; ++j) {
        exp_unit<Dot>(from + kLanes * j, to + kLanes * j, e.maximum + kLanes * j, e.sum + kLanes * j,
                      e.weights + kLanes * j, coefficients, factor);
        HEED_UNROLL for (int u = 0; u < steps; ++u, ++a, b += kStrip) product_step<kVectors, Dot>(sum, a, k_row, b);
      }
    }
    for (int w = steps * kUnits; w < words; ++w, ++a, b += kStrip) product_step<kVectors, Dot>(sum, a, k_row, b);
    HEED_UNROLL for (int j = 0; j < kVectors; ++j) {
      F m = load(highest + kLanes * j);
      HEED_UNROLL for (int i = 0; i < kRows; ++i) {
        m = max(m, sum[i][j]);
        store(s + i * kStrip + kLanes * j, sum[i][j]);
      }
      store(highest + kLanes * j, m);
    }
  }
}

/// o [4 * panels][kStrip] += v (panels of [panel_words][4 words]) times p [words][kStrip], for N vectors of queries.
/// Every call sums from zero and adds once: two to three times less rounding error than one running sum.
template <int N, bool Dot>
HEED_NOINLINE void accumulate(const float* v, long panel_words, const float* p, float* o, int words, int panels) {
  for (int panel = 0; panel < panels; ++panel, v += panel_words * kRows, o += kRows * kStrip) {
    F sum[kRows][N];
    HEED_UNROLL for (int i = 0; i < kRows; ++i) HEED_UNROLL for (int j = 0; j < N; ++j) sum[i][j] = zero();
    const float* b = p;
    const LooseWord* a = v;
    for (int w = 0; w < words; ++w, a += kRows, b += kStrip) product_step<N, Dot>(sum, a, 1, b);
    HEED_UNROLL for (int i = 0; i < kRows; ++i) HEED_UNROLL for (int j = 0; j < N; ++j) {
      float* to = o + i * kStrip + kLanes * j;
      store(to, add(load(to), sum[i][j]));
    }
  }
}

/// c [keys][pitch] += a [keys][terms] b [terms][pitch], in words; keys is a multiple of 4. Every call sums from zero
/// and adds once.
template <int N, bool Dot>
HEED_NOINLINE void add_outer(const float* a, long a_row, const float* b, float* c, long pitch, int keys, int terms) {
  for (int key = 0; key < keys; key += kRows, a += kRows * a_row, c += kRows * pitch) {
    F sum[kRows][N];
    HEED_UNROLL for (int i = 0; i < kRows; ++i) HEED_UNROLL for (int j = 0; j < N; ++j) sum[i][j] = zero();
    const float* at = b;
    for (int t = 0; t < terms; ++t, at += pitch) product_step<N, Dot>(sum, a + t, a_row, at);
    HEED_UNROLL for (int i = 0; i < kRows; ++i) HEED_UNROLL for (int j = 0; j < N; ++j) {
      float* const to = c + i * pitch + kLanes * j;
      store(to, add(load(to), sum[i][j]));
    }
  }
}

}  // namespace heed::cpu::HEED_ISA
