// What the engine would tell a kernel, for tensors in host memory.
#pragma once

#include "cuda/backward_params.hpp"
#include "cuda/forward_params.hpp"
#include "verify/fenced_copies.hpp"

#include <heed/executor.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <limits>
#include <new>
#include <span>

namespace heed::emulated {

/// What TMA and copies of sixteen bytes ask of a tensor's first element.
inline constexpr std::size_t kFenceAlignment = 16;

inline kernels::ForwardParams params_of(const Problem& problem, const ForwardArgs& args) {
  SerialExecutor executor;
  return cuda::forward_params(
      {.problem = problem, .args = args, .workspace = {}, .executor = executor, .threads = 1, .prepared = nullptr});
}

/// Of a backward pass, full of what is no number. It ends at a page that nobody may touch.
class Workspace {
 public:
  explicit Workspace(const cuda::BackwardWorkspace& places) : places_(places) {
    constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t used = rounded_up(places.bytes, kAlignment), inside = rounded_up(used, page);
    void* const all = mmap(nullptr, inside + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) throw std::bad_alloc();
    mapped_ = {static_cast<std::byte*>(all), inside + page};
    if (mprotect(mapped_.data() + inside, page, PROT_NONE) != 0) throw std::bad_alloc();
    first_ = mapped_.data() + inside - used;
    for (std::size_t at = 0; at < used; at += sizeof(float)) std::memcpy(first_ + at, &kNoNumber, sizeof(float));
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { munmap(mapped_.data(), mapped_.size()); }

  kernels::BackwardParams params_of(const Problem& problem, const BackwardArgs& args) {
    SerialExecutor executor;
    return cuda::backward_params({.problem = problem,
                                  .args = args,
                                  .workspace = {first_, places_.bytes},
                                  .executor = executor,
                                  .threads = 1,
                                  .prepared = nullptr},
                                 places_);
  }

 private:
  static constexpr std::size_t kAlignment = 256;
  static std::size_t rounded_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

  cuda::BackwardWorkspace places_;
  std::span<std::byte> mapped_;
  std::byte* first_ = nullptr;
};

}  // namespace heed::emulated
