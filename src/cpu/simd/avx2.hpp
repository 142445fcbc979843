// 256-bit vectors with FMA and F16C.
#pragma once

#include "cpu/simd/common.hpp"

#include <immintrin.h>
#include <string.h>

namespace heed::cpu::HEED_ISA {

constexpr int kLanes = 8;
constexpr int kVectors = 3;  // 4 keys x 24 queries = 12 accumulators + 3 query vectors + 1 broadcast = 16 registers
constexpr bool kFuseExp = false;  // no register is left
constexpr bool kHasDot = false;

using F = __m256;
using I = __m256i;
using M = __m256;  // a lane is all ones or all zeros

HEED_INLINE F zero() { return _mm256_setzero_ps(); }
HEED_INLINE F broadcast(float x) { return _mm256_set1_ps(x); }
HEED_INLINE F load(const float* p) { return _mm256_load_ps(p); }
HEED_INLINE F load_unaligned(const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
HEED_INLINE void store(float* p, F x) { _mm256_store_ps(p, x); }
HEED_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
HEED_INLINE F sub(F a, F b) { return _mm256_sub_ps(a, b); }
HEED_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
HEED_INLINE F div(F a, F b) { return _mm256_div_ps(a, b); }
HEED_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
HEED_INLINE F max(F a, F b) { return _mm256_max_ps(a, b); }  // b where either is NaN
HEED_INLINE F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.f), a); }

HEED_INLINE I broadcast_int(int x) { return _mm256_set1_epi32(x); }
HEED_INLINE I load_int(const void* p) { return _mm256_load_si256(static_cast<const __m256i*>(p)); }
HEED_INLINE void store_int(void* p, I x) { _mm256_store_si256(static_cast<__m256i*>(p), x); }
HEED_INLINE I lane_numbers() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
HEED_INLINE I add_int(I a, I b) { return _mm256_add_epi32(a, b); }
HEED_INLINE I sub_int(I a, I b) { return _mm256_sub_epi32(a, b); }
HEED_INLINE I and_int(I a, I b) { return _mm256_and_si256(a, b); }
HEED_INLINE I or_int(I a, I b) { return _mm256_or_si256(a, b); }
HEED_INLINE I xor_int(I a, I b) { return _mm256_xor_si256(a, b); }
template <int N>
HEED_INLINE I shift_left(I a) {
  return _mm256_slli_epi32(a, N);
}
template <int N>
HEED_INLINE I shift_right(I a) {
  return _mm256_srli_epi32(a, N);
}
HEED_INLINE F to_float(I a) { return _mm256_cvtepi32_ps(a); }
HEED_INLINE F as_float(I a) { return _mm256_castsi256_ps(a); }
HEED_INLINE I as_int(F a) { return _mm256_castps_si256(a); }
HEED_INLINE void multiply_wide(I a, unsigned constant, I& high, I& low) {
  const I c = broadcast_int(static_cast<int>(constant));
  const I even = _mm256_mul_epu32(a, c), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), c);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}

HEED_INLINE M less(I a, I b) { return as_float(_mm256_cmpgt_epi32(b, a)); }
HEED_INLINE M less_equal(I a, I b) {
  return as_float(_mm256_xor_si256(_mm256_cmpgt_epi32(a, b), _mm256_set1_epi32(-1)));
}
HEED_INLINE M bit_set(I a, I bit) { return as_float(_mm256_cmpeq_epi32(_mm256_and_si256(a, bit), bit)); }
HEED_INLINE M greater(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
HEED_INLINE M equal(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
HEED_INLINE M both(M a, M b) { return _mm256_and_ps(a, b); }
HEED_INLINE M either(M a, M b) { return _mm256_or_ps(a, b); }
HEED_INLINE bool any(M a) { return _mm256_movemask_ps(a) != 0; }
HEED_INLINE F select(M m, F yes, F no) { return _mm256_blendv_ps(no, yes, m); }
HEED_INLINE I select_int(M m, I yes, I no) { return as_int(select(m, as_float(yes), as_float(no))); }

/// A vector load that stays a load (see avx512.hpp).
HEED_INLINE F load_kept(const float* p) {
  F x = _mm256_load_ps(p);
  asm("" : "+x"(x));
  return x;
}

/// 2^x; -inf gives 0, NaN stays NaN; results under 2^-126 become 0.
template <int Degree>
HEED_INLINE F exp2_polynomial(F x, const float* c) {
  const F whole = _mm256_floor_ps(x), fraction = sub(x, whole);
  F p = broadcast(c[0]);
  HEED_UNROLL for (int i = 1; i <= Degree; ++i) p = fma(p, fraction, broadcast(c[i]));
  const F scaled = as_float(add_int(as_int(p), shift_left<23>(_mm256_cvtps_epi32(whole))));
  return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(-126.f), _CMP_LT_OQ), scaled);
}

