/// The peak loops of `heed bench` for compare_torch.py, which compiles this file beside them and calls it by ctypes.

#include "heed/peak.hpp"

extern "C" double heed_bench_fma_peak(const char* isa, int threads, int rounds) {
  return heed::command::fma_peak(isa, threads, rounds);
}
