// How forward attention is cut into pieces. Everything that shows in the bits of a result depends on one sequence's own
// shape only, never on the number of threads or on its neighbours in the batch.
#pragma once

#include "core/sequences.hpp"
#include "cpu/forward_job.hpp"

#include <cstdint>
#include <span>

namespace heed::cpu {

/// What a kernel brings to the schedule.
struct ScheduleTraits {
  std::int32_t strip = 0;        ///< rows computed side by side by the tile kernel
  std::int32_t max_rows = 0;     ///< rows per key/value head up to which the rows kernel is used; 0: never
  std::int32_t most_strips = 4;  ///< strips of one tile, at most
  double packing = 0;            ///< cost of packing a block of K and V, in strips computed from it
};

/// How the rows of one sequence are computed.
struct SequencePlan {
  bool use_rows_kernel = false;
  bool heads_together = false;  ///< a piece has all query heads of a key/value head; otherwise one query head
  std::int64_t rows = 0;        ///< of one unit: s_q, or s_q * group when heads are together
  std::int64_t tiles = 0;       ///< pieces of rows per unit
  std::int64_t rows_per_tile = 0;
  std::int64_t splits = 1;  ///< pieces of keys
  std::int64_t keys_per_split = 0;
  std::int64_t units = 0;  ///< key/value heads, or query heads

  std::int64_t pieces() const { return units * tiles * splits; }
  std::int64_t partial_rows() const { return splits > 1 ? units * splits * rows : 0; }
};

SequencePlan plan_sequence(const ScheduleTraits& traits, std::int64_t heads_q, std::int64_t heads_k, std::int64_t s_q,
                           std::int64_t s_k, std::int64_t strips_per_tile);

/// Strips of one tile: more of them share the packing of K and V, fewer balance better. Shows in no bit of the result.
std::int64_t strips_per_tile(const Problem& problem, const ScheduleTraits& traits, int threads);

/// An upper bound of the rows of partial results, summed over the batch.
std::int64_t most_partial_rows(const Problem& problem, const ScheduleTraits& traits);

inline constexpr std::int64_t kMaxSplits = 16;

}  // namespace heed::cpu