HEED_INLINE __m256i first_lanes(int n) { return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane_numbers()); }
// Loads of n <= 8 elements as f32; lanes past n are 0 and their memory is not touched.
HEED_INLINE F load_f32(const void* p, int n) {
  return n >= 8 ? load_unaligned(p) : _mm256_maskload_ps(static_cast<const float*>(p), first_lanes(n));
}
HEED_INLINE __m128i load_halves(const void* p, int n) {
  if (n >= 8) return _mm_loadu_si128(static_cast<const __m128i*>(p));
  alignas(16) uint16_t t[8] = {};
  memcpy(t, p, static_cast<unsigned>(n) * 2u);
  return _mm_load_si128(reinterpret_cast<const __m128i*>(t));
}
HEED_INLINE F load_bf16(const void* p, int n) {
  return as_float(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_halves(p, n)), 16));
}
HEED_INLINE F load_f16(const void* p, int n) { return _mm256_cvtph_ps(load_halves(p, n)); }
HEED_INLINE void store_f32(void* p, F x, int n) {
  if (n >= 8)
    _mm256_storeu_ps(static_cast<float*>(p), x);
  else
    _mm256_maskstore_ps(static_cast<float*>(p), first_lanes(n), x);
}
HEED_INLINE void store_halves(void* p, __m128i x, int n) {
  if (n >= 8) return _mm_storeu_si128(static_cast<__m128i*>(p), x);
  alignas(16) uint16_t t[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(t), x);
  memcpy(p, t, static_cast<unsigned>(n) * 2u);
}
HEED_INLINE I round_to_bf16(F x) {
  const I u = as_int(x);
  const I rounded = add_int(u, add_int(broadcast_int(0x7fff), and_int(shift_right<16>(u), broadcast_int(1))));
  const M nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  return shift_right<16>(select_int(nan, or_int(u, broadcast_int(0x400000)), rounded));
}
HEED_INLINE void store_bf16(void* p, F x, int n) {
  const I r = round_to_bf16(x);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
  store_halves(p, _mm256_castsi256_si128(packed), n);
}
HEED_INLINE void store_f16(void* p, F x, int n) { store_halves(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT), n); }

HEED_INLINE void transpose_quads(F (&x)[2]) {
  const F low = _mm256_permute2f128_ps(x[0], x[1], 0x20);
  x[1] = _mm256_permute2f128_ps(x[0], x[1], 0x31);
  x[0] = low;
}

HEED_INLINE void transpose(F (&x)[8]) {
  F t[8], r[8];
  HEED_UNROLL for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(x[2 * i], x[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(x[2 * i], x[2 * i + 1]);
  }
  HEED_UNROLL for (int i = 0; i < 2; ++i) HEED_UNROLL for (int h = 0; h < 2; ++h) {
    r[4 * i + 2 * h] = _mm256_shuffle_ps(t[4 * i + h], t[4 * i + 2 + h], 0x44);
    r[4 * i + 2 * h + 1] = _mm256_shuffle_ps(t[4 * i + h], t[4 * i + 2 + h], 0xee);
  }
  HEED_UNROLL for (int i = 0; i < 4; ++i) {
    x[i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x20);
    x[4 + i] = _mm256_permute2f128_ps(r[i], r[4 + i], 0x31);
  }
}

HEED_INLINE F sum_four(F x, F y, F z, F w) {
  const F a = add(_mm256_unpacklo_ps(x, y), _mm256_unpackhi_ps(x, y));
  const F b = add(_mm256_unpacklo_ps(z, w), _mm256_unpackhi_ps(z, w));
  return add(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
}
HEED_INLINE F sum_groups(const F (&x)[2]) {
  return add(_mm256_permute2f128_ps(x[0], x[1], 0x20), _mm256_permute2f128_ps(x[0], x[1], 0x31));
}
HEED_INLINE float sum_lanes(F x) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
HEED_INLINE float max_lanes(F x) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

HEED_INLINE unsigned nonzero_bytes32(const void* p) {
  const __m256i x = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  return ~static_cast<unsigned>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, _mm256_setzero_si256())));
}

}  // namespace heed::cpu::HEED_ISA
