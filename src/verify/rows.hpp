#pragma once

#include "verify/case.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace heed::verify {

/// Which rows of a Case are compared with the oracle: all of them if that costs no more than `budget` multiplications,
/// otherwise the first and last rows of every sequence, those at multiples of the tile sizes, and a seeded sample.
class RowChoice {
 public:
  enum class Side : std::uint8_t { queries, keys };  ///< keys: rows of dk and dv, (batch entry, key/value head, key)

  RowChoice(const Case& c, double budget, Side side = Side::queries);

  bool chosen(std::int64_t b, std::int64_t h, std::int64_t i) const;
  bool all() const { return all_; }
  std::int64_t total() const { return total_; }

 private:
  std::int64_t length(std::int64_t b) const { return side_ == Side::queries ? case_.logical_q(b) : case_.logical_k(b); }

  const Case& case_;
  Side side_;
  bool all_ = true;
  std::int64_t total_ = 0;
  std::int64_t edge_ = 64;       ///< rows 0 and edge - 1 of each so many are chosen
  double edge_probability_ = 1;  ///< of those; below 1 when even the first and last rows are too many
  double sample_probability_ = 1;
};

}  // namespace heed::verify
