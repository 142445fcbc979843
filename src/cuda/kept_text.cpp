#include "cuda/kept_text.hpp"

#include <deque>
#include <mutex>
#include <utility>

namespace heed::cuda {

std::string_view kept(std::string text) {
  static std::mutex mutex;
  static auto* const texts = new std::deque<std::string>;
  const std::lock_guard lock(mutex);
  return texts->emplace_back(std::move(text));
}

}  // namespace heed::cuda
