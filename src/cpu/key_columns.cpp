#include "cpu/key_columns.hpp"

#include "core/ceil_div.hpp"
#include "core/visible_pairs.hpp"

#include <algorithm>

namespace heed::cpu {

using core::ceil_div;

std::int64_t most_key_columns(const Problem& problem) {
  const std::int64_t heads = std::max<std::int64_t>(1, problem.batch() * problem.heads_k());
  const std::int64_t chunks = std::max<std::int64_t>(1, ceil_div(problem.s_k(), kBackwardChunk));
  return std::clamp<std::int64_t>(ceil_div(kMostKeyColumns, heads), 1, chunks);
}

KeyColumns::KeyColumns(std::int64_t most, const MaskBounds& bounds, std::int64_t s_q) {
  const std::int64_t chunks = ceil_div(bounds.s_k, kBackwardChunk);
  const std::int64_t count = std::min(most, chunks);
  count_ = static_cast<std::int32_t>(count);
  const auto pairs_before = [&](std::int64_t chunk) {
    MaskBounds before = bounds;
    before.s_k = std::min(chunk * kBackwardChunk, bounds.s_k);
    return core::visible_pairs(before, s_q);
  };
  const double pairs = count > 1 ? pairs_before(chunks) : 0;
  std::int64_t chunk = 0;
  for (std::int64_t c = 1; c < count; ++c) {
    // At least a chunk for this column and for each that is still to come; of those, up to where the pairs come closest
    // to this column's end.
    const std::int64_t last = chunks - (count - c);
    const double end = pairs * static_cast<double>(c) / static_cast<double>(count);
    ++chunk;
    while (chunk < last && pairs_before(chunk) + pairs_before(chunk + 1) <= 2 * end) ++chunk;
    first_keys_[static_cast<std::size_t>(c)] = static_cast<std::int32_t>(chunk * kBackwardChunk);
  }
  first_keys_[static_cast<std::size_t>(count)] = static_cast<std::int32_t>(bounds.s_k);
}

}  // namespace heed::cpu
