// The bias of 16 bits by way of shared memory. Of the copying warpgroup three warps copy the 64 rows of each math
// warpgroup's next blocks of keys into a ring of its own, so that neither registers nor a wait are spent on them. The math
// warps read them by ldmatrix, in the layout of the scores.
#pragma once

#include "copied_bias.cuh"
#include "forward_scores.cuh"
#include "hopper_tiles.cuh"
#include "mma.cuh"
#include "ptx.cuh"
#include "ring.cuh"

namespace heed::kernels {

/// A block's bias of one warpgroup.
template <HopperConfig C>
using WarpgroupBias = CopiedBias<64, C.tile_k>;

/// The bias of a thread's two rows, of which `tile` holds those of the warpgroup.
template <HopperConfig C, ForwardFeatures F, class T, int R>
HEED_DEVICE void read_bias(BlockBias<F, T, R>& bias, u32 tile, u32 warp, u32 lane) {
  using Tile = WarpgroupBias<C>;
  const u32 row = warp * 16 + lane % 16, first = (lane / 16) ^ Tile::moved_by(row);
  const u32 at = tile + row * Tile::kChunks * 16;
#pragma unroll
  for (int i = 0; i < R / 8; ++i) {  // sixteen keys
    constexpr int kMoved = Tile::kMoved;
    u32 four[4];
    load_matrices(four, at + (first ^ (2 * i % kMoved)) * 16 + 2 * i / kMoved * kMoved * 16);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      bias.rows[half].raw[2 * i] = four[half];
      bias.rows[half].raw[2 * i + 1] = four[2 + half];
    }
  }
  bias.rows[0].by_fours = bias.rows[1].by_fours = false;
}

/// The blocks of a tile whose bias a math warpgroup needs: n, and so on down to `end`.
struct BiasBlocks {
  int n, end;

  __device__ __forceinline__ bool more() const { return n >= end; }
};
template <HopperConfig C>
HEED_DEVICE BiasBlocks bias_blocks(const ForwardParams& p, const TileWork& work, const Sequence& sequence,
                                   const KeyBlocks& blocks, int row) {
  int n = first_block<C>(p, blocks, work, sequence);
  const int first = first_block_of_rows<C>(sequence, blocks, row, n);
#pragma unroll 1
  while (n > first) n = blocks.next(n);
  return {n, hands_on<C>(blocks) ? min(blocks_of<C>(sequence, row, row + 64).low, n) : 0};
}

/// All biases of math warpgroup w, and of w + 3 if there is one, by one warp, tile for tile as the work comes with Q.
/// Those of the later keys go first, as they are computed: whoever waits for a bias waits for nobody that waits for him.
template <HopperConfig C>
HEED_DEVICE void copy_biases(const ForwardParams& p, u32 base, u32 w, u32 q_full, u32 bias_full, u32 bias_empty,
                             const volatile TileWork* works, u32 lane) {
  const bool two = w + 3 < C.warpgroups;
  Ring<C.q_buffers> q;
  Ring<C.bias_stages> ring, other_ring;
  while (true) {
    const u32 slot = q.stage * C.warpgroups + w;
    mbarrier_wait(q_full + 8 * slot, q.phase);
    q.next();
    // The slot cannot be anybody else's before the warpgroup has had all of this tile's biases.
    const TileWork work = work_at<C>(works[slot]);
    if (work.row_tile < 0) return;
    const Sequence sequence = sequence_of_tile<C>(p, work);
    const int tile_row = work.row_tile * C.tile_rows(), row0 = tile_row + int(w) * 64;
    const KeyBlocks blocks = blocks_of<C>(sequence, tile_row, tile_row + C.tile_rows());
    BiasBlocks mine = bias_blocks<C>(p, work, sequence, blocks, row0), other{-1, 0};
    if (two) other = bias_blocks<C>(p, work, sequence, blocks, row0 + 3 * 64);
#pragma unroll 1
    while (mine.more() || (two && other.more())) {
      const bool first = !two || !other.more() || (mine.more() && mine.n >= other.n);
      const int n = first ? mine.n : other.n, row = first ? row0 : row0 + 3 * 64, first_key = n * C.tile_k;
      const u32 stage = first ? ring.stage : other_ring.stage, phase = first ? ring.phase : other_ring.phase;
      const u32 at = (first ? w : w + 3) * C.bias_stages + stage;
      mbarrier_wait(bias_empty + 8 * at, phase ^ 1);
      const char* from =
          static_cast<const char*>(p.bias) + 2 * (work.batch * p.bias_steps.batch + work.head * p.bias_steps.head +
                                                  row * p.bias_steps.row + first_key * p.bias_steps.column);
      copy_bias_block<WarpgroupBias<C>>(p.bias_steps, base + C.bias_at() + at * C.bias_bytes(), bias_full + 8 * at, from,
                         sequence.s_q - row, sequence.s_k - first_key, lane);
      const int behind = next_block<C>(p, blocks, work, sequence, n);
      if (first) {
        mine.n = behind;
        ring.next();
      } else {
        other.n = behind;
        other_ring.next();
      }
    }
  }
}

}  // namespace heed::kernels
