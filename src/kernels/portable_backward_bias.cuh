// The gradient of the bias: dS before the soft cap and the scale, summed over everything the bias was broadcast over.
//
// One CTA owns C.tile() x C.block entries of dBias (one row of C.block where the bias has one row for all queries, one
// column likewise) and goes over the batch entries, heads, keys and rows that share them, in order. Entries that nobody
// sees are 0; those that no sequence is long enough for all CTAs clear together. Where tiles are fewer than a GPU has
// multiprocessors, what a tile sums is divided into parts, each with a CTA of its own, and a second kernel adds them up
// in their order.
//
// The operands come in pieces of their columns, through a ring, which goes on from one tile to the next:
//   Q and K, columns 0 .., piece .., ...; then dO and V likewise; then the next head's Q and K
// The bias itself is the same for all that its gradient sums over: it is read once, and kept in shared memory.
#pragma once

#include "backward_bias.cuh"
#include "portable_backward_tiles.cuh"

namespace heed::kernels {

/// The copies of operands, piece by piece, in the order of the products: of all the tiles of this CTA. Between two copies
/// each warp has them in shared memory, since products and sums have the registers.
template <PortableBackwardConfig C>
struct alignas(16) DBiasCopies {
  using T = typename TagOf<C.type>::Type;
  using Input = typename TagOf<C.input>::Type;
  using Output = typename TagOf<C.output>::Type;

  i64 index;  ///< of the tile
  DBiasSteps<C> step;
  int column;   ///< the first one of the piece
  bool of_d_p;  ///< dO and V; else Q and K

  __device__ __forceinline__ void begin(const BackwardParams& bp, const DBiasTiles<C>& tiles) {
    index = blockIdx.x;
    column = 0;
    of_d_p = false;
    if (index >= tiles.count * bp.d_bias_parts) return;  // here for the zeros alone, which are nobody's
    step.begin(bp, tiles, tiles.at(bp, index));
    find_tile(bp, tiles);
  }
  /// The next piece, where there is one: [tile, piece] of rows, [block, piece] of keys; with dO and V, LSE and D of the
  /// rows behind them.
  __device__ __forceinline__ void start(const BackwardParams& bp, const DBiasTiles<C>& tiles, u32 to, u32 thread) {
    if (step.done()) return;
    const ForwardParams& p = bp.forward;
    const Sequence& q = step.q;
    const int kv_head = step.head / p.group;
    if (of_d_p) {
      copy(to, matrix_of<Output>(bp.d_o, bp.d_o_steps, step.batch, step.head, q.q_row, q.s_q, p.d_v),
           matrix_of<Input>(p.v, p.v_steps, step.batch, kv_head, q.k_row, q.s_k, p.d_v), thread);
      copy_states(bp, to + C.owned_bytes() + C.block_bytes(), thread);
    } else {
      copy(to, matrix_of<Input>(p.q, p.q_steps, step.batch, step.head, q.q_row, q.s_q, p.d),
           matrix_of<Input>(p.k, p.k_steps, step.batch, kv_head, q.k_row, q.s_k, p.d), thread);
    }
    column += C.piece;
    if (column < (of_d_p ? p.d_v : p.d)) return;
    column = 0;
    of_d_p = !of_d_p;
    if (of_d_p) return;
    step.next(bp, tiles);
    find_tile(bp, tiles);
  }

  __device__ __forceinline__ static DBiasCopies load(u32 from) {
    DBiasCopies copies;
    u32* const words = reinterpret_cast<u32*>(&copies);
#pragma unroll
    for (int i = 0; i < int(sizeof(DBiasCopies) / 16); ++i)
      load_anew(*reinterpret_cast<u32(*)[4]>(words + 4 * i), from + 16 * i);
    return copies;
  }
  __device__ __forceinline__ void store(u32 to, int lane) const {
    const u32* const words = reinterpret_cast<const u32*>(this);
    __syncwarp();  // all lanes have read it
#pragma unroll
    for (int i = 0; i < int(sizeof(DBiasCopies) / 16); ++i)
      if (lane == 0) store_shared(to + 16 * i, *reinterpret_cast<const u32(*)[4]>(words + 4 * i));
    __syncwarp();
  }

