#pragma once

#include <heed/backward.hpp>
#include <heed/forward.hpp>
#include <heed/heed.h>
#include <heed/plan.hpp>

/// From the structs of heed.h to those of the C++ headers. Each throws Error, naming the field, where a value means
/// nothing; what the values mean together is judged by Problem::of, as for a caller in C++.
namespace heed::capi {

ForwardArgs forward_args(const heed_forward_args* args);
BackwardArgs backward_args(const heed_backward_args* args);

// Null options are the defaults.
Context::Options context_options(const heed_context_options* options);
PlanOptions plan_options(const heed_plan_options* options);
/// Its executor is left out: the caller keeps a CallbackExecutor for as long as it runs.
RunOptions run_options(const heed_run_options* options);

heed_mask c_mask(const Mask& mask);

}  // namespace heed::capi
