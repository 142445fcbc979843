#pragma once

#include "dispatch/fork_safe_mutex.hpp"

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace heed::dispatch {

/// Scratch memory that is used again: the buffers of calls that have ended wait here for the next ones. Several threads
/// may take at once, each gets a buffer of its own.
class WorkspacePool {
 public:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;  ///< buffers of at least this size lie on huge pages
  static constexpr std::size_t kMaxIdleBuffers = 16;
  static constexpr std::size_t kMaxIdleBytes = std::size_t{256} << 20;  ///< but one buffer of any size is kept

  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  struct Buffer {
    std::unique_ptr<std::byte, Free> data;
    std::size_t bytes = 0;
  };

  WorkspacePool();

  /// A buffer for the duration of one call.
  class Lease {
   public:
    Lease(WorkspacePool& pool, Buffer buffer, std::size_t bytes)
        : pool_(pool), buffer_(std::move(buffer)), bytes_(bytes) {}
    Lease(Lease&&) = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (buffer_.data) pool_.give_back(std::move(buffer_));
    }
    std::span<std::byte> bytes() const { return {buffer_.data.get(), bytes_}; }

   private:
    WorkspacePool& pool_;
    Buffer buffer_;
    std::size_t bytes_;
  };

  /// Throws Error (out_of_memory). No bytes: an empty span, and nothing is locked.
  Lease take(std::size_t bytes);

  std::size_t idle_buffers() const;
  std::size_t idle_bytes() const;

 private:
  void give_back(Buffer buffer) noexcept;

  mutable ForkSafeMutex mutex_;
  std::vector<Buffer> idle_;  ///< smallest first
  std::size_t idle_bytes_ = 0;
};

}  // namespace heed::dispatch
