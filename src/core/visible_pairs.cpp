#include "core/visible_pairs.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace heed::core {

// The count of a row is linear in i between the rows where one of the bounds starts or stops to matter, so a few
// trapezia make the sum.
double visible_pairs(const MaskBounds& m, std::int64_t s_q) {
  std::array<std::int64_t, 8> knots{
      0, s_q - 1, -m.x, m.y - 1, m.s_k - m.x, m.sink - m.x, m.sink + m.y - 1, m.s_k + m.y - 1};
  for (std::int64_t& knot : knots) knot = std::clamp<std::int64_t>(knot, 0, std::max<std::int64_t>(s_q - 1, 0));
  std::sort(knots.begin(), knots.end());
  double pairs = s_q > 0 ? static_cast<double>(m.count(0)) : 0;
  for (std::size_t i = 1; i < knots.size(); ++i) {
    const std::int64_t from = knots[i - 1], to = knots[i];
    if (from == to) continue;
    // Rows (from, to]: the whole trapezium with both ends, less its first row.
    const std::int64_t first = m.count(from), last = m.count(to);
    pairs += static_cast<double>(to - from + 1) * static_cast<double>(first + last) / 2 - static_cast<double>(first);
  }
  return pairs;
}

}  // namespace heed::core