 private:
  template <class Rows>
  __device__ __forceinline__ void copy(u32 to, const Matrix<Rows>& rows, const Matrix<Input>& keys, u32 thread) {
    load_tile<T, Rows, C.tile(), C.piece, C.threads(), C.row_bytes>(to, from_column(rows, column), step.row, thread);
    load_tile<T, Input, C.block, C.piece, C.threads(), C.row_bytes>(to + C.owned_bytes(), from_column(keys, column),
                                                                    step.first_key, thread);
  }
  __device__ __forceinline__ void copy_states(const BackwardParams& bp, u32 to, u32 thread) {
    const i64 first = step.head * bp.row_space + row_start(bp.forward, step.q, step.batch);
#pragma unroll
    for (int i = 0; i < C.tile(); i += C.threads()) {
      const int at = i + int(thread), row = step.row + at;
      if (at >= C.tile() || row >= step.q.s_q) break;
      copy_4(to + at * 4, bp.row_lse + first + row, 4);
      copy_4(to + (C.tile() + at) * 4, bp.row_dot + first + row, 4);
    }
  }
  /// Past tiles with nothing to sum.
  __device__ __forceinline__ void find_tile(const BackwardParams& bp, const DBiasTiles<C>& tiles) {
#pragma unroll 1
    while (step.done() && index + gridDim.x < tiles.count * bp.d_bias_parts) {
      index += gridDim.x;
      step.begin(bp, tiles, tiles.at(bp, index));
    }
  }
};

template <PortableBackwardConfig C>
__device__ __forceinline__ void portable_backward_bias(const BackwardParams& bp) {
  static_assert(C.impossible() == nullptr && C.part == BackwardPart::bias);
  using T = typename TagOf<C.type>::Type;
  using Input = typename TagOf<C.input>::Type;
  constexpr ForwardFeatures F = C.features;
  constexpr int kPiece = C.piece, kN = C.warp_keys(), kStep = C.step, kM = C.warp_rows / 16, kStages = C.stages;
  constexpr u32 kStageBytes = C.owned_bytes() + C.block_bytes() + C.stats_bytes();

  const ForwardParams& p = bp.forward;
  extern __shared__ __align__(128) u8 heed_shared[];
  const u32 ring_at = shared_address(heed_shared);     // [stages] of [tile, piece], [block, piece], [2, tile]
  const u32 bias_at = ring_at + kStages * kStageBytes;  // [tile, block] of the bias, in the threads' order
  float* const over_rows = reinterpret_cast<float*>(heed_shared + kStages * kStageBytes);  // in the bias' place
  const u32 thread = threadIdx.x;
  const int lane = thread % 32, warp = __shfl_sync(0xffffffffu, thread / 32, 0);
  const u32 my_rows = warp / C.across * C.warp_rows * kPiece * C.element_bytes();
  const u32 my_keys = C.owned_bytes() + warp % C.across * kN * kPiece * C.element_bytes();
  static_assert(sizeof(DBiasCopies<C>) == kDBiasCopiesBytes);
  const u32 copies_at = bias_at + C.kept_bytes() + warp * kDBiasCopiesBytes;
  KeptBias<C> bias{bias_at + thread * KeptBias<C>::kChunkBytes, 0};

  const DBiasTiles<C> tiles(bp);
  const DropKey drop_words = F.dropout ? drop_key(p) : DropKey{};
  const auto start_copies = [&](int stage) {
    DBiasCopies<C> copies = DBiasCopies<C>::load(copies_at);
    copies.start(bp, tiles, ring_at + stage * kStageBytes, thread);
    close_copies();
    copies.store(copies_at, lane);
  };
  DBiasCopies<C> first;
  first.begin(bp, tiles);
  first.store(copies_at, lane);
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) start_copies(i);
  int slot = 0;
  // The place of the next piece, which is here for all then; and all are done with the one before.
  const auto next_piece = [&] {
    wait_copies<kStages - 2>();
    __syncthreads();
    start_copies(slot == 0 ? kStages - 1 : slot - 1);
    const u32 at = ring_at + slot * kStageBytes;
    slot = slot == kStages - 1 ? 0 : slot + 1;
    return at;
  };

#pragma unroll 1
  for (i64 index = blockIdx.x; index < tiles.count * bp.d_bias_parts; index += gridDim.x) {
    const DBiasTile tile = tiles.at(bp, index);
    bias.fill(bp, tile.batch, tile.head, tile.first_row + warp / C.across * C.warp_rows,
              tile.first_key + warp % C.across * kN, lane);
    float sum[kM][kN / 2];  // [warp_rows, warp_keys]
    clear(sum);
    DBiasSteps<C> step;
#pragma unroll 1
    for (step.begin(bp, tiles, tile); !step.done(); step.next(bp, tiles)) {
      const Sequence& q = step.q;
      const int warp_row = step.row + warp / C.across * C.warp_rows, first_key = step.first_key + warp % C.across * kN;
      const bool mine = some_visible<F, kN>(q, warp_row, C.warp_rows, first_key);
      float s[kM][kN / 2];
      clear(s);
#pragma unroll 1
      for (int column = 0; column < p.d; column += kPiece) {
        const u32 at = next_piece();
        if (mine) multiply_rows<T, kPiece, kN, kM, 2>(s, at + my_rows, at + my_keys, p.d - column, lane);
      }
      // dP and dS of kStep keys at a time: of all, where dO and V come in several pieces.
      u32 values_at = 0;
      float dp[kM][kStep / 2];
      clear(dp);
#pragma unroll 1
      for (int column = 0; column < p.d_v; column += kPiece) {
        values_at = next_piece();
        if (mine && kStep == kN)
          multiply_rows<T, kPiece, kStep, kM, 2>(dp, values_at + my_rows, values_at + my_keys, p.d_v - column, lane);
      }
      if (!mine) continue;
      const u32 states_at = values_at + C.owned_bytes() + C.block_bytes();
      // Rows behind the sequence's end are hidden, too: what the bias has there is nobody's.
      const bool edge = warp_row + C.warp_rows > q.s_q ||
                        first_key + kN > (F.mask == MaskShape::none ? q.s_k : q.end(warp_row)) ||
                        (F.mask == MaskShape::window && first_key < q.begin(warp_row + C.warp_rows - 1));
#pragma unroll
      for (int key = 0; key < kN; key += kStep) {
        if constexpr (kStep < kN) {
          clear(dp);
          multiply_rows<T, kPiece, kStep, kM, 2>(dp, values_at + my_rows,
                                                 values_at + my_keys + key * kPiece * C.element_bytes(), p.d_v, lane);
        }
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          RowFeatures<F, Input> rows[2];
          RowStates states;
          const int my_row = int(fresh(warp_row + 16 * m + lane / 4));
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int row = my_row + 8 * half, at = row - step.row;
            rows[half].set(p, q, step.batch, step.head, row);
            if (row >= q.s_q) rows[half].end = 0;
            float lse[1], dot[1];
            load_shared(lse, states_at + at * 4);
            load_shared(dot, states_at + (C.tile() + at) * 4);
            states.lse[half] = row < q.s_q ? lse[0] : HEED_INFINITY;
            states.dot[half] = row < q.s_q ? dot[0] : 0.0f;
          }
          float no_sums[2];
#pragma unroll
          for (int n = 0; n < kStep / 16; ++n) {
            const int of_keys = key / 16 + n;  // the tile of 16 x 16 among all of the warp's keys
            const ScoreTile place{warp_row + 16 * m,
                                  int(fresh(first_key)) + 16 * of_keys,
                                  q.s_k,
                                  edge,
                                  u32(step.batch) * p.heads + step.head,
                                  {fresh(drop_words.k0), fresh(drop_words.k1), drop_words.offset}};
            bias.tile = m * (kN / 16) + of_keys;
            differentiate<C.part, F, Input>(p, rows, states, place, eighth(s[m], of_keys), eighth(dp[m], n), no_sums,
                                            lane, bias);
#pragma unroll
            for (int i = 0; i < 8; ++i) sum[m][8 * of_keys + i] += dp[m][8 * n + i];
          }
        }
      }
    }

    // Found anew: the loop above has no registers for it.
    store_sums<C>(bp, index, tiles.at(bp, fresh_wide(index)), sum, over_rows, warp, thread, [] { __syncthreads(); });
  }
  zero_unreached_dbias<C, C.threads()>(bp);  // behind the loop: before it, it takes registers from it
}

