#include "verify/rows.hpp"

#include "verify/random.hpp"

#include <algorithm>

namespace heed::verify {

RowChoice::RowChoice(const Case& c, double budget, Side side) : case_(c), side_(side) {
  const std::int64_t heads = side == Side::queries ? c.h : c.h_k;
  double pairs = 0;
  std::int64_t longest = 0;
  for (std::int64_t b = 0; b < c.b; ++b) {
    const std::int64_t s_q = c.logical_q(b), s_k = c.logical_k(b);
    longest = std::max(longest, length(b));
    total_ += length(b) * heads;
    const MaskBounds bounds = c.mask.bounds(s_q, s_k);
    // A few thousand rows tell the average well enough.
    const std::int64_t step = std::max<std::int64_t>(1, s_q / 4096);
    double sum = 0;
    for (std::int64_t i = 0; i < s_q; i += step) sum += static_cast<double>(bounds.count(i));
    pairs += sum * static_cast<double>(step * c.h);
  }
  const double cost = pairs * static_cast<double>(c.d + c.d_v);
  all_ = cost <= budget;
  if (all_) return;

  // Half of the budget for the edges, half for the sample.
  const double rows = static_cast<double>(total_), affordable = rows * budget / cost / 2;
  const double sequences = static_cast<double>(c.b * heads);
  const auto edge_rows = [&] { return 2 * (rows / static_cast<double>(edge_) + sequences); };
  while (edge_ < longest && edge_rows() > affordable) edge_ *= 2;
  edge_probability_ = std::min(1.0, affordable / edge_rows());
  sample_probability_ = affordable / rows;
}

bool RowChoice::chosen(std::int64_t b, std::int64_t h, std::int64_t i) const {
  if (all_) return true;
  std::uint64_t key = case_.seed;
  for (const std::int64_t index : {b, h, i}) key = mix(key ^ static_cast<std::uint64_t>(index));
  const double draw = static_cast<double>(key >> 11) * 0x1p-53;
  const bool at_edge = i % edge_ == 0 || i % edge_ == edge_ - 1 || i == length(b) - 1;
  return draw < (at_edge ? edge_probability_ : sample_probability_);
}

}  // namespace heed::verify
