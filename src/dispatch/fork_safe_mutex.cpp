#include "dispatch/fork_safe_mutex.hpp"

#include <pthread.h>

#include <algorithm>
#include <vector>

namespace heed::dispatch {
namespace {

/// Every ForkSafeMutex of the process. Never destroyed: a fork may come while the program is ending.
struct All {
  std::mutex mutex;
  std::vector<ForkSafeMutex*> list;
};

All& all() {
  static All* const instance = new All;
  return *instance;
}

void lock_all() {
  all().mutex.lock();
  for (ForkSafeMutex* mutex : all().list) mutex->lock();
}

void unlock_all() {
  for (ForkSafeMutex* mutex : all().list) mutex->unlock();
  all().mutex.unlock();
}

// Registered while the library loads, before anybody can fork in the middle of it.
[[maybe_unused]] const int g_fork_handlers = (all(), pthread_atfork(lock_all, unlock_all, unlock_all));

}  // namespace

ForkSafeMutex::ForkSafeMutex() {
  const std::scoped_lock lock(all().mutex);
  all().list.push_back(this);
}

ForkSafeMutex::~ForkSafeMutex() {
  const std::scoped_lock lock(all().mutex);
  std::erase(all().list, this);
}

}  // namespace heed::dispatch
