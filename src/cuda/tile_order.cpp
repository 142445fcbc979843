#include "cuda/tile_order.hpp"

#include <algorithm>
#include <cmath>

namespace heed::cuda {

TileOrder tile_order(const Problem& problem, int row_tiles) {
  // Sections are smaller for short sequences, which are read from memory more often per product, and about equal in
  // size. The light rows of all heads come last and even out the finish.
  constexpr double kMost = 64 << 20, kLeast = 8 << 20;
  const double s_k = static_cast<double>(problem.s_k());
  const double heads = static_cast<double>(problem.batch() * problem.heads_k());
  const double bytes = heads * s_k * static_cast<double>(problem.d() + problem.d_v()) * 2;
  const double limit = std::min(kMost, std::max(kLeast, s_k * 16384));
  const double sections = std::max(1.0, std::round(bytes / limit));
  const double group =
      problem.heads_k() == 0 ? 1 : static_cast<double>(problem.heads_q()) / static_cast<double>(problem.heads_k());
  return {std::max(1, static_cast<int>(std::ceil(heads / sections) * group)),
          static_cast<int>(row_tiles * (problem.s_k() < 2048 ? 0.25 : 0.375))};
}

}  // namespace heed::cuda
