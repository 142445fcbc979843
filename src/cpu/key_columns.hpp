// How the keys of a head are dealt out to threads in the backward pass. It shows in the last bits of dQ, and so depends
// on the problem alone, never on the threads.
#pragma once

#include "cpu/backward_job.hpp"

#include <heed/problem.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace heed::cpu {

/// Into how many columns the keys of a head are cut at most: a few heads shall keep this many threads busy. Each column
/// sums up a dQ of its own, and the columns are added in their order, also where one thread goes over all of them.
inline constexpr std::int32_t kMostKeyColumns = 16;

/// The columns of the longest sequence.
std::int64_t most_key_columns(const Problem& problem);

/// The columns of one sequence: whole chunks, and about as many visible pairs in one as in the other. Under a causal
/// mask the first keys are seen by the most queries, and their columns are narrow.
class KeyColumns {
 public:
  KeyColumns() = default;
  KeyColumns(std::int64_t most, const MaskBounds& bounds, std::int64_t s_q);

  std::int32_t count() const { return count_; }
  KeyPiece all() const { return {first_keys_.data(), count_, /*whole_head=*/true}; }
  KeyPiece one(std::int64_t column) const { return {first_keys_.data() + column, 1, /*whole_head=*/count_ == 1}; }
  /// Of each column, and behind the last.
  const std::int32_t* first_keys() const { return first_keys_.data(); }

 private:
  std::int32_t count_ = 0;
  std::array<std::int32_t, kMostKeyColumns + 1> first_keys_ = {};
};

}  // namespace heed::cpu
