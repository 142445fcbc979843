#pragma once

#include <heed/executor.hpp>
#include <heed/plan.hpp>

#include "dispatch/engines.hpp"
#include "dispatch/plan_cache.hpp"
#include "dispatch/registry.hpp"
#include "dispatch/workspace_pool.hpp"

#include <memory>

namespace heed {

struct Context::Impl {
  /// As many problems as a model has in its life, with room for lengths that change from call to call.
  static constexpr std::size_t kPlans = 1024;

  Impl(dispatch::Engines engines_here, int threads, bool log_calls);

  /// From the cache, or made and kept.
  std::shared_ptr<const Plan::Impl> plan(const Problem& problem, const PlanOptions& options);

  const dispatch::Engines engines;
  const std::shared_ptr<const dispatch::Registry> registry;
  const bool log;
  ThreadPool pool;
  dispatch::PlanCache plans{kPlans};
  dispatch::WorkspacePool workspaces;
};

namespace dispatch {

/// An environment variable; empty counts as not set.
std::string_view environment(const char* variable);

}  // namespace dispatch
}  // namespace heed
