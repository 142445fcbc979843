// From the caller's memory (any type, any strides) to the layouts the products read, and back.
#pragma once

#include "cpu/forward_job.hpp"
#include "cpu/kernels/products.hpp"

namespace heed::cpu::HEED_ISA {

HEED_INLINE int smaller(int a, int b) { return a < b ? a : b; }
HEED_INLINE int larger(int a, int b) { return a > b ? a : b; }
HEED_INLINE float at_least(float low, float x) { return x < low ? low : x; }
HEED_INLINE float at_most(float high, float x) { return x > high ? high : x; }
HEED_INLINE long size_of(Element t) { return t == Element::f32 ? 4 : 2; }
HEED_INLINE int round_up(int x, int step) { return (x + step - 1) / step * step; }

HEED_INLINE const char* address(const Plane& p, int64_t head, int64_t row, int64_t column) {
  return static_cast<const char*>(p.data) + (head * p.head + row * p.row + column * p.column) * size_of(p.type);
}

/// n <= kLanes elements that lie next to each other, as f32; the other lanes are 0.
HEED_INLINE F load_elements(const void* p, Element type, int n) {
  if (type == Element::f32) return load_f32(p, n);
  return type == Element::f16 ? load_f16(p, n) : load_bf16(p, n);
}
HEED_INLINE void store_elements(void* p, Element type, F x, int n) {
  if (type == Element::f32) return store_f32(p, x, n);
  if (type == Element::f16)
    store_f16(p, x, n);
  else
    store_bf16(p, x, n);
}
/// One element of any type, whatever its alignment.
HEED_INLINE float load_element(const void* p, Element type) {
  alignas(64) float t[kLanes];
  store(t, load_elements(p, type, 1));
  return t[0];
}

/// kLanes words of a row of `count` elements: f32, or (Dot) pairs as they lie. Lanes past the end are 0.
template <bool Dot>
HEED_INLINE F load_words(const char* row, Element type, int count, int word) {
  const int n = smaller(count - (Dot ? 2 * word : word), Dot ? 2 * kLanes : kLanes);
  if (n <= 0) return zero();
#ifdef __AVX512BF16__
  if constexpr (Dot) return load_pairs(row + 4l * word, n);
#endif
  return load_elements(row + word * size_of(type), type, n);
}

/// kStrip query rows of the job as q [words][kStrip]: f32 scaled by `scale`, or (Dot) bf16 pairs with the sign of
/// `scale`. Rows past `rows` and words past d are 0.
template <bool Dot>
HEED_NOINLINE void pack_queries(const ForwardJob& job, int64_t first_row, int rows, float scale, int words, float* q) {
  const char* all_rows[kStrip];
  for (int r = 0; r < kStrip; ++r) {
    const int64_t n = first_row + r;
    all_rows[r] = r < rows ? address(job.q, n % job.heads, n / job.heads, 0) : nullptr;
    if (r < smaller(rows, kLanes)) fetch_row(all_rows[r], job.d * size_of(job.q.type));
  }
  for (int r = 0; r < kStrip; r += kLanes) {
    const char* const* row = all_rows + r;
    for (int i = r + kLanes; i < smaller(rows, r + 2 * kLanes); ++i)
      fetch_row(all_rows[i], job.d * size_of(job.q.type));
    for (int w = 0; w < words; w += kLanes) {
      F x[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        x[i] = row[i] != nullptr ? load_words<Dot>(row[i], job.q.type, job.d, w) : zero();
        if constexpr (!Dot)
          x[i] = mul(x[i], broadcast(scale));
        else if (scale < 0)
          x[i] = as_float(xor_int(as_int(x[i]), broadcast_int(static_cast<int>(0x80008000u))));
      }
      transpose(x);
      const int n = smaller(words - w, kLanes);
      for (int i = 0; i < n; ++i) store(q + static_cast<long>(w + i) * kStrip + r, x[i]);
    }
  }
}

/// Keys [first, first + keys) as rows of `row_words` words (f32, or bf16 pairs with Dot); words past d and rows up to
/// `padded` are 0.
template <bool Dot>
HEED_NOINLINE void pack_keys(const ForwardJob& job, int first, int keys, int padded, int row_words, float* k) {
  for (int key = 0; key < padded; ++key, k += row_words) {
    const char* row = key < keys ? address(job.k, 0, first + key, 0) : nullptr;
    for (int w = 0; w < row_words; w += kLanes) {
      const F x = row != nullptr ? load_words<Dot>(row, job.k.type, job.d, w) : zero();
      store_f32(k + w, x, smaller(row_words - w, kLanes));
    }
  }
}

/// One row of kLanes value columns starting at `column`, of a V whose columns do not lie next to each other.
HEED_INLINE F gather_values(const ForwardJob& job, int key, int column, int n) {
  alignas(64) float t[kLanes] = {};
  for (int i = 0; i < n; ++i) t[i] = load_element(address(job.v, 0, key, column + i), job.v.type);
  return load(t);
}

constexpr int kQuads = kLanes / 4;

/// Rows of kLanes value columns, of kQuads keys, as the words of those keys in `panels` panels of four columns, which
/// are `stride` apart.
HEED_INLINE void store_panels(F (&x)[kQuads], float* to, long stride, int panels) {
  transpose_quads(x);
  HEED_UNROLL for (int q = 0; q < kQuads; ++q) if (q < panels) store(to + q * stride, x[q]);
}

/// pack_values() and pack_value_pairs() for a V whose rows are next to each other (column-major): squares of words and
/// columns, transposed.
template <bool Dot>
HEED_NOINLINE bool pack_column_major_values(const ForwardJob& job, int first, int keys, int padded, float* v) {
  constexpr int kKeysPerWord = Dot ? 2 : 1;
  const int all = padded / kKeysPerWord;  // words of a column
  F zeros = zero();                       // x * 0 is 0 unless x is infinite or NaN
  const auto fetch = [&](int c) {
    for (int i = c; i < smaller(job.d_v, c + kLanes); ++i)
      fetch_row(address(job.v, 0, first, i), keys * size_of(job.v.type));
  };
  fetch(0);
  for (int c = 0; c < job.d_v; c += kLanes) {
    const int columns = smaller(job.d_v - c, kLanes);
    fetch(c + kLanes);
    for (int word = 0; word < all; word += kLanes) {
      F x[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        x[i] = i < columns ? load_words<Dot>(address(job.v, 0, first, c + i), job.v.type, keys, word) : zero();
        zeros = fma(x[i], zero(), zeros);
        if constexpr (Dot) zeros = fma(as_float(shift_left<16>(as_int(x[i]))), zero(), zeros);
      }
      transpose(x);
      for (int i = 0; i < smaller(kLanes, all - word); i += kQuads) {
        F rows[kQuads];
        HEED_UNROLL for (int r = 0; r < kQuads; ++r) rows[r] = x[i + r];
        store_panels(rows, v + static_cast<long>(c) * all + 4 * (word + i), 4l * all, (columns + 3) / 4);
      }
    }
  }
  return sum_lanes(zeros) == 0.f;
}

/// Values [first, first + keys) as panels [d_v / 4][padded keys][4] of f32; keys up to `padded` and columns past d_v
/// are 0. Returns whether every value is finite: infinities and NaN must not meet the zeros of hidden keys.
HEED_NOINLINE bool pack_values(const ForwardJob& job, int first, int keys, int padded, float* v) {
  const bool dense = job.v.column == 1;
  if (!dense && job.v.row == 1) return pack_column_major_values<false>(job, first, keys, padded, v);
  F zeros = zero();  // x * 0 is 0 unless x is infinite or NaN
  for (int key = 0; key < padded; key += kQuads) {
    for (int c = 0; c < job.d_v; c += kLanes) {
      const int n = smaller(job.d_v - c, kLanes);
      F x[kQuads];
      HEED_UNROLL for (int i = 0; i < kQuads; ++i) {
        x[i] = zero();
        if (key + i < keys)
          x[i] = dense ? load_elements(address(job.v, 0, first + key + i, c), job.v.type, n)
                       : gather_values(job, first + key + i, c, n);
        zeros = fma(x[i], zero(), zeros);
      }
      store_panels(x, v + static_cast<long>(c) * padded + 4 * key, 4l * padded, (n + 3) / 4);
    }
  }
  return sum_lanes(zeros) == 0.f;
}

#ifdef __AVX512BF16__
/// 16 columns of one bf16 value row, widened to 32-bit integers.
HEED_INLINE I load_value_bits(const ForwardJob& job, int key, int column, int n) {
  if (job.v.column == 1) return _mm512_cvtepu16_epi32(load_halves(address(job.v, 0, key, column), n));
  alignas(64) int32_t t[kLanes] = {};
  for (int i = 0; i < n; ++i) {
    uint16_t bits;
    __builtin_memcpy(&bits, address(job.v, 0, key, column + i), 2);
    t[i] = bits;
  }
  return load_int(t);
}

/// n <= 32 columns of one bf16 value row as they lie; the rest is 0.
HEED_INLINE I load_value_halves(const ForwardJob& job, int key, int column, int n) {
  if (job.v.column == 1) return as_int(load_pairs(address(job.v, 0, key, column), n));
  alignas(64) uint16_t t[2 * kLanes] = {};
  for (int i = 0; i < n; ++i) __builtin_memcpy(&t[i], address(job.v, 0, key, column + i), 2);
  return load_int(t);
}

/// The same for the bf16 dot: panels [d_v / 4][padded keys / 2][4 words], a word holding two keys of one column.
/// Interleaving the rows of two keys leaves the even groups of four columns in one vector and the odd ones in another.
HEED_NOINLINE bool pack_value_pairs(const ForwardJob& job, int first, int keys, int padded, float* v) {
  if (job.v.column != 1 && job.v.row == 1) return pack_column_major_values<true>(job, first, keys, padded, v);
  const int half = padded / 2;
  const I magnitude = _mm512_set1_epi16(0x7fff);
  I largest = broadcast_int(0);  // as whole numbers the bits of |x| are in the order of |x|, NaN above infinity
  for (int pair = 0; pair < half; pair += kQuads) {
    for (int c = 0; c < job.d_v; c += 2 * kLanes) {
      const int n = smaller(job.d_v - c, 2 * kLanes), panels = (n + 3) / 4;
      F even[kQuads], odd[kQuads];
      HEED_UNROLL for (int i = 0; i < kQuads; ++i) {
        const int key = 2 * (pair + i);
        const I low = key < keys ? load_value_halves(job, first + key, c, n) : broadcast_int(0);
        const I high = key + 1 < keys ? load_value_halves(job, first + key + 1, c, n) : broadcast_int(0);
        largest = _mm512_max_epu16(largest, _mm512_max_epu16(and_int(low, magnitude), and_int(high, magnitude)));
        even[i] = as_float(_mm512_unpacklo_epi16(low, high));
        odd[i] = as_float(_mm512_unpackhi_epi16(low, high));
      }
      float* to = v + static_cast<long>(c) * half + 4 * pair;
      store_panels(even, to, 8l * half, (panels + 1) / 2);
      store_panels(odd, to + 4l * half, 8l * half, panels / 2);
    }
  }
  constexpr short kInfinity = 0x7f80;
  return _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(kInfinity)) == 0;
}
#endif

