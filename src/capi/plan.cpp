#include "capi/convert.hpp"
#include "capi/executor.hpp"
#include "capi/handles.hpp"
#include "capi/status.hpp"

#include <optional>
#include <span>

using namespace heed;        // NOLINT(google-build-using-namespace): this file is heed's C face, all of it is heed
using namespace heed::capi;  // NOLINT(google-build-using-namespace)

namespace {

/// `posed` makes what a plan is for: arguments, or a problem.
heed_status create(heed_context* handle, const heed_plan_options* options, heed_plan** plan, auto&& posed) {
  return guarded([&] {
    heed_plan*& result = required(plan, "plan");
    result = new heed_plan{context_of(handle)->plan(posed(), plan_options(options))};
  });
}

std::span<std::byte> workspace_of(void* workspace, size_t bytes) {
  if (workspace == nullptr && bytes > 0) throw invalid("workspace is NULL, but workspace_bytes is {}.", bytes);
  return {static_cast<std::byte*>(workspace), bytes};
}

}  // namespace

heed_status heed_plan_create(heed_context* context, const heed_forward_args* args, const heed_plan_options* options,
                             heed_plan** plan) {
  return create(context, options, plan, [&] { return forward_args(args); });
}

heed_status heed_backward_plan_create(heed_context* context, const heed_backward_args* args,
                                      const heed_plan_options* options, heed_plan** plan) {
  return create(context, options, plan, [&] { return backward_args(args); });
}

heed_status heed_plan_create_from_json(heed_context* context, const char* problem_json,
                                       const heed_plan_options* options, heed_plan** plan) {
  return create(context, options, plan, [&] { return Problem::from_json(&required(problem_json, "problem_json")); });
}

void heed_plan_destroy(heed_plan* plan) { delete plan; }

size_t heed_plan_workspace_bytes(const heed_plan* plan) { return plan == nullptr ? 0 : plan->plan.workspace_bytes(); }
int heed_plan_threads(const heed_plan* plan) { return plan == nullptr ? 0 : plan->plan.threads(); }
int heed_plan_memory(const heed_plan* plan) {
  return plan == nullptr ? HEED_MEMORY_HOST : static_cast<int>(plan->plan.memory());
}
const char* heed_plan_kernel(const heed_plan* plan) { return plan == nullptr ? "" : plan->plan.kernel().c_str(); }

heed_status heed_plan_run(const heed_plan* plan, const heed_forward_args* args, void* workspace, size_t workspace_bytes,
                          const heed_executor* executor) {
  return guarded([&] {
    const Plan& chosen = required(plan, "plan").plan;
    std::optional<CallbackExecutor> storage;
    chosen.run(forward_args(args), workspace_of(workspace, workspace_bytes), executor_of(executor, storage));
  });
}

heed_status heed_plan_run_on_stream(const heed_plan* plan, const heed_forward_args* args, void* workspace,
                                    size_t workspace_bytes, void* stream) {
  return guarded([&] {
    const Plan& chosen = required(plan, "plan").plan;
    chosen.run_on_stream(forward_args(args), workspace_of(workspace, workspace_bytes), stream);
  });
}

heed_status heed_backward_plan_run(const heed_plan* plan, const heed_backward_args* args, void* workspace,
                                   size_t workspace_bytes, const heed_executor* executor) {
  return guarded([&] {
    const Plan& chosen = required(plan, "plan").plan;
    std::optional<CallbackExecutor> storage;
    chosen.run(backward_args(args), workspace_of(workspace, workspace_bytes), executor_of(executor, storage));
  });
}

heed_status heed_backward_plan_run_on_stream(const heed_plan* plan, const heed_backward_args* args, void* workspace,
                                             size_t workspace_bytes, void* stream) {
  return guarded([&] {
    const Plan& chosen = required(plan, "plan").plan;
    chosen.run_on_stream(backward_args(args), workspace_of(workspace, workspace_bytes), stream);
  });
}
