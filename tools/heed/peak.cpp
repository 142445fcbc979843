#include "heed/peak.hpp"

#include "heed/peak_loops.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <new>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace heed::command {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

/// Runs work(thread) on `threads` threads that begin together; returns the sum of what they return.
template <class Work>
double together(int threads, const Work& work) {
  std::latch begin(threads);
  std::vector<double> results(static_cast<std::size_t>(threads));
  const auto body = [&](int thread) {
    begin.arrive_and_wait();
    results[static_cast<std::size_t>(thread)] = work(thread);
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(body, i);
  body(0);
  for (std::thread& each : others) each.join();
  double sum = 0;
  for (const double each : results) sum += each;
  return sum;
}

int lanes_of(std::string_view isa) {
  if (isa.rfind("avx512", 0) == 0 || isa.rfind("amx", 0) == 0) return 16;
  return isa.rfind("avx2", 0) == 0 ? 8 : 4;
}

int widest_lanes() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return 16;
  if (__builtin_cpu_supports("avx2")) return 8;
#endif
  return 4;
}

/// What a loop returns goes here, so that no compiler drops the loop.
std::atomic<unsigned long long> g_sink;

}  // namespace

double fma_peak(std::string_view isa, int threads, int rounds) {
  constexpr long kSteps = 200'000;
  const FmaLoop loop = fma_loop(std::min(lanes_of(isa), widest_lanes()));
  alignas(64) std::array<float, kFmaValues> values;
  values.fill(0.5f);
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    best = std::max(best, together(threads, [&](int) {
                      const SteadyClock::time_point begin = SteadyClock::now();
                      g_sink += static_cast<unsigned long long>(loop.run(kSteps, values.data()) > 0);
                      return 2.0 * kFmaChains * loop.lanes * kSteps / seconds_since(begin);
                    }));
  }
  return best;
}

void ReadBandwidth::Free::operator()(std::byte* memory) const { std::free(memory); }

ReadBandwidth::ReadBandwidth(int threads, std::size_t bytes) : threads_(threads) {
  constexpr std::size_t kGrain = 4 * 4096;  // four streams of whole pages
  per_thread_ = std::max(bytes / static_cast<std::size_t>(threads) / kGrain, std::size_t{1}) * kGrain;
  const std::size_t total = per_thread_ * static_cast<std::size_t>(threads);
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  memory_.reset(
      static_cast<std::byte*>(std::aligned_alloc(kHugePage, (total + kHugePage - 1) / kHugePage * kHugePage)));
  if (memory_ == nullptr) throw std::bad_alloc();
  madvise(memory_.get(), total, MADV_HUGEPAGE);
  together(threads_, [&](int thread) {
    std::memset(memory_.get() + per_thread_ * static_cast<std::size_t>(thread), 1, per_thread_);
    return 0.0;
  });
}

double ReadBandwidth::measure(int rounds) const {
  const ReadLoop loop = read_loop(widest_lanes());
  double best = 0;
  for (int round = 0; round < 2 * rounds; ++round) {
    const int streams = round % 2 == 0 ? 1 : 4;
    best = std::max(best, together(threads_, [&](int thread) {
                      const SteadyClock::time_point begin = SteadyClock::now();
                      g_sink += loop(memory_.get() + per_thread_ * static_cast<std::size_t>(thread),
                                     per_thread_ / static_cast<std::size_t>(streams), streams);
                      return static_cast<double>(per_thread_) / seconds_since(begin);
                    }));
  }
  return best;
}

}  // namespace heed::command
