// Exponentials of a block of scores, in place.
#pragma once

#ifndef HEED_ISA
#error "include the vectors of an ISA level first"
#endif

namespace heed::cpu::HEED_ISA {

// 2^f on [0, 1): exactly 1 at 0, so that a lone key keeps its value, otherwise minimax in the relative error: degree 5
// to 8.2e-8, degree 4 to 2.9e-6 (ample for P rounded to bf16, and good enough for the LSE, which sums P before it is
// rounded).
alignas(64) static const float kExp2Coefficients[16] = {1.867130070e-3f,
                                                        9.017030322e-3f,
                                                        5.579991310e-2f,
                                                        2.401644502e-1f,
                                                        6.931513118e-1f,
                                                        1.f,
                                                        0.f,
                                                        0.f,
                                                        1.342668427e-2f,
                                                        5.224247422e-2f,
                                                        2.412802048e-1f,
                                                        6.930448449e-1f,
                                                        1.f};
constexpr int kDegree4 = 8;  // where the coefficients of degree 4 start

HEED_INLINE F exp2(F x) { return exp2_polynomial<5>(x, kExp2Coefficients); }

/// A block of scores waiting to become P: p = 2^((s - maximum) * factor), sums added to `sum` and `weights`. With Dot
/// two keys become one row of bf16 pairs, compacted in place, and factor turns raw products into log2 units; without,
/// factor is already in Q. The difference comes first: s * factor - maximum * factor in one rounding would not be 0 for
/// s = maximum, and scores of 1e30 would overflow.
struct ExpBlock {
  float* s;              // [keys][kStrip]
  const float* maximum;  // [kStrip], finite
  float* sum;            // [kStrip] of P as it is
  float* weights;        // [kStrip] of P as it is multiplied with V: rounded, with Dot
  float factor;
};

#ifdef __AVX512BF16__
/// Two rows of P as one row of bf16 pairs; rounds half up, on the integer units only.
HEED_INLINE F pair_to_bf16(F low, F high) {
  const I half = broadcast_int(0x8000);
  const I a = shift_right<16>(add_int(as_int(low), half)), b = add_int(as_int(high), half);
  return as_float(
      _mm512_ternarylogic_epi32(b, broadcast_int(static_cast<int>(0xffff0000u)), a, 0xea));  // (b & mask) | a
}
#endif

/// One vector of P (Dot: one vector of pairs from two keys). Everything but `from` stays in memory operands.
template <bool Dot>
HEED_INLINE void exp_unit(const float* from, float* to, const float* maximum, float* sum,
                          [[maybe_unused]] float* weights, const float* coefficients,
                          [[maybe_unused]] const float* factor) {
  if constexpr (!Dot) {
    const F p = exp2_polynomial<5>(sub(load(from), load(maximum)), coefficients);
    store(sum, add(load(sum), p));
    store(to, p);
  } else {
#ifdef __AVX512BF16__
    const float* c = coefficients + kDegree4;
    constexpr int kNextKey = kLanes * kVectors;
    const F low = exp2_polynomial<4>(mul(sub(load(from), load(maximum)), broadcast(*factor)), c);
    const F high = exp2_polynomial<4>(mul(sub(load(from + kNextKey), load(maximum)), broadcast(*factor)), c);
    store(sum, add(load(sum), add(low, high)));
    const F pairs = pair_to_bf16(low, high);
    // O is divided by the sum of what it was summed with: the rounding of a dominant key then cancels.
    store(weights, _mm512_dpbf16_ps(load(weights), (__m512bh)pairs, (__m512bh)broadcast_int(0x3f803f80)));
    store(to, pairs);
#else
    static_assert(!Dot, "this level has no bf16 dot");
#endif
  }
}

/// The exponentials of keys [first, first + keys) on their own.
template <bool Dot>
HEED_NOINLINE void exp_pass(const ExpBlock& e, int first, int keys) {
  constexpr int kStripFloats = kLanes * kVectors, kKeysPerUnit = Dot ? 2 : 1;
  for (int key = first; key < first + keys; key += kKeysPerUnit) {
    const float* from = e.s + static_cast<long>(key) * kStripFloats;
    float* to = e.s + static_cast<long>(key / kKeysPerUnit) * kStripFloats;
    HEED_UNROLL for (int j = 0; j < kVectors; ++j)
        exp_unit<Dot>(from + kLanes * j, to + kLanes * j, e.maximum + kLanes * j, e.sum + kLanes * j,
                      e.weights + kLanes * j, kExp2Coefficients, &e.factor);
  }
}

}  // namespace heed::cpu::HEED_ISA
