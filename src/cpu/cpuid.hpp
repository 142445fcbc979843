// What an x86 CPU says of itself, and what the operating system has switched on.
#pragma once

#include <cpuid.h>

#include <cstdint>

namespace heed::cpu {

struct CpuidWords {
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
};

/// Zeros where the CPU has no such leaf.
inline CpuidWords cpuid(std::uint32_t leaf, std::uint32_t subleaf = 0) {
  CpuidWords words;
  if (__get_cpuid_count(leaf, subleaf, &words.a, &words.b, &words.c, &words.d) == 0) return {};
  return words;
}

constexpr bool bit(std::uint64_t word, int number) { return (word >> number & 1) != 0; }
constexpr std::int64_t bits(std::uint32_t word, int first, int count) {
  return word >> first & ((std::uint32_t{1} << count) - 1);
}

/// Which register states the operating system saves (XCR0); none where it does not say.
inline std::uint64_t saved_states() {
  constexpr int kOsxsave = 27;
  if (!bit(cpuid(1).c, kOsxsave)) return 0;
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

}  // namespace heed::cpu
