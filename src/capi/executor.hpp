#pragma once

#include <heed/executor.hpp>
#include <heed/heed.h>

#include <optional>

namespace heed::capi {

/// The caller's function pointers as an Executor. C frames cannot be unwound: an exception of a piece waits here until
/// parallel_for has returned.
class CallbackExecutor final : public Executor {
 public:
  /// Throws Error when a function is missing.
  explicit CallbackExecutor(const heed_executor& callbacks);

  int concurrency() const noexcept override { return callbacks_.concurrency(callbacks_.user); }
  void parallel_for(std::int64_t count, Body body, void* context) override;

 private:
  heed_executor callbacks_;
};

/// Null where the caller gave none; otherwise lives in `storage`.
Executor* executor_of(const heed_executor* callbacks, std::optional<CallbackExecutor>& storage);

}  // namespace heed::capi
