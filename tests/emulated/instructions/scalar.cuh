// What src/kernels/scalar.cuh does, by the CPU.
#pragma once

#include "core/float_bits.hpp"
#include "types.cuh"

#include <cmath>

namespace heed::kernels {

HEED_DEVICE float exp2_approx(float x) { return std::exp2(x); }
HEED_DEVICE float log2_approx(float x) { return std::log2(x); }
HEED_DEVICE float reciprocal(float x) { return 1.0f / x; }

HEED_DEVICE float f32_from_f16(u16 raw) { return core::f32_from_f16(raw); }
HEED_DEVICE u16 f16_from_f32(float x) { return core::f16_from_f32(x); }
HEED_DEVICE u16 bf16_from_f32(float x) { return core::bf16_from_f32(x); }
HEED_DEVICE u32 two_f16_from_f32(float low, float high) { return f16_from_f32(low) | u32{f16_from_f32(high)} << 16; }
HEED_DEVICE u32 two_bf16_from_f32(float low, float high) { return bf16_from_f32(low) | u32{bf16_from_f32(high)} << 16; }

}  // namespace heed::kernels