/// Row r of partial results: O, then the three numbers of RowSums.
HEED_INLINE float* partial_row(float* partial, const ForwardJob& job, int64_t r) {
  return partial + r * (job.d_v + kPartialExtra);
}

/// o [d_v][kStrip] times factor [kStrip], back to rows of the caller's O (or of `partial`).
HEED_NOINLINE void unpack_output(const ForwardJob& job, int64_t first_row, int rows, const float* o,
                                 const float* factor, float* partial) {
  const Element type = partial != nullptr ? Element::f32 : job.o.type;
  char* all_rows[kStrip];
  for (int r = 0; r < rows; ++r) {
    const int64_t n = first_row + r;
    all_rows[r] = partial != nullptr ? reinterpret_cast<char*>(partial_row(partial, job, r))
                                     : const_cast<char*>(address(job.o, n % job.heads, n / job.heads, 0));
    if (r < kLanes) fetch_row(all_rows[r], job.d_v * size_of(type));
  }
  for (int r = 0; r < rows; r += kLanes) {
    const F f = load(factor + r);
    const int filled = smaller(rows - r, kLanes);
    char* const* to = all_rows + r;
    for (int i = r + kLanes; i < smaller(rows, r + 2 * kLanes); ++i) fetch_row(all_rows[i], job.d_v * size_of(type));
    for (int c = 0; c < job.d_v; c += kLanes) {
      const int n = smaller(job.d_v - c, kLanes);
      F x[kLanes];
      for (int i = 0; i < kLanes; ++i) x[i] = i < n ? mul(load(o + static_cast<long>(c + i) * kStrip + r), f) : zero();
      transpose(x);
      for (int i = 0; i < filled; ++i) store_elements(to[i] + c * size_of(type), type, x[i], n);
    }
  }
}

}  // namespace heed::cpu::HEED_ISA
