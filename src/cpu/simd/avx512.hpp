// 512-bit vectors. Included by one translation unit per ISA level, inside no namespace of its own making but
// HEED_ISA's.
#pragma once

#include "cpu/simd/common.hpp"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // gcc 12's own intrinsics start from an undefined vector
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

namespace heed::cpu::HEED_ISA {

constexpr int kLanes = 16;
constexpr int kVectors = 4;  // vectors of queries side by side: 4 keys x 64 queries = 16 accumulators of 32 registers
constexpr bool kFuseExp = true;  // registers are left for the exponentials of one strip inside the products of the next
#ifdef __AVX512BF16__
constexpr bool kHasDot = true;
#else
constexpr bool kHasDot = false;
#endif

using F = __m512;
using I = __m512i;
using M = __mmask16;

HEED_INLINE F zero() { return _mm512_setzero_ps(); }
HEED_INLINE F broadcast(float x) { return _mm512_set1_ps(x); }
HEED_INLINE F load(const float* p) { return _mm512_load_ps(p); }
HEED_INLINE F load_unaligned(const void* p) { return _mm512_loadu_ps(p); }
HEED_INLINE void store(float* p, F x) { _mm512_store_ps(p, x); }
HEED_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
HEED_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
HEED_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
HEED_INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
HEED_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }  // a * b + c
HEED_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }            // b where either is NaN
HEED_INLINE F abs(F a) { return _mm512_abs_ps(a); }

HEED_INLINE I broadcast_int(int x) { return _mm512_set1_epi32(x); }
HEED_INLINE I load_int(const void* p) { return _mm512_load_si512(p); }
HEED_INLINE void store_int(void* p, I x) { _mm512_store_si512(p, x); }
HEED_INLINE I lane_numbers() { return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
HEED_INLINE I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
HEED_INLINE I sub_int(I a, I b) { return _mm512_sub_epi32(a, b); }
HEED_INLINE I and_int(I a, I b) { return _mm512_and_si512(a, b); }
HEED_INLINE I or_int(I a, I b) { return _mm512_or_si512(a, b); }
HEED_INLINE I xor_int(I a, I b) { return _mm512_xor_si512(a, b); }
template <int N>
HEED_INLINE I shift_left(I a) {
  return _mm512_slli_epi32(a, N);
}
template <int N>
HEED_INLINE I shift_right(I a) {
  return _mm512_srli_epi32(a, N);
}
HEED_INLINE F to_float(I a) { return _mm512_cvtepi32_ps(a); }
HEED_INLINE F as_float(I a) { return _mm512_castsi512_ps(a); }
HEED_INLINE I as_int(F a) { return _mm512_castps_si512(a); }
/// High and low halves of the products of unsigned 32-bit lanes with one constant.
HEED_INLINE void multiply_wide(I a, unsigned constant, I& high, I& low) {
  const I c = broadcast_int(static_cast<int>(constant));
  const I even = _mm512_mul_epu32(a, c), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), c);
  low = _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CCAA);
  high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xAAAA, odd);
}