/// dBias from the parts of its tiles: a CTA for each tile, whose threads have the sums that they had there.
template <PortableBackwardConfig C>
__device__ __forceinline__ void portable_backward_bias_sum(const BackwardParams& bp) {
  static_assert(C.impossible() == nullptr && C.part == BackwardPart::bias_sum);
  constexpr int kN = C.warp_keys(), kM = C.warp_rows / 16;
  extern __shared__ __align__(128) u8 heed_shared[];
  const DBiasTiles<C> tiles(bp);
  const u32 thread = threadIdx.x;
  const int warp = __shfl_sync(0xffffffffu, thread / 32, 0);
#pragma unroll 1
  for (i64 index = blockIdx.x; index < tiles.count; index += gridDim.x) {
    float sum[kM][kN / 2];
    clear(sum);
#pragma unroll 1
    for (int part = 0; part < bp.d_bias_parts; ++part)
#pragma unroll
      for (int i = 0; i < kM * kN / 8; ++i) {
        const float4 four = *sums_of_part<C>(bp, part * tiles.count + index, thread, i);
        float* x = sum[i / (kN / 8)] + i % (kN / 8) * 4;
        x[0] += four.x;
        x[1] += four.y;
        x[2] += four.z;
        x[3] += four.w;
      }
    store_dbias<C>(bp, tiles.at(bp, index), sum, reinterpret_cast<float*>(heed_shared), warp, thread,
                  [] { __syncthreads(); });
  }
}

}  // namespace heed::kernels
