#include <heed/backward.hpp>
#include <heed/forward.hpp>
#include <heed/plan.hpp>

#include <atomic>
#include <memory>

namespace heed {
namespace {

// Neither a guarded static nor a lock: a fork during the first call would leave either one shut in the child. Never
// destroyed: at exit other threads may be computing, and joining the pool from a static destructor may never return.
constinit std::atomic<const std::shared_ptr<Context>*> g_context{nullptr};

}  // namespace

std::shared_ptr<Context> default_context() {
  const auto* context = g_context.load(std::memory_order_acquire);
  if (context == nullptr) {
    auto fresh = std::make_unique<const std::shared_ptr<Context>>(std::make_shared<Context>());
    if (g_context.compare_exchange_strong(context, fresh.get(), std::memory_order_acq_rel)) context = fresh.release();
  }
  return *context;
}

Plan plan(const Problem& problem, const PlanOptions& options) { return default_context()->plan(problem, options); }

Explanation explain(const Problem& problem, const PlanOptions& options) {
  return default_context()->explain(problem, options);
}

void forward(const ForwardArgs& args, const RunOptions& options) { default_context()->forward(args, options); }
void backward(const BackwardArgs& args, const RunOptions& options) { default_context()->backward(args, options); }

}  // namespace heed
