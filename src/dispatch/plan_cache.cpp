#include "dispatch/plan_cache.hpp"

#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>

namespace heed::dispatch {
namespace {

std::size_t hash_of(const PlanCache::Key& key) {
  const auto mix = [](std::size_t seed, std::size_t value) { return (seed ^ value) * 0x9E3779B97F4A7C15u; };
  std::size_t hash = mix(key.problem.hash(), static_cast<std::size_t>(key.engine));
  hash = mix(hash, static_cast<std::size_t>(key.threads));
  return key.kernel.empty() ? hash : mix(hash, std::hash<std::string_view>{}(key.kernel));
}

bool equal(const PlanCache::Key& a, const PlanCache::Key& b) {
  return a.threads == b.threads && a.engine == b.engine && a.kernel == b.kernel && a.problem == b.problem;
}

}  // namespace

std::size_t PlanCache::Hash::operator()(const StoredKey& key) const { return hash_of(key.view()); }

bool PlanCache::Equal::operator()(const StoredKey& a, const StoredKey& b) const { return equal(a.view(), b.view()); }
bool PlanCache::Equal::operator()(const Hashed& a, const StoredKey& b) const { return equal(a.key, b.view()); }

PlanCache::Value PlanCache::find(const Key& key) {
  const Hashed hashed{key, hash_of(key)};
  const std::scoped_lock lock(mutex_);
  const auto slot = slots_.find(hashed);
  if (slot == slots_.end()) return nullptr;
  slot->second.last_use = ++clock_;
  return slot->second.plan;
}

PlanCache::Value PlanCache::insert(const Key& key, Value plan) {
  // A plan may own much, and what its end calls may ask this cache: the one that makes room, and `plan` itself where
  // another thread was first, are destroyed when the lock is free.
  Value dropped;
  StoredKey stored{key.problem, key.engine, std::string(key.kernel), key.threads};
  const std::scoped_lock lock(mutex_);
  const auto [slot, is_new] = slots_.try_emplace(std::move(stored));
  if (is_new) slot->second.plan = std::move(plan);
  slot->second.last_use = ++clock_;
  Value result = slot->second.plan;
  if (is_new && slots_.size() > capacity_) {
    const auto oldest = std::min_element(slots_.begin(), slots_.end(), [](const auto& a, const auto& b) {
      return a.second.last_use < b.second.last_use;
    });
    dropped = std::move(oldest->second.plan);
    slots_.erase(oldest);
  }
  return result;
}

std::size_t PlanCache::size() const {
  const std::scoped_lock lock(mutex_);
  return slots_.size();
}

}  // namespace heed::dispatch
