#include "threads.hpp"

#include <heed/heed.hpp>

namespace heed::python {

heed_executor default_threads() {
  heed_executor threads{};
  threads.user = &default_context()->executor();
  threads.concurrency = [](void* user) { return static_cast<Executor*>(user)->concurrency(); };
  threads.parallel_for = [](void* user, std::int64_t count, heed_body body, void* context) {
    static_cast<Executor*>(user)->parallel_for(count, body, context);
  };
  return threads;
}

}  // namespace heed::python
