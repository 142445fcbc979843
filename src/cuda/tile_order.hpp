#pragma once

#include <heed/problem.hpp>

namespace heed::cuda {

/// In which order the row tiles of a right mask are computed: measured, see docs/kernels/log.md, "causal order".
struct TileOrder {
  int section;  ///< heads whose K and V share the second-level cache
  int light;    ///< row tiles with the fewest keys, kept for the end
};

TileOrder tile_order(const Problem& problem, int row_tiles);

}  // namespace heed::cuda
