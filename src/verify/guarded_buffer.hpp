#pragma once

#include <heed/types.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace heed::verify {

/// Memory for `elements` elements between two guard bands. All of it, bands included, begins as 0xFF bytes: NaN in
/// every floating type, -1 in the integers. What is never written stays so, and what should not have been written
/// shows.
class GuardedBuffer {
 public:
  static constexpr std::int64_t kGuardElements = 512;

  GuardedBuffer() = default;
  /// The first element is `align` elements past a 64-byte boundary.
  GuardedBuffer(DataType type, std::int64_t elements, std::int64_t align);

  void* data() { return raw_.get() + guard_bytes_; }
  const void* data() const { return raw_.get() + guard_bytes_; }
  DataType type() const { return type_; }
  /// Guard bands included.
  std::span<std::byte> raw() const { return {raw_.get(), bytes_}; }
  std::int64_t elements() const { return elements_; }

  /// Everything back to 0xFF.
  void clear();
  /// Remembers the contents, for find_change().
  void take_snapshot();
  /// Allows element `index` to change.
  void allow(std::int64_t index) { allowed_[static_cast<std::size_t>(index)] = true; }

  /// The first change since the snapshot (since clear(), without one) outside the allowed elements, as a sentence
  /// without a subject: "was overrun: 3 elements behind its end hold ..."; empty when there is none.
  std::string find_change() const;

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  using Bytes = std::unique_ptr<std::byte[], Free>;
  static Bytes allocate(std::size_t bytes);
  std::string describe(std::size_t byte) const;

  DataType type_ = DataType::f32;
  std::int64_t elements_ = 0, element_bytes_ = 0;
  std::size_t bytes_ = 0, guard_bytes_ = 0;
  Bytes raw_, snapshot_;
  std::vector<bool> allowed_;
};

}  // namespace heed::verify
