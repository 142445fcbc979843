#pragma once

#include <heed/plan.hpp>

#include "dispatch/attention_kernel.hpp"
#include "dispatch/registry.hpp"
#include "dispatch/selection.hpp"

#include <memory>
#include <string>
#include <vector>

namespace heed {

struct Plan::Impl {
  Problem problem;
  EngineChoice engine;  ///< what the caller wished: for explain()
  std::string named_kernel;
  int threads;
  bool log;
  std::shared_ptr<const dispatch::Registry> registry;
  std::shared_ptr<const dispatch::AttentionKernel> kernel;  ///< of the problem's operation
  std::unique_ptr<const dispatch::Prepared> prepared = nullptr;
  std::vector<Stage> stages = {};
  std::size_t workspace_bytes = 0;

  /// For arguments of the plan's operation, workspace and executor that have been checked.
  void run(const ForwardArgs& args, std::span<std::byte> workspace, Executor& executor, void* stream) const;
  void run(const BackwardArgs& args, std::span<std::byte> workspace, Executor& executor, void* stream) const;
};

namespace dispatch {

/// Validates, selects, prepares. `threads` is at least 1. Throws Error.
std::shared_ptr<const Plan::Impl> make_plan(std::shared_ptr<const Registry> registry, const Problem& problem,
                                            const PlanOptions& options, int threads, bool log);

/// By the family of the problem's operation. Throws Error.
Explanation explain(const Registry& registry, const Problem& problem, const Wishes& wishes);

/// Where a call's problem differs from the plan's, in words; empty when it does not.
std::string first_difference(const Problem& plan, const Problem& call);

}  // namespace dispatch
}  // namespace heed
