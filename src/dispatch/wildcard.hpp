#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>

/// Sets and ranges for tables of kernels, with `any` as the wildcard:
///
///   .types = {f16, bf16}, .d = up_to(256), .d_v = exactly(128), .masks = any
namespace heed::dispatch {

struct Any {};
inline constexpr Any any{};

/// How an enumerator is printed. Specialised for the enums of the public headers that have no name() beside them.
template <class E>
std::string_view enum_text(E member) {
  return name(member);
}

/// Enumerators of E, at most 64 of them.
template <class E>
class Set {
 public:
  constexpr Set() = default;
  constexpr Set(Any) : bits_(~std::uint64_t{0}) {}  // NOLINT(google-explicit-constructor)
  constexpr Set(std::initializer_list<E> members) {
    for (E member : members) bits_ |= bit(member);
  }

  constexpr bool has(E member) const { return (bits_ & bit(member)) != 0; }
  constexpr bool is_any() const { return bits_ == ~std::uint64_t{0}; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr void add(E member) { bits_ |= bit(member); }
  constexpr Set without(const Set& other) const {
    Set result;
    result.bits_ = bits_ & ~other.bits_;
    return result;
  }

  template <class F>
  void for_each(F&& f) const {
    for (unsigned i = 0; i < 64; ++i)
      if ((bits_ >> i & 1) != 0) f(static_cast<E>(i));
  }

  /// "f16,bf16", "any", "none".
  std::string to_string() const {
    if (is_any()) return "any";
    if (empty()) return "none";
    std::string text;
    for_each([&](E member) { text += (text.empty() ? "" : ",") + std::string(enum_text(member)); });
    return text;
  }

  friend constexpr bool operator==(const Set&, const Set&) = default;

 private:
  static constexpr std::uint64_t bit(E member) { return std::uint64_t{1} << static_cast<unsigned>(member); }

  std::uint64_t bits_ = 0;
};

/// A range of sizes, both ends inclusive.
struct Sizes {
  static constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

  std::int64_t min = 0, max = kNoLimit, multiple_of = 1;

  constexpr Sizes() = default;
  constexpr Sizes(Any) {}  // NOLINT(google-explicit-constructor)
  constexpr Sizes(std::int64_t least, std::int64_t most, std::int64_t step)
      : min(least), max(most), multiple_of(step) {}

  constexpr bool has(std::int64_t n) const { return min <= n && n <= max && n % multiple_of == 0; }
  constexpr bool is_any() const { return min == 0 && max == kNoLimit && multiple_of == 1; }

  /// "128", "1..512", "8..256 by 8", "any".
  std::string to_string() const {
    if (is_any()) return "any";
    if (min == max) return std::to_string(min);
    std::string text = fmt::format("{}..{}", min, max == kNoLimit ? "" : std::to_string(max));
    if (multiple_of != 1) text += fmt::format(" by {}", multiple_of);
    return text;
  }

  friend constexpr bool operator==(const Sizes&, const Sizes&) = default;
};

constexpr Sizes exactly(std::int64_t n) { return {n, n, 1}; }
constexpr Sizes up_to(std::int64_t n) { return {1, n, 1}; }
constexpr Sizes multiples(std::int64_t of, std::int64_t most) { return {of, most, of}; }

}  // namespace heed::dispatch
