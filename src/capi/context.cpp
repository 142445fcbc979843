#include "capi/convert.hpp"
#include "capi/executor.hpp"
#include "capi/handles.hpp"
#include "capi/status.hpp"

#include <heed/oracle.hpp>

using namespace heed;        // NOLINT(google-build-using-namespace): this file is heed's C face, all of it is heed
using namespace heed::capi;  // NOLINT(google-build-using-namespace)

heed_status heed_context_create(const heed_context_options* options, heed_context** context) {
  return guarded([&] {
    heed_context*& result = required(context, "context");
    result = new heed_context{std::make_shared<Context>(context_options(options))};
  });
}

void heed_context_destroy(heed_context* context) { delete context; }

heed_status heed_forward(heed_context* context, const heed_forward_args* args, const heed_run_options* options) {
  return guarded([&] {
    const ForwardArgs arguments = forward_args(args);
    RunOptions run = run_options(options);
    std::optional<CallbackExecutor> storage;
    run.executor = executor_of(options == nullptr ? nullptr : options->executor, storage);
    context_of(context)->forward(arguments, run);
  });
}

heed_status heed_backward(heed_context* context, const heed_backward_args* args, const heed_run_options* options) {
  return guarded([&] {
    const BackwardArgs arguments = backward_args(args);
    RunOptions run = run_options(options);
    std::optional<CallbackExecutor> storage;
    run.executor = executor_of(options == nullptr ? nullptr : options->executor, storage);
    context_of(context)->backward(arguments, run);
  });
}

heed_status heed_oracle_backward(const heed_backward_args* args, const heed_executor* executor) {
  return guarded([&] {
    std::optional<CallbackExecutor> storage;
    oracle::backward(backward_args(args), {.executor = executor_of(executor, storage)});
  });
}

heed_status heed_oracle_forward(const heed_forward_args* args, const heed_executor* executor) {
  return guarded([&] {
    std::optional<CallbackExecutor> storage;
    oracle::forward(forward_args(args), {.executor = executor_of(executor, storage)});
  });
}
