// 128-bit vectors in the compiler's own vector types: the baseline of every machine (SSE2 on x86-64, NEON on ARM).
#pragma once

#include "cpu/simd/common.hpp"

#include <string.h>

namespace heed::cpu::HEED_ISA {

constexpr int kLanes = 4;
constexpr int kVectors = 3;  // 4 keys x 12 queries = 12 accumulators of 16 registers
constexpr bool kFuseExp = false;
constexpr bool kHasDot = false;

typedef float F __attribute__((vector_size(16)));
typedef int32_t I __attribute__((vector_size(16)));
typedef uint32_t U __attribute__((vector_size(16)));
using M = I;  // a lane is all ones or all zeros

HEED_INLINE F broadcast(float x) { return F{x, x, x, x}; }
HEED_INLINE F zero() { return broadcast(0.f); }
HEED_INLINE F load_unaligned(const void* p) {
  F x;
  memcpy(&x, p, sizeof x);
  return x;
}
HEED_INLINE F load(const float* p) { return *reinterpret_cast<const F*>(p); }
HEED_INLINE F load_kept(const float* p) { return load(p); }
HEED_INLINE void store(float* p, F x) { *reinterpret_cast<F*>(p) = x; }
HEED_INLINE F add(F a, F b) { return a + b; }
HEED_INLINE F sub(F a, F b) { return a - b; }
HEED_INLINE F mul(F a, F b) { return a * b; }
HEED_INLINE F div(F a, F b) { return a / b; }
HEED_INLINE F fma(F a, F b, F c) { return a * b + c; }
HEED_INLINE F max(F a, F b) { return a > b ? a : b; }  // b where either is NaN
HEED_INLINE I as_int(F a) { return reinterpret_cast<I>(a); }
HEED_INLINE F as_float(I a) { return reinterpret_cast<F>(a); }

HEED_INLINE I broadcast_int(int x) { return I{x, x, x, x}; }
HEED_INLINE I load_int(const void* p) { return *static_cast<const I*>(p); }
HEED_INLINE void store_int(void* p, I x) { *static_cast<I*>(p) = x; }
HEED_INLINE I lane_numbers() { return I{0, 1, 2, 3}; }
HEED_INLINE I add_int(I a, I b) { return reinterpret_cast<I>(reinterpret_cast<U>(a) + reinterpret_cast<U>(b)); }
HEED_INLINE I sub_int(I a, I b) { return reinterpret_cast<I>(reinterpret_cast<U>(a) - reinterpret_cast<U>(b)); }
HEED_INLINE I and_int(I a, I b) { return a & b; }
HEED_INLINE I or_int(I a, I b) { return a | b; }
HEED_INLINE I xor_int(I a, I b) { return a ^ b; }
template <int N>
HEED_INLINE I shift_left(I a) {
  return reinterpret_cast<I>(reinterpret_cast<U>(a) << N);
}
template <int N>
HEED_INLINE I shift_right(I a) {
  return reinterpret_cast<I>(reinterpret_cast<U>(a) >> N);
}
HEED_INLINE F to_float(I a) { return __builtin_convertvector(a, F); }
HEED_INLINE F abs(F a) { return as_float(as_int(a) & 0x7fffffff); }
HEED_INLINE void multiply_wide(I a, unsigned constant, I& high, I& low) {
  HEED_UNROLL for (int i = 0; i < 4; ++i) {
    const uint64_t product = static_cast<uint64_t>(static_cast<uint32_t>(a[i])) * constant;
    high[i] = static_cast<int32_t>(product >> 32);
    low[i] = static_cast<int32_t>(product & 0xffffffffu);
  }
}

HEED_INLINE M less(I a, I b) { return a < b; }
HEED_INLINE M less_equal(I a, I b) { return a <= b; }
HEED_INLINE M bit_set(I a, I bit) { return (a & bit) != 0; }
HEED_INLINE M greater(F a, F b) { return a > b; }
HEED_INLINE M equal(F a, F b) { return a == b; }
HEED_INLINE M both(M a, M b) { return a & b; }
HEED_INLINE M either(M a, M b) { return a | b; }
HEED_INLINE bool any(M a) { return (a[0] | a[1] | a[2] | a[3]) != 0; }
HEED_INLINE I select_int(M m, I yes, I no) { return (yes & m) | (no & ~m); }
HEED_INLINE F select(M m, F yes, F no) { return as_float(select_int(m, as_int(yes), as_int(no))); }

/// 2^x; -inf gives 0, NaN stays NaN; results under 2^-126 become 0.
template <int Degree>
HEED_INLINE F exp2_polynomial(F x, const float* c) {
  const F bounded = select(both(x > -127.f, x < 129.f), x, broadcast(-127.f));  // what the conversion below can hold
  const I truncated = __builtin_convertvector(bounded, I);
  const I whole = truncated + (to_float(truncated) > bounded);  // a true lane is -1
  const F fraction = bounded - to_float(whole);
  F p = broadcast(c[0]);
  HEED_UNROLL for (int i = 1; i <= Degree; ++i) p = fma(p, fraction, broadcast(c[i]));
  const F scaled = as_float(add_int(as_int(p), shift_left<23>(whole)));
  const F in_range = select(x < -126.f, zero(), scaled);
  return select(x == x, in_range, x);
}

// Loads of n <= 4 elements as f32; lanes past n are 0 and their memory is not touched.
HEED_INLINE F load_f32(const void* p, int n) {
  F x = zero();
  memcpy(&x, p, static_cast<unsigned>(n < 4 ? n : 4) * 4u);
  return x;
}
HEED_INLINE I load_halves(const void* p, int n) {
  uint16_t t[4] = {};
  memcpy(t, p, static_cast<unsigned>(n < 4 ? n : 4) * 2u);
  return I{t[0], t[1], t[2], t[3]};
}
HEED_INLINE F load_bf16(const void* p, int n) { return as_float(shift_left<16>(load_halves(p, n))); }
/// f16 -> f32: rebase the exponent by a multiplication, which also turns subnormals into normal numbers.
HEED_INLINE F load_f16(const void* p, int n) {
  const I h = load_halves(p, n);
  const I magnitude = shift_left<13>(and_int(h, broadcast_int(0x7fff)));
  const F scaled = as_float(magnitude) * 0x1p112f;
  const M special = and_int(h, broadcast_int(0x7c00)) == 0x7c00;  // infinity and NaN keep an exponent of all ones
  const I bits = select_int(special, or_int(magnitude, broadcast_int(0x7f800000)), as_int(scaled));
  return as_float(or_int(bits, shift_left<16>(and_int(h, broadcast_int(0x8000)))));
}
HEED_INLINE void store_f32(void* p, F x, int n) { memcpy(p, &x, static_cast<unsigned>(n < 4 ? n : 4) * 4u); }
HEED_INLINE void store_halves(void* p, I x, int n) {
  const uint16_t t[4] = {static_cast<uint16_t>(x[0]), static_cast<uint16_t>(x[1]), static_cast<uint16_t>(x[2]),
                         static_cast<uint16_t>(x[3])};
  memcpy(p, t, static_cast<unsigned>(n < 4 ? n : 4) * 2u);
}
HEED_INLINE I round_to_bf16(F x) {
  const I u = as_int(x);
  const I rounded = add_int(u, add_int(broadcast_int(0x7fff), and_int(shift_right<16>(u), broadcast_int(1))));
  return shift_right<16>(select_int(x == x, rounded, or_int(u, broadcast_int(0x400000))));
}
HEED_INLINE void store_bf16(void* p, F x, int n) { store_halves(p, round_to_bf16(x), n); }
/// f32 -> f16, to nearest even: large results become infinity, small ones are rounded by adding a number whose last bit
/// is the last bit of a subnormal f16.
HEED_INLINE void store_f16(void* p, F x, int n) {
  const I u = as_int(x), sign = and_int(shift_right<16>(u), broadcast_int(0x8000));
  const F magnitude = abs(x);
  const I m = as_int(magnitude);
  const I odd = and_int(shift_right<13>(m), broadcast_int(1));
  const I normal = shift_right<13>(add_int(add_int(m, broadcast_int(0xfff - (112 << 23))), odd));
  const I small = sub_int(as_int(magnitude + 0.5f), broadcast_int(0x3f000000));
  I h = select_int(magnitude < 0x1p-14f, small, normal);
  h = select_int(magnitude >= 65520.f, broadcast_int(0x7c00), h);
  h = select_int(x == x, h, broadcast_int(0x7e00));
  store_halves(p, or_int(h, sign), n);
}

HEED_INLINE void transpose_quads(F (&)[1]) {}

HEED_INLINE void transpose(F (&x)[4]) {
  F t[4];
  HEED_UNROLL for (int i = 0; i < 4; ++i) t[i] = F{x[0][i], x[1][i], x[2][i], x[3][i]};
  HEED_UNROLL for (int i = 0; i < 4; ++i) x[i] = t[i];
}
HEED_INLINE float sum_lanes(F x) { return (x[0] + x[2]) + (x[1] + x[3]); }
HEED_INLINE F sum_four(F x, F y, F z, F w) { return F{sum_lanes(x), sum_lanes(y), sum_lanes(z), sum_lanes(w)}; }
HEED_INLINE F sum_groups(const F (&x)[1]) { return x[0]; }
HEED_INLINE float max_lanes(F x) {
  const float a = x[0] > x[1] ? x[0] : x[1], b = x[2] > x[3] ? x[2] : x[3];
  return a > b ? a : b;
}

HEED_INLINE unsigned nonzero_bytes32(const void* p) {
  uint8_t t[32];
  memcpy(t, p, 32);
  unsigned bits = 0;
  for (unsigned i = 0; i < 32; ++i) bits |= (t[i] != 0 ? 1u : 0u) << i;
  return bits;
}

}  // namespace heed::cpu::HEED_ISA
