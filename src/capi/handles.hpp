#pragma once

#include <heed/heed.h>
#include <heed/plan.hpp>

#include <memory>

struct heed_context {
  std::shared_ptr<heed::Context> context;
};

struct heed_plan {
  heed::Plan plan;
};

namespace heed::capi {

/// NULL is the default context.
inline std::shared_ptr<Context> context_of(const heed_context* handle) {
  return handle == nullptr ? default_context() : handle->context;
}

}  // namespace heed::capi
