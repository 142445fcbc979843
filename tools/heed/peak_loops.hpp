#pragma once

#include <cstddef>

/// The inner loops of peak.cpp, one per vector width. Each is compiled for its own instructions whatever the flags.
namespace heed::command {

inline constexpr int kFmaChains = 12;  // latency 4 or 5 times two units, and some to spare
inline constexpr int kFmaValues = 16 * (2 + kFmaChains);

/// Does `steps` steps of kFmaChains independent multiply-adds, each `lanes` wide, on kFmaValues values that the
/// compiler must not know (it would simplify); what it returns keeps the work alive. `values` is aligned to 64 bytes.
struct FmaLoop {
  int lanes;
  float (*run)(long steps, const float* values);
};

/// Reads `streams` pieces of `bytes` each, one behind the other in memory, side by side. bytes is a multiple of 512.
using ReadLoop = unsigned long long (*)(const std::byte* memory, std::size_t bytes, int streams);

/// 4, 8 or 16 lanes: the widest loop that is not wider and that was compiled here.
FmaLoop fma_loop(int lanes);
ReadLoop read_loop(int lanes);

}  // namespace heed::command
