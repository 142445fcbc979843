#pragma once

#include <heed/plan.hpp>

#include "dispatch/fork_safe_mutex.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

namespace heed::dispatch {

/// Plans by problem and options: at most `capacity` of them; the one not used for longest makes room.
class PlanCache {
 public:
  using Value = std::shared_ptr<const Plan::Impl>;

  /// What a plan depends on. Looking up copies nothing.
  struct Key {
    const Problem& problem;
    EngineChoice engine;
    std::string_view kernel;
    int threads;
  };

  explicit PlanCache(std::size_t capacity) : capacity_(capacity) {}

  /// Null when there is none.
  Value find(const Key& key);
  /// Keeps the plan, unless another thread was first: then that one's is returned.
  Value insert(const Key& key, Value plan);
  std::size_t size() const;

 private:
  struct StoredKey {
    Problem problem;
    EngineChoice engine;
    std::string kernel;
    int threads;

    Key view() const { return {problem, engine, kernel, threads}; }
  };
  struct Hashed {  // the hash is taken once, outside the lock
    const Key& key;
    std::size_t hash;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(const StoredKey& key) const;
    std::size_t operator()(const Hashed& key) const { return key.hash; }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const StoredKey& a, const StoredKey& b) const;
    bool operator()(const Hashed& a, const StoredKey& b) const;
    bool operator()(const StoredKey& a, const Hashed& b) const { return (*this)(b, a); }
  };
  struct Slot {
    Value plan;
    std::uint64_t last_use = 0;
  };

  const std::size_t capacity_;
  mutable ForkSafeMutex mutex_;
  std::uint64_t clock_ = 0;
  std::unordered_map<StoredKey, Slot, Hash, Equal> slots_;
};

}  // namespace heed::dispatch
