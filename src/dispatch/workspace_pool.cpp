#include "dispatch/workspace_pool.hpp"

#include <heed/error.hpp>

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

namespace heed::dispatch {
namespace {

/// Sizes that differ little share a buffer.
constexpr std::size_t kSmallStep = std::size_t{64} << 10;

WorkspacePool::Buffer allocate(std::size_t wanted) {
  const bool huge = wanted >= WorkspacePool::kHugePage;
  const std::size_t step = huge ? WorkspacePool::kHugePage : kSmallStep;
  std::byte* data = nullptr;
  const bool fits = wanted <= std::numeric_limits<std::size_t>::max() / 2;
  const std::size_t bytes = fits ? (wanted + step - 1) / step * step : 0;
  if (fits) data = static_cast<std::byte*>(std::aligned_alloc(huge ? step : WorkspacePool::kAlignment, bytes));
  if (data == nullptr)
    throw Error(ErrorCode::out_of_memory, fmt::format("{} bytes of workspace could not be had.", wanted));
  // Advice only: without huge pages it is slower, not wrong.
  if (huge) madvise(data, bytes, MADV_HUGEPAGE);
  return {std::unique_ptr<std::byte, WorkspacePool::Free>(data), bytes};
}

}  // namespace

// So that giving back never allocates: there is a place for every idle buffer and the one that comes.
WorkspacePool::WorkspacePool() { idle_.reserve(kMaxIdleBuffers + 1); }

WorkspacePool::Lease WorkspacePool::take(std::size_t bytes) {
  if (bytes == 0) return {*this, {}, 0};
  {
    const std::scoped_lock lock(mutex_);
    const auto fit = std::find_if(idle_.begin(), idle_.end(), [&](const Buffer& b) { return b.bytes >= bytes; });
    if (fit != idle_.end()) {
      Buffer buffer = std::move(*fit);
      idle_.erase(fit);
      idle_bytes_ -= buffer.bytes;
      return {*this, std::move(buffer), bytes};
    }
  }
  return {*this, allocate(bytes), bytes};
}

void WorkspacePool::give_back(Buffer buffer) noexcept {
  const std::scoped_lock lock(mutex_);
  idle_bytes_ += buffer.bytes;
  const auto place = std::upper_bound(idle_.begin(), idle_.end(), buffer.bytes,
                                      [](std::size_t bytes, const Buffer& b) { return bytes < b.bytes; });
  idle_.insert(place, std::move(buffer));
  // The largest serves everybody, so the smallest goes.
  while (idle_.size() > kMaxIdleBuffers || (idle_bytes_ > kMaxIdleBytes && idle_.size() > 1)) {
    idle_bytes_ -= idle_.front().bytes;
    idle_.erase(idle_.begin());
  }
}

std::size_t WorkspacePool::idle_buffers() const {
  const std::scoped_lock lock(mutex_);
  return idle_.size();
}

std::size_t WorkspacePool::idle_bytes() const {
  const std::scoped_lock lock(mutex_);
  return idle_bytes_;
}

}  // namespace heed::dispatch
