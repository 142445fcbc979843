#pragma once

#include "verify/case.hpp"
#include "verify/judge.hpp"

#include <heed/plan.hpp>

#include <functional>
#include <string>

namespace heed::verify {

/// What a Case runs on.
struct Target {
  std::string name;  ///< for messages: "cpu/avx2"
  /// Computes `args`, whose pointers lead into `buffers`; done when it returns, with the results there. Throws Error
  /// when it refuses.
  std::function<void(const Buffers& buffers, const ForwardArgs& args)> forward;
  std::function<void(const Buffers& buffers, const BackwardArgs& args)> backward = {};  ///< likewise
  Executor* executor = nullptr;  ///< threads for the oracle and the data; null: the calling one

  /// An engine of a context. `executor` null: the context's own pool. `kernel`: run exactly this one. For the CUDA
  /// engine everything is copied to a GPU and back.
  static Target of(Context& context, EngineChoice engine, Executor* executor = nullptr, std::string kernel = {});
};

/// Builds the case, runs it, and judges the result.
Verdict run_case(const Case& c, const Target& target, JudgeOptions options = {});

}  // namespace heed::verify
