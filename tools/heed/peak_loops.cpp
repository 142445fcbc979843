#include "heed/peak_loops.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace heed::command {
namespace {

// Twelve chains by name: an array would be spilled by a compiler that does not unroll.
#define HEED_TWELVE(step) \
  step(0) step(1) step(2) step(3) step(4) step(5) step(6) step(7) step(8) step(9) step(10) step(11)
#define HEED_EIGHT(step) step(0) step(1) step(2) step(3) step(4) step(5) step(6) step(7)

// The baseline has no multiply-add instruction: a multiplication and an addition, on vectors every compiler here knows.
using Float4 = float __attribute__((vector_size(16)));

float fma_4(long steps, const float* values) {
  const auto* vectors = reinterpret_cast<const Float4*>(values);
  const Float4 a = vectors[0], b = vectors[1];
#define HEED_STEP(n) Float4 x##n = vectors[2 + (n)];
  HEED_TWELVE(HEED_STEP)
#undef HEED_STEP
  for (long i = 0; i < steps; ++i) {
#define HEED_STEP(n) x##n = x##n * a + b;
    HEED_TWELVE(HEED_STEP)
#undef HEED_STEP
  }
  float sum = 0;
#define HEED_STEP(n) sum += x##n[0] + x##n[1] + x##n[2] + x##n[3];
  HEED_TWELVE(HEED_STEP)
#undef HEED_STEP
  return sum;
}

using Word2 = unsigned long long __attribute__((vector_size(16)));

unsigned long long read_4(const std::byte* memory, std::size_t bytes, int streams) {
  Word2 x{};
  for (std::size_t at = 0; at < bytes; at += 512)
    for (int s = 0; s < streams; ++s) {
      const auto* piece = reinterpret_cast<const Word2*>(memory + static_cast<std::size_t>(s) * bytes + at);
      for (int i = 0; i < 32; ++i) x ^= piece[i];
    }
  return x[0] ^ x[1];
}

#if defined(__x86_64__)

__attribute__((target("avx2,fma"))) float fma_8(long steps, const float* values) {
  const __m256 a = _mm256_load_ps(values), b = _mm256_load_ps(values + 8);
#define HEED_STEP(n) __m256 x##n = _mm256_load_ps(values + 8 * (2 + (n)));
  HEED_TWELVE(HEED_STEP)
#undef HEED_STEP
  for (long i = 0; i < steps; ++i) {
#define HEED_STEP(n) x##n = _mm256_fmadd_ps(x##n, a, b);
    HEED_TWELVE(HEED_STEP)
#undef HEED_STEP
  }
  __m256 sum = _mm256_setzero_ps();
#define HEED_STEP(n) sum = _mm256_add_ps(sum, x##n);
  HEED_TWELVE(HEED_STEP)
#undef HEED_STEP
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes, sum);
  return lanes[0] + lanes[7];
}

__attribute__((target("avx2"))) unsigned long long read_8(const std::byte* memory, std::size_t bytes, int streams) {
#define HEED_STEP(n) __m256i x##n = _mm256_setzero_si256();
  HEED_EIGHT(HEED_STEP)
#undef HEED_STEP
  for (std::size_t at = 0; at < bytes; at += 512)
    for (int s = 0; s < streams; ++s) {
      const auto* piece = reinterpret_cast<const __m256i*>(memory + static_cast<std::size_t>(s) * bytes + at);
#define HEED_STEP(n)                                             \
  x##n = _mm256_xor_si256(x##n, _mm256_load_si256(piece + (n))); \
  x##n = _mm256_xor_si256(x##n, _mm256_load_si256(piece + 8 + (n)));
      HEED_EIGHT(HEED_STEP)
#undef HEED_STEP
    }
  __m256i all = _mm256_setzero_si256();
#define HEED_STEP(n) all = _mm256_xor_si256(all, x##n);
  HEED_EIGHT(HEED_STEP)
#undef HEED_STEP
  return static_cast<unsigned long long>(_mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 3));
}

__attribute__((target("avx512f"))) float fma_16(long steps, const float* values) {
  const __m512 a = _mm512_load_ps(values), b = _mm512_load_ps(values + 16);
#define HEED_STEP(n) __m512 x##n = _mm512_load_ps(values + 16 * (2 + (n)));
  HEED_TWELVE(HEED_STEP)
#undef HEED_STEP
  for (long i = 0; i < steps; ++i) {
#define HEED_STEP(n) x##n = _mm512_fmadd_ps(x##n, a, b);
    HEED_TWELVE(HEED_STEP)
#undef HEED_STEP
  }
  __m512 sum = _mm512_setzero_ps();
#define HEED_STEP(n) sum = _mm512_add_ps(sum, x##n);
  HEED_TWELVE(HEED_STEP)
#undef HEED_STEP
  alignas(64) float lanes[16];
  _mm512_store_ps(lanes, sum);
  return lanes[0] + lanes[15];
}

__attribute__((target("avx512f"))) unsigned long long read_16(const std::byte* memory, std::size_t bytes, int streams) {
#define HEED_STEP(n) __m512i x##n = _mm512_setzero_si512();
  HEED_EIGHT(HEED_STEP)
#undef HEED_STEP
  for (std::size_t at = 0; at < bytes; at += 512)
    for (int s = 0; s < streams; ++s) {
      const auto* piece = reinterpret_cast<const __m512i*>(memory + static_cast<std::size_t>(s) * bytes + at);
#define HEED_STEP(n) x##n = _mm512_xor_si512(x##n, _mm512_load_si512(piece + (n)));
      HEED_EIGHT(HEED_STEP)
#undef HEED_STEP
    }
  __m512i all = _mm512_setzero_si512();
#define HEED_STEP(n) all = _mm512_xor_si512(all, x##n);
  HEED_EIGHT(HEED_STEP)
#undef HEED_STEP
  alignas(64) unsigned long long words[8];
  _mm512_store_si512(words, all);
  return words[0] ^ words[7];
}

#endif

#undef HEED_TWELVE
#undef HEED_EIGHT

}  // namespace

FmaLoop fma_loop(int lanes) {
#if defined(__x86_64__)
  if (lanes >= 16) return {16, fma_16};
  if (lanes >= 8) return {8, fma_8};
#else
  (void)lanes;
#endif
  return {4, fma_4};
}

ReadLoop read_loop(int lanes) {
#if defined(__x86_64__)
  if (lanes >= 16) return read_16;
  if (lanes >= 8) return read_8;
#else
  (void)lanes;
#endif
  return read_4;
}

}  // namespace heed::command
