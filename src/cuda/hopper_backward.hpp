#pragma once

#include "cuda/backward_kernel.hpp"
#include "cuda/backward_params.hpp"
#include "cuda/hopper_backward_lines.hpp"

namespace heed::cuda {

/// What the division of a pass follows from: `tile_q` rows of a block, `tile_k` keys of a tile, `d` columns of both,
/// the parts of a group of heads, and what dQ is summed in.
struct HopperBackwardTiles {
  int tile_q, tile_k, d, parts;
  int sum_bytes = 4;  ///< of an element of dQ's sum; 0: its rows have owners
  int zeroing = 0;    ///< thread blocks of the main kernel where they zero dQ's sum ahead, else 0

  /// Blocks of rows in the workspace: those of all batch entries, or, in group mode, one more than fill each sequence.
  std::int64_t row_blocks(const Problem& problem) const;
  /// Tiles of keys, of one head, and of all batch entries. Sequences of their own lengths: what is left over at each
  /// one's end makes one tile more.
  std::int64_t key_tiles(const Problem& problem) const;
  BackwardWorkspace workspace(const Problem& problem) const;
  /// All of p's schedule but for its maps, for a workspace as above. `section`: how many tiles one has, if not 0.
  void schedule(const Problem& problem, kernels::BackwardParams& p, int section = 0) const;
};

/// Of `all` heads, those whose rows of dQ are at work together under a right mask, where rows have owners: some 400
/// tiles.
std::int64_t heads_of_queries(std::int64_t all, std::int64_t row_tiles);

std::shared_ptr<const CudaBackwardKernel> make_hopper_backward(const HopperBackwardLine& line,
                                                               std::shared_ptr<EngineState> state);

}  // namespace heed::cuda
