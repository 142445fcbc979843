#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace heed::command {

/// What this machine can do at most, measured in this process, beside what is compared with it: a shared or throttled
/// machine changes from minute to minute.

/// Rate in FLOP/s of f32 multiply-adds on registers alone, `threads` at once, in vectors of this ISA level ("baseline",
/// "avx2", "avx512", "avx512bf16", "amx"; the last two have the f32 rate of avx512). The best of `rounds` of about 1
/// ms.
double fma_peak(std::string_view isa, int threads, int rounds);

/// Reads memory far larger than the caches.
class ReadBandwidth {
 public:
  ReadBandwidth(int threads, std::size_t bytes);

  /// Bytes per second, `threads` at once: the best of `rounds`, taking turns between one stream and four streams per
  /// thread, because one stream alone under-reports what the memory gives.
  double measure(int rounds) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  int threads_;
  std::size_t per_thread_;
  std::unique_ptr<std::byte[], Free> memory_;
};

}  // namespace heed::command
