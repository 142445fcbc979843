#pragma once

#include "verify/buffers.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace heed::verify {

/// What a reference follows from, all of it: two keys that are equal have the same one.
struct ReferenceKey {
  Case c;
  double budget = 0;              ///< decides which rows the reference has
  std::vector<std::byte> inputs;  ///< what the oracle reads, as it is when it is read

  friend bool operator==(const ReferenceKey&, const ReferenceKey&) = default;
};

/// References that were computed once, for cases that are judged several times: the oracle says the same of a case on
/// every engine, and takes longer than all of them. Threads may share one.
class ReferenceCache {
 public:
  /// What does not fit any more is not kept. (Nothing has to go for it: engines get the same cases in the same order,
  /// and whoever drops the oldest has dropped each of them when its turn comes again.)
  explicit ReferenceCache(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  /// The reference for `buffers`, from `make` unless it is here. For one operation T is always the same; T::bytes()
  /// says how large it is. Made anew each time where the arguments may be others than the case says.
  template <class T>
  std::shared_ptr<const T> get(const Buffers& buffers, double budget,
                               const std::function<std::shared_ptr<const T>()>& make) {
    if (!buffers.arguments_are_the_cases()) return make();
    ReferenceKey key{buffers.get_case(), budget, buffers.input_bytes()};
    if (auto found = find(key)) return std::static_pointer_cast<const T>(found);
    const std::shared_ptr<const T> made = make();
    keep(std::move(key), made, made->bytes());
    return made;
  }

  void clear();
  std::size_t bytes() const;

 private:
  struct Hash {
    std::size_t operator()(const ReferenceKey& key) const;
  };

  std::shared_ptr<const void> find(const ReferenceKey& key) const;
  void keep(ReferenceKey key, std::shared_ptr<const void> reference, std::size_t bytes);

  const std::size_t most_bytes_;
  mutable std::mutex mutex_;  // of what follows
  std::unordered_map<ReferenceKey, std::shared_ptr<const void>, Hash> kept_;
  std::size_t bytes_ = 0;  ///< of keys and references
};

}  // namespace heed::verify
