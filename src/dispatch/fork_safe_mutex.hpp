#pragma once

#include <mutex>

namespace heed::dispatch {

/// A mutex that no fork() can leave locked: fork waits until it is free, so that in the child it is free too, and what
/// it protects is whole. Hold it briefly, run nobody else's code under it, and never take two of them at once.
class ForkSafeMutex {
 public:
  ForkSafeMutex();
  ~ForkSafeMutex();
  ForkSafeMutex(const ForkSafeMutex&) = delete;
  ForkSafeMutex& operator=(const ForkSafeMutex&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  // Not a shared_mutex: glibc's rwlock remembers its writer's thread id, which is another one in the child.
  std::mutex mutex_;
};

}  // namespace heed::dispatch