HEED_INLINE M less(I a, I b) { return _mm512_cmplt_epi32_mask(a, b); }
HEED_INLINE M less_equal(I a, I b) { return _mm512_cmple_epi32_mask(a, b); }
HEED_INLINE M bit_set(I a, I bit) { return _mm512_test_epi32_mask(a, bit); }
HEED_INLINE M greater(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
HEED_INLINE M equal(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
HEED_INLINE M both(M a, M b) { return static_cast<M>(a & b); }
HEED_INLINE M either(M a, M b) { return static_cast<M>(a | b); }
HEED_INLINE bool any(M a) { return a != 0; }
HEED_INLINE F select(M m, F yes, F no) { return _mm512_mask_blend_ps(m, no, yes); }
HEED_INLINE I select_int(M m, I yes, I no) { return _mm512_mask_blend_epi32(m, no, yes); }

/// A vector load that stays a load: tuning for some CPUs folds a load with few uses into every FMA as a memory operand,
/// which makes the load port the limit (4 x 64 tile: 80% of the FMA rate instead of 99%).
HEED_INLINE F load_kept(const float* p) {
  F x = _mm512_load_ps(p);
  asm("" : "+v"(x));
  return x;
}

/// 2^x = polynomial of the fraction, scaled by the whole part; -inf gives 0, NaN stays NaN. `c` holds degree + 1
/// coefficients and is read as memory operands, so that it takes no registers.
template <int Degree>
HEED_INLINE F exp2_polynomial(F x, const float* c) {
  const F fraction = _mm512_reduce_ps(x, 9);  // x - floor(x), no exceptions
  F p = broadcast(c[0]);
  HEED_UNROLL for (int i = 1; i <= Degree; ++i) p = fma(p, fraction, broadcast(c[i]));
  return _mm512_scalef_ps(p, x);
}

HEED_INLINE __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
// Loads of n <= 16 elements as f32; lanes past n are 0 and their memory is not touched.
HEED_INLINE F load_f32(const void* p, int n) {
  return n >= 16 ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(first_lanes(n), p);
}
HEED_INLINE __m256i load_halves(const void* p, int n) {
  return n >= 16 ? _mm256_loadu_si256(static_cast<const __m256i*>(p)) : _mm256_maskz_loadu_epi16(first_lanes(n), p);
}
HEED_INLINE F load_bf16(const void* p, int n) {
  return as_float(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_halves(p, n)), 16));
}
HEED_INLINE F load_f16(const void* p, int n) { return _mm512_cvtph_ps(load_halves(p, n)); }
// Words of two 16-bit elements: n <= 32 elements, the rest 0.
HEED_INLINE F load_pairs(const void* p, int n) {
  if (n >= 32) return _mm512_loadu_ps(p);
  return as_float(_mm512_maskz_loadu_epi16(static_cast<__mmask32>((1ull << n) - 1ull), p));
}
HEED_INLINE void store_f32(void* p, F x, int n) {
  if (n >= 16)
    _mm512_storeu_ps(p, x);
  else
    _mm512_mask_storeu_ps(p, first_lanes(n), x);
}
HEED_INLINE void store_halves(void* p, __m256i x, int n) {
  if (n >= 16)
    _mm256_storeu_si256(static_cast<__m256i*>(p), x);
  else
    _mm256_mask_storeu_epi16(p, first_lanes(n), x);
}
/// Round to nearest even; NaN stays a quiet NaN.
HEED_INLINE I round_to_bf16(F x) {
  const I u = as_int(x);
  const I rounded = add_int(u, add_int(broadcast_int(0x7fff), and_int(shift_right<16>(u), broadcast_int(1))));
  const M nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return shift_right<16>(select_int(nan, or_int(u, broadcast_int(0x400000)), rounded));
}
HEED_INLINE void store_bf16(void* p, F x, int n) { store_halves(p, _mm512_cvtepi32_epi16(round_to_bf16(x)), n); }
HEED_INLINE void store_f16(void* p, F x, int n) { store_halves(p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT), n); }

/// Rows of groups of four lanes become columns of them.
HEED_INLINE void transpose_quads(F (&x)[4]) {
  const F a = _mm512_shuffle_f32x4(x[0], x[1], 0x44), b = _mm512_shuffle_f32x4(x[2], x[3], 0x44);
  const F c = _mm512_shuffle_f32x4(x[0], x[1], 0xee), d = _mm512_shuffle_f32x4(x[2], x[3], 0xee);
  x[0] = _mm512_shuffle_f32x4(a, b, 0x88);
  x[1] = _mm512_shuffle_f32x4(a, b, 0xdd);
  x[2] = _mm512_shuffle_f32x4(c, d, 0x88);
  x[3] = _mm512_shuffle_f32x4(c, d, 0xdd);
}

/// Rows become columns.
HEED_INLINE void transpose(F (&x)[16]) {
  F t[16], r[16];
  HEED_UNROLL for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]);
  }
  HEED_UNROLL for (int i = 0; i < 4; ++i) HEED_UNROLL for (int h = 0; h < 2; ++h) {
    const __m512d a = _mm512_castps_pd(t[4 * i + h]), b = _mm512_castps_pd(t[4 * i + 2 + h]);
    r[4 * i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
    r[4 * i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
  }
  HEED_UNROLL for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
  }
  HEED_UNROLL for (int i = 0; i < 4; ++i) {
    x[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
    x[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
    x[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
    x[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd);
  }
}

/// The sums over the lanes of 16 vectors, as one vector, in two steps: half the shuffles of a transpose, because every
/// step adds. First four vectors at a time, each summed down to one lane in every group of four;
HEED_INLINE F sum_four(F x, F y, F z, F w) {
  const __m512d a = _mm512_castps_pd(add(_mm512_unpacklo_ps(x, y), _mm512_unpackhi_ps(x, y)));
  const __m512d b = _mm512_castps_pd(add(_mm512_unpacklo_ps(z, w), _mm512_unpackhi_ps(z, w)));
  return add(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
}
/// then the groups.
HEED_INLINE F sum_groups(const F (&x)[4]) {
  const F a = add(_mm512_shuffle_f32x4(x[0], x[1], 0x88), _mm512_shuffle_f32x4(x[0], x[1], 0xdd));
  const F b = add(_mm512_shuffle_f32x4(x[2], x[3], 0x88), _mm512_shuffle_f32x4(x[2], x[3], 0xdd));
  return add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
HEED_INLINE float sum_lanes(F x) { return _mm512_reduce_add_ps(x); }
HEED_INLINE float max_lanes(F x) { return _mm512_reduce_max_ps(x); }

/// Which of 32 bytes are not zero.
HEED_INLINE unsigned nonzero_bytes32(const void* p) {
  const __m256i x = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  return static_cast<unsigned>(_mm256_test_epi8_mask(x, x));
}

}  // namespace heed::cpu::HEED_ISA
