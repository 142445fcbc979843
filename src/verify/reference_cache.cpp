#include "verify/reference_cache.hpp"

#include <string_view>
#include <utility>

namespace heed::verify {

void ReferenceCache::clear() {
  const std::scoped_lock lock(mutex_);
  kept_.clear();
  bytes_ = 0;
}

std::size_t ReferenceCache::bytes() const {
  const std::scoped_lock lock(mutex_);
  return bytes_;
}

/// By the data and a few sizes, which tell most cases apart; equality looks at everything.
std::size_t ReferenceCache::Hash::operator()(const ReferenceKey& key) const {
  const std::string_view inputs(reinterpret_cast<const char*>(key.inputs.data()), key.inputs.size());
  const auto mask = std::hash<std::string>()(key.c.mask.to_string());
  return std::hash<std::string_view>()(inputs) ^ (mask << 1);
}

std::shared_ptr<const void> ReferenceCache::find(const ReferenceKey& key) const {
  const std::scoped_lock lock(mutex_);
  const auto found = kept_.find(key);
  return found == kept_.end() ? nullptr : found->second;
}

void ReferenceCache::keep(ReferenceKey key, std::shared_ptr<const void> reference, std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  bytes += key.inputs.size();
  if (bytes > most_bytes_ - bytes_) return;
  if (kept_.try_emplace(std::move(key), std::move(reference)).second) bytes_ += bytes;
}

}  // namespace heed::verify
