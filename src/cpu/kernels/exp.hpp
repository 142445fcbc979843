// Exponentials of a block of scores, in place.
#pragma once

#ifndef HEED_ISA
#error "include the vectors of an ISA level first"
#endif

namespace heed::cpu::HEED_ISA {

// 2^f on [0, 1), minimax in the relative error: degree 5 to 7.5e-8, degree 4 to 2.6e-6 (ample for P rounded to bf16, and
// still good enough for the LSE, which sums P before it is rounded).
alignas(64) static const float kExp2Coefficients[16] = {1.877575987e-3f, 8.989341676e-3f, 5.582631680e-2f, 2.401536174e-1f,
                                                        6.931530732e-1f, 9.999999251e-1f, 0.f, 0.f,
                                                        1.353416791e-2f, 5.201146062e-2f, 2.414427569e-1f, 6.930038345e-1f,
                                                        1.000002593e+0f};
constexpr int kDegree4 = 8;  // where the coefficients of degree 4 start

HEED_INLINE F exp2(F x) { return exp2_polynomial<5>(x, kExp2Coefficients); }

/// A block of scores waiting to become P: p = 2^(s * factor - maximum), sums added to `sum`. With Dot two keys become one
/// row of bf16 pairs, compacted in place, and factor turns raw products into log2 units; without, factor is already in Q.
struct ExpBlock {
  float* s;              // [keys][kStrip]
  const float* maximum;  // [kStrip], finite
  float* sum;            // [kStrip]
  float factor;
};

#ifdef __AVX512BF16__
/// Two rows of P as one row of bf16 pairs; rounds half up, on the integer units only.
HEED_INLINE F pair_to_bf16(F low, F high) {
  const I half = broadcast_int(0x8000);
  const I a = shift_right<16>(add_int(as_int(low), half)), b = add_int(as_int(high), half);
  return as_float(_mm512_ternarylogic_epi32(b, broadcast_int(static_cast<int>(0xffff0000u)), a, 0xea));  // (b & mask) | a
}
#endif

/// One vector of P (Dot: one vector of pairs from two keys). Everything but `from` stays in memory operands.
template <bool Dot>
HEED_INLINE void exp_unit(const float* from, float* to, const float* maximum, float* sum, const float* coefficients,
                          [[maybe_unused]] const float* factor) {
  if constexpr (!Dot) {
    const F p = exp2_polynomial<5>(sub(load(from), load(maximum)), coefficients);
    store(sum, add(load(sum), p));
    store(to, p);
  } else {
#ifdef __AVX512BF16__
    const float* c = coefficients + kDegree4;
    constexpr int kNextKey = kLanes * kVectors;
    const F low = exp2_polynomial<4>(fms(load(from), broadcast(*factor), load(maximum)), c);
    const F high = exp2_polynomial<4>(fms(load(from + kNextKey), broadcast(*factor), load(maximum)), c);
    store(sum, add(load(sum), add(low, high)));
    store(to, pair_to_bf16(low, high));
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
      exp_unit<Dot>(from + kLanes * j, to + kLanes * j, e.maximum + kLanes * j, e.sum + kLanes * j, kExp2Coefficients,
                    &e.factor);
  }
}

}  // namespace heed::cpu::HEED_ISA
