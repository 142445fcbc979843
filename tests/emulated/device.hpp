// CUDA's dialect of C++ for the host compiler, as far as src/kernels needs it. Comes before any of its headers.
#pragma once

#include "emulated/fibers.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#define __device__
#define __shared__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

struct EmulatedIndex {
  int (*now)();
  operator unsigned() const { return static_cast<unsigned>(now()); }
};
struct EmulatedIndices {
  EmulatedIndex x;
};
inline constexpr EmulatedIndices threadIdx{{heed::emulated::thread_index}}, blockDim{{heed::emulated::thread_count}},
    blockIdx{{heed::emulated::block_index}}, gridDim{{heed::emulated::block_count}};

using std::max;
using std::min;
inline long long min(long long a, int b) { return a < b ? a : b; }
inline long long max(long long a, int b) { return a > b ? a : b; }

inline float __int_as_float(std::uint32_t x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(std::uint32_t x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }

inline std::uint32_t __funnelshift_l(std::uint32_t low, std::uint32_t high, unsigned shift) {
  return static_cast<std::uint32_t>((std::uint64_t{high} << 32 | low) << (shift & 31) >> 32);
}
inline std::uint32_t __byte_perm(std::uint32_t x, std::uint32_t y, unsigned selector) {
  const std::uint64_t both = std::uint64_t{y} << 32 | x;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<std::uint32_t>(both >> (selector >> (4 * i) & 7) * 8 & 0xff) << (8 * i);
  return result;
}

inline void __syncthreads() { heed::emulated::join_block(); }
inline bool __syncthreads_or(bool here) { return heed::emulated::join_block_or(here); }
inline void __syncwarp() { heed::emulated::join_warp(); }
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<T>(heed::emulated::exchange(&word, 1)[static_cast<std::size_t>(lane)][0]);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return __shfl_sync(mask, value, heed::emulated::thread_index() % heed::emulated::kLanes ^ lanes);
}
inline bool __any_sync(unsigned, bool here) {
  const std::uint32_t word = here;
  const auto& all = heed::emulated::exchange(&word, 1);
  return std::any_of(all.begin(), all.end(), [](const auto& lane) { return lane[0] != 0; });
}
inline bool __all_sync(unsigned mask, bool here) { return !__any_sync(mask, !here); }
inline std::uint32_t __ballot_sync(unsigned, bool here) {
  const std::uint32_t word = here;
  const auto& all = heed::emulated::exchange(&word, 1);
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < all.size(); ++i) bits |= all[i][0] << i;
  return bits;
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int lanes) {
  const int lane = heed::emulated::thread_index() % heed::emulated::kLanes;
  return __shfl_sync(mask, value, lane < lanes ? lane : lane - lanes);
}
inline std::uint32_t __reduce_max_sync(unsigned, std::uint32_t value) {
  const auto& all = heed::emulated::exchange(&value, 1);
  return (*std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a[0] < b[0]; }))[0];
}
inline int __ffs(std::uint32_t bits) { return bits == 0 ? 0 : std::countr_zero(bits) + 1; }
inline unsigned atomicAdd(unsigned* to, unsigned x) {
  const unsigned before = *to;
  *to += x;
  return before;
}
inline unsigned atomicOr(unsigned* to, unsigned x) {
  const unsigned before = *to;
  *to |= x;
  return before;
}
