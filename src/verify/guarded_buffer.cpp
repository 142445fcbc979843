#include "verify/guarded_buffer.hpp"

#include "core/float_bits.hpp"

#include <fmt/format.h>

#include <cstring>
#include <new>

namespace heed::verify {

GuardedBuffer::Bytes GuardedBuffer::allocate(std::size_t bytes) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  if (memory == nullptr) throw std::bad_alloc();
  return Bytes(memory);
}

GuardedBuffer::GuardedBuffer(DataType type, std::int64_t elements, std::int64_t align)
    : type_(type), elements_(elements), element_bytes_(bits(type) / 8), allowed_(static_cast<std::size_t>(elements)) {
  const auto guard = static_cast<std::size_t>((kGuardElements * element_bytes_ + 63) / 64 * 64);
  guard_bytes_ = guard + static_cast<std::size_t>(align * element_bytes_);
  bytes_ = guard_bytes_ + static_cast<std::size_t>(elements * element_bytes_) + guard;
  raw_ = allocate(bytes_);
  clear();
}

void GuardedBuffer::clear() { std::memset(raw_.get(), 0xFF, bytes_); }

void GuardedBuffer::take_snapshot() {
  if (snapshot_ == nullptr) snapshot_ = allocate(bytes_);
  std::memcpy(snapshot_.get(), raw_.get(), bytes_);
}

std::string GuardedBuffer::find_change() const {
  for (std::size_t byte = 0; byte < bytes_; ++byte) {
    const std::byte before = snapshot_ == nullptr ? std::byte{0xFF} : snapshot_[byte];
    if (raw_[byte] == before) continue;
    const std::int64_t offset = static_cast<std::int64_t>(byte) - static_cast<std::int64_t>(guard_bytes_);
    const bool inside = offset >= 0 && offset / element_bytes_ < elements_;
    if (!inside || !allowed_[static_cast<std::size_t>(offset / element_bytes_)]) return describe(byte);
  }
  return {};
}

std::string GuardedBuffer::describe(std::size_t byte) const {
  const std::int64_t offset = static_cast<std::int64_t>(byte) - static_cast<std::int64_t>(guard_bytes_);
  const std::int64_t end = elements_ * element_bytes_;
  if (offset < 0) return fmt::format("was underrun: a byte {} before its begin changed", -offset);
  if (offset >= end) return fmt::format("was overrun: a byte {} behind its end changed", offset - end);
  const std::int64_t index = offset / element_bytes_;
  if (bits(type_) < 16 || type_ == DataType::u16 || type_ == DataType::i32 || type_ == DataType::i64)
    return fmt::format("changed at element {}, which is not an output of the problem", index);
  return fmt::format("changed at element {}, which is not an output of the problem: it now holds {}", index,
                     core::load(data(), type_, index));
}

}  // namespace heed::verify
