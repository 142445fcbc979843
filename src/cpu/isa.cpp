#include "cpu/isa.hpp"

#include <cstdint>
#include <cstring>
#include <initializer_list>

#if HEED_X86
#include "cpu/cpuid.hpp"
#include "cpu/tile_registers.hpp"
#endif

namespace heed::cpu {

using dispatch::CpuIsa;

namespace {

#if HEED_X86

std::string brand() {
  if (cpuid(0x80000000).a < 0x80000004) return "x86-64";
  char text[49] = {};
  for (std::uint32_t i = 0; i < 3; ++i) {
    const CpuidWords r = cpuid(0x80000002 + i);
    std::memcpy(text + 16 * i, &r, 16);
  }
  std::string name = text;
  const auto first = name.find_first_not_of(' ');
  return first == std::string::npos ? "x86-64" : name.substr(first);
}

std::int64_t cache_bytes_of_a_thread() {
  constexpr std::uint32_t kIntel = 4, kAmd = 0x8000001D;  // laid out alike; the other one's is empty
  std::int64_t bytes = 0;
  for (const std::uint32_t leaf : {kIntel, kAmd})
    for (std::uint32_t index = 0; index < 8; ++index) {
      const CpuidWords r = cpuid(leaf, index);
      if (bits(r.a, 0, 5) == 0) break;  // no more caches
      if (bits(r.a, 5, 3) < 2) continue;
      const std::int64_t line = bits(r.b, 0, 12) + 1, partitions = bits(r.b, 12, 10) + 1, ways = bits(r.b, 22, 10) + 1,
                         sets = std::int64_t{r.c} + 1, threads = bits(r.a, 14, 12) + 1;
      bytes += line * partitions * ways * sets / threads;
    }
  return bytes;
}

Machine detect() {
  Machine m;
  m.model = brand();
  m.cache_bytes = cache_bytes_of_a_thread();
  const CpuidWords basic = cpuid(1), extended = cpuid(7), extended1 = cpuid(7, 1);
  const std::uint64_t saved = saved_states();
  const bool ymm = bit(saved, 1) && bit(saved, 2), zmm = ymm && bit(saved, 5) && bit(saved, 6) && bit(saved, 7);

  const bool fma = bit(basic.c, 12), avx = bit(basic.c, 28), f16c = bit(basic.c, 29);
  const bool avx2 = bit(extended.b, 5), bmi2 = bit(extended.b, 8);
  const bool avx512 =
      bit(extended.b, 16) && bit(extended.b, 17) && bit(extended.b, 30) && bit(extended.b, 31);  // F DQ BW VL
  const bool bf16_dot = bit(extended1.a, 5);

  m.has[static_cast<int>(CpuIsa::baseline)] = true;
  m.has[static_cast<int>(CpuIsa::avx2)] = ymm && avx && avx2 && fma && f16c && bmi2;
  m.has[static_cast<int>(CpuIsa::avx512)] = m.has[static_cast<int>(CpuIsa::avx2)] && zmm && avx512;
  m.has[static_cast<int>(CpuIsa::avx512bf16)] = m.has[static_cast<int>(CpuIsa::avx512)] && bf16_dot;
  m.has[static_cast<int>(CpuIsa::amx)] = m.has[static_cast<int>(CpuIsa::avx512bf16)] && may_use_tile_registers();
  return m;
}

#else

Machine detect() {
  Machine m;
  m.model = "this CPU";
  m.has[static_cast<int>(CpuIsa::baseline)] = true;
  return m;
}

#endif

}  // namespace

CpuIsa Machine::best() const {
  CpuIsa isa = CpuIsa::baseline;
  for (int level = 0; level < dispatch::kCpuIsaCount; ++level)
    if (has[static_cast<std::size_t>(level)]) isa = static_cast<CpuIsa>(level);
  return isa;
}

const Machine& machine() {
  static const Machine detected = detect();
  return detected;
}

}  // namespace heed::cpu
