#pragma once

#include <heed/tensor.hpp>

#include <array>
#include <cstdint>

/// Whether strided views share memory. Interleaved views (o between q, k and v of one packed buffer) are told apart
/// from overlapping ones.
namespace heed::core {

/// The furthest a view may reach, in elements: its bytes, and sums of a few of them, then fit 64 bits.
inline constexpr std::int64_t kMaxSpan = std::int64_t{1} << 56;

/// Up to four (size, step) pairs over a base address.
struct Footprint {
  std::array<std::int64_t, 4> sizes{1, 1, 1, 1};
  std::array<std::int64_t, 4> steps{};  ///< in bytes, or in elements where only self_overlaps() is asked
  std::int64_t base = 0;
  std::int64_t element = 1;  ///< bytes of one element
  bool empty = false;        ///< no element at all

  /// Every address is in [low, high).
  std::int64_t low = 0, high = 0;
};

/// Needs a view of at most four dimensions whose sizes are >= 0 and whose span is at most kMaxSpan.
Footprint footprint(const TensorView& view);

/// The furthest reach of the steps, (size - 1) * |step| summed, in elements; kMaxSpan + 1 when it is more than
/// kMaxSpan.
std::int64_t span(const std::array<std::int64_t, 4>& sizes, const std::array<std::int64_t, 4>& steps);

/// True when two different indices of the view address the same element. Exact, except that layouts too intricate to be
/// decided in a few thousand steps (never the case where dimensions nest) count as overlapping.
bool self_overlaps(const std::array<std::int64_t, 4>& sizes, const std::array<std::int64_t, 4>& steps);

/// True when some byte belongs to both of two views whose ranges meet; exact with the same exception.
bool overlap_within_range(const Footprint& a, const Footprint& b);

/// True when some byte belongs to both.
inline bool overlap(const Footprint& a, const Footprint& b) {
  return !a.empty && !b.empty && a.low < b.high && b.low < a.high && overlap_within_range(a, b);
}

}  // namespace heed::core
