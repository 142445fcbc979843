// What the engine would tell a kernel, for tensors in host memory.
#pragma once

#include "cuda/backward_params.hpp"
#include "cuda/forward_params.hpp"
#include "verify/fenced_copies.hpp"

#include <heed/executor.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace heed::emulated {

/// What TMA and copies of sixteen bytes ask of a tensor's first element.
inline constexpr std::size_t kFenceAlignment = 16;

inline kernels::ForwardParams params_of(const Problem& problem, const ForwardArgs& args) {
  SerialExecutor executor;
  return cuda::forward_params(
      {.problem = problem, .args = args, .workspace = {}, .executor = executor, .threads = 1, .prepared = nullptr});
}

/// Of a backward pass, full of what is no number.
class Workspace {
 public:
  explicit Workspace(const cuda::BackwardWorkspace& places)
      : places_(places), memory_(places.bytes / sizeof(float) + kAlignment, std::numeric_limits<float>::quiet_NaN()) {}

  kernels::BackwardParams params_of(const Problem& problem, const BackwardArgs& args) {
    const auto first = (reinterpret_cast<std::uintptr_t>(memory_.data()) + kAlignment - 1) / kAlignment * kAlignment;
    SerialExecutor executor;
    return cuda::backward_params({.problem = problem,
                                  .args = args,
                                  .workspace = {reinterpret_cast<std::byte*>(first), places_.bytes},
                                  .executor = executor,
                                  .threads = 1,
                                  .prepared = nullptr},
                                 places_);
  }

 private:
  static constexpr std::size_t kAlignment = 256;
  cuda::BackwardWorkspace places_;
  std::vector<float> memory_;
};

}  // namespace heed::emulated
