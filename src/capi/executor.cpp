#include "capi/executor.hpp"

#include "capi/status.hpp"

#include <atomic>
#include <exception>

namespace heed::capi {
namespace {

struct Call {
  Executor::Body body;
  void* context;
  std::atomic<std::int64_t> done{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error = nullptr;
};

void run_piece(void* context, std::int64_t index, int worker) noexcept {
  auto& call = *static_cast<Call*>(context);
  if (!call.failed.load(std::memory_order_relaxed)) {
    try {
      call.body(call.context, index, worker);
    } catch (...) {
      if (!call.failed.exchange(true, std::memory_order_relaxed)) call.error = std::current_exception();
    }
  }
  // The last write of a piece, so that whoever sees the count sees its error.
  call.done.fetch_add(1, std::memory_order_release);
}

}  // namespace

CallbackExecutor::CallbackExecutor(const heed_executor& callbacks) : callbacks_(callbacks) {
  if (callbacks.concurrency == nullptr) throw invalid("the executor has no concurrency function.");
  if (callbacks.parallel_for == nullptr) throw invalid("the executor has no parallel_for function.");
}

void CallbackExecutor::parallel_for(std::int64_t count, Body body, void* context) {
  if (count <= 0) return;
  Call call{body, context};
  callbacks_.parallel_for(callbacks_.user, count, run_piece, &call);
  // Counted, because a parallel_for that lost a piece would leave a hole in the output that nobody sees.
  const std::int64_t done = call.done.load(std::memory_order_acquire);
  if (call.failed.load(std::memory_order_relaxed)) std::rethrow_exception(call.error);
  if (done != count) throw invalid("the executor ran {} pieces of {}: the output is not whole.", done, count);
}

Executor* executor_of(const heed_executor* callbacks, std::optional<CallbackExecutor>& storage) {
  return callbacks == nullptr ? nullptr : &storage.emplace(*callbacks);
}

}  // namespace heed::capi
