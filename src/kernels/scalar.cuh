// Scalar instructions of sm_80 and up that C++ has no name for: approximate functions and conversions. Numbers of 16 bits are
// raw bits here.
#pragma once

#include "types.cuh"

namespace heed::kernels {

HEED_DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
HEED_DEVICE float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
HEED_DEVICE float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

HEED_DEVICE float f32_from_f16(u16 raw) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(raw));
  return x;
}
HEED_DEVICE u16 f16_from_f32(float x) {
  u16 raw;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(raw) : "f"(x));
  return raw;
}
HEED_DEVICE u16 bf16_from_f32(float x) {
  u16 raw;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(raw) : "f"(x));
  return raw;
}
/// Two at once, `low` in the low half.
HEED_DEVICE u32 two_f16_from_f32(float low, float high) {
  u32 two;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
}
HEED_DEVICE u32 two_bf16_from_f32(float low, float high) {
  u32 two;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
}

}  // namespace heed::kernels
