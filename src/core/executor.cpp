#include <heed/error.hpp>
#include <heed/executor.hpp>

#include "core/cpu_quota.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

namespace heed {

Executor::~Executor() = default;

SerialExecutor::SerialExecutor() = default;
SerialExecutor::~SerialExecutor() = default;

int SerialExecutor::concurrency() const noexcept { return 1; }

void SerialExecutor::parallel_for(std::int64_t count, Body body, void* context) {
  for (std::int64_t index = 0; index < count; ++index) body(context, index, 0);
}

int usable_threads() {
  if (const char* const variable = std::getenv("HEED_NUM_THREADS"); variable != nullptr && *variable != '\0') {
    const std::string_view text = variable;
    int threads = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
    if (error != std::errc{} || end != text.data() + text.size() || threads < 1 || threads > ThreadPool::kMaxThreads) {
      throw Error(ErrorCode::invalid_argument,
                  "HEED_NUM_THREADS=" + std::string(text) + " : the number of threads is a whole number from 1 to " +
                      std::to_string(ThreadPool::kMaxThreads) + " (for example HEED_NUM_THREADS=8), or empty.");
    }
    return threads;
  }
  const int cpus = detail::affinity_cpus();
  return std::clamp(detail::cgroup_cpus().value_or(cpus), 1, std::min(cpus, ThreadPool::kMaxThreads));
}

}  // namespace heed
