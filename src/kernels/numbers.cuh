// Types and arithmetic that every kernel uses: no toolkit headers, nothing but what NVRTC has built in.
#pragma once

#include "scalar.cuh"

namespace heed::kernels {

/// Element types as tags.
struct f32 {
  using Raw = float;
};
struct f16 {
  using Raw = u16;
};
struct bf16 {
  using Raw = u16;
};

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;
#define HEED_INFINITY __int_as_float(0x7f800000)

template <class T>
HEED_DEVICE float to_float(typename T::Raw raw);
template <>
__device__ __forceinline__ float to_float<f32>(float raw) {
  return raw;
}
template <>
__device__ __forceinline__ float to_float<f16>(u16 raw) {
  return f32_from_f16(raw);
}
template <>
__device__ __forceinline__ float to_float<bf16>(u16 raw) {
  return __int_as_float(u32(raw) << 16);
}

template <class T>
HEED_DEVICE typename T::Raw from_float(float x);
template <>
__device__ __forceinline__ float from_float<f32>(float x) {
  return x;
}
template <>
__device__ __forceinline__ u16 from_float<f16>(float x) {
  return f16_from_f32(x);
}
template <>
__device__ __forceinline__ u16 from_float<bf16>(float x) {
  return bf16_from_f32(x);
}

/// Two floats in one register, `low` in the low half.
template <class T>
HEED_DEVICE u32 pack(float low, float high);
template <>
__device__ __forceinline__ u32 pack<f16>(float low, float high) {
  return two_f16_from_f32(low, high);
}
template <>
__device__ __forceinline__ u32 pack<bf16>(float low, float high) {
  return two_bf16_from_f32(low, high);
}

/// Element `index` of an array of T.
template <class T>
HEED_DEVICE float load(const void* data, i64 index) {
  return to_float<T>(static_cast<const typename T::Raw*>(data)[index]);
}

struct Philox {
  u32 x, y, z, w;
};
/// Philox4x32-10, as heed/philox.hpp: N calls whose first counters differ, round by round, so that they share the keys.
template <int N>
HEED_DEVICE void philox(Philox (&words)[N], const u32 (&c0)[N], u32 c1, u32 c2, u32 c3, u32 k0, u32 k1) {
#pragma unroll
  for (int i = 0; i < N; ++i) words[i] = {c0[i], c1, c2, c3};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      Philox& c = words[i];
      const u64 a = u64(0xD2511F53u) * c.x, b = u64(0xCD9E8D57u) * c.z;
      c = {u32(b >> 32) ^ c.y ^ k0, u32(b), u32(a >> 32) ^ c.w ^ k1, u32(a)};
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}
HEED_DEVICE Philox philox(u32 c0, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1) {
  Philox words[1];
  philox(words, {c0}, c1, c2, c3, k0, k1);
  return words[0];
}

}  // namespace heed::kernels
