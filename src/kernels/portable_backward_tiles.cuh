// The products of the portable family's backward pass, for one warp, beside those of portable_tiles.cuh.
//
// Scores always have queries for rows, also where a warp owns keys: so that all features lie as in the forward pass.
// Then P and dS are transposed on their way to the product: 16-bit ones in registers, f32 ones through shared memory.
#pragma once

#include "portable_backward_config.h"
#include "portable_tiles.cuh"
#include "ptx.cuh"

namespace heed::kernels {

/// s [16 * kM, kN] += A [16 * kM, kColumns] B^T [kColumns, kN], both tiles in shared memory with rows of kColumns, of
/// which `columns` count.
template <class T, int kColumns, int kN, int kM, int kUnroll = kColumns / 16>
HEED_DEVICE void multiply_rows(float (&s)[kM][kN / 2], u32 a_at, u32 b_at, int columns, int lane) {
  if constexpr (sizeof(typename T::Raw) == 4) {
    multiply_keys_f32<kColumns, kColumns, kN, kM, (kM * kN > 512 ? 2 : 4)>(s, a_at, b_at, min(columns, kColumns), lane);
  } else {
    u32 none[kM][1][4];
    multiply_keys<T, kColumns, kColumns, kN, kM, 0, 1, kUnroll>(s, a_at, none, b_at, lane);
  }
}

/// sums [16 * kM, kColumns] += W [16 * kM, kN] X [kN, kColumns]; x_at: X in shared memory. weights_at: [16 * kM, kN] of
/// the warp's own, for f32.
template <class T, int kColumns, int kN, int kM>
HEED_DEVICE void add_product(float (&sums)[kM][kColumns / 2], const float (&weights)[kM][kN / 2], u32 weights_at,
                             u32 x_at, int lane) {
  if constexpr (sizeof(typename T::Raw) == 4) {
    multiply_values_f32<kColumns, kN, kM>(sums, weights, weights_at, x_at, lane);
  } else {
    multiply_values<T, kColumns, kN, kM>(sums, weights, x_at, lane);
  }
}

/// sums [16 * kK, kColumns] += W^T [16 * kK, 16 * kM] X [16 * kM, kColumns], for weights whose rows are those of X.
template <class T, int kColumns, int kM, int kK>
HEED_DEVICE void add_transposed_product(float (&sums)[kK][kColumns / 2], const float (&weights)[kM][8 * kK],
                                        u32 weights_at, u32 x_at, int lane_index) {
  const u32 lane = fresh(lane_index) % 32;
  if constexpr (sizeof(typename T::Raw) == 4) {
    __syncwarp();  // all lanes are done with the weights before
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int i = 0; i < 8 * kK; ++i) {
        const u32 row = 16 * m + i / 2 % 2 * 8 + lane / 4, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        store_shared(weights_at + chunk_offset<4 * kM>(column, row / 4) + row % 4 * 4, weights[m][i]);
      }
    __syncwarp();
    multiply_stored_f32<kColumns, 16 * kM, kK>(sums, weights_at, x_at, lane);
  } else {
    const u32 x_first = matrices_down<kColumns / 8>(x_at, lane);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      u32 a[kK][4];
#pragma unroll
      for (int k = 0; k < kK; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // columns 8 * (i % 2) of rows 8 * (i / 2)
          const float* two = weights[m] + 8 * k + i % 2 * 4 + i / 2 * 2;
          a[k][i] = transpose_8x8(pack<T>(two[0], two[1]));
        }
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        u32 b[4];
        load_transposed(b, moved<kColumns / 8>(x_first, 16 * m, 2 * n));
#pragma unroll
        for (int k = 0; k < kK; ++k) {
          multiply_add<T>(sums[k] + 8 * n, a[k], b[0], b[1]);
          multiply_add<T>(sums[k] + 8 * n + 4, a[k], b[2], b[3]);
        }
      }
    }
  }
}

/// Where a lane points to store 16 x 16 weights at the beginning of `to`, in a tile with rows of kTile.
template <int kTile>
HEED_DEVICE u32 weights_place(u32 to, u32 lane) {
#if __CUDA_ARCH__ >= 900
  return matrices_down<kTile / 8>(to, lane);
#else
  return to + chunk_offset<kTile / 8>(lane / 4, 0) + lane % 4 * 4;
#endif
}
/// The weights of the rows from 16 * m on; x: rows 0..7: columns 0..7; rows 8..15: the same; then columns 8..15.
template <int kTile>
HEED_DEVICE void store_fragment(u32 first, int m, const u32 (&x)[4]) {
#if __CUDA_ARCH__ >= 900
  store_matrix_x4(moved<kTile / 8>(first, 16 * m, 0), x[0], x[1], x[2], x[3]);
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) store_shared(moved<kTile / 8>(first, 16 * m + i % 2 * 8, i / 2), x[i]);
#endif
}

/// P or dS of a warp, rows and columns from `row` and `column` on of a tile [.., kTile] in shared memory. Rows are
/// multiples of 16, columns of the warp's own.
template <class T, int kTile, int kM, int kR>
HEED_DEVICE void store_weights(u32 to, const float (&weights)[kM][kR], int row, int column, u32 lane_index) {
  const u32 lane = fresh(lane_index) % 32;
  const u32 first = moved<kTile / 8>(weights_place<kTile>(to + row * kTile * 2, lane), 0, column / 8);
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kR / 8; ++n) {
      u32 x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = pack<T>(weights[m][8 * n + 2 * i], weights[m][8 * n + 2 * i + 1]);
      store_fragment<kTile>(moved<kTile / 8>(first, 0, 2 * n), m, x);
    }
}

/// The fragments of 16 columns of A and B, for products of [16 * kM, kN].
template <int kM, int kN>
struct RowFragments {
  u32 a[kM][4], b[kN / 16][4];

  template <int kColumns>
  __device__ __forceinline__ void load(u32 a_first, u32 b_first, int step) {
#pragma unroll
    for (int m = 0; m < kM; ++m) load_matrices(a[m], moved<kColumns / 8>(a_first, 16 * m, 2 * step));
#pragma unroll
    for (int n = 0; n < kN / 16; ++n) load_matrices(b[n], moved<kColumns / 8>(b_first, 16 * n, 2 * step));
  }
};

/// Part of multiply_ahead: of the first step the fragments are `now`, behind the last one those of the next product's
/// first. The addresses are a lane's.
template <class T, int kColumns, int kNextColumns, int kM, int kN>
HEED_DEVICE void multiply_and_load_next(float (&s)[kM][kN / 2], RowFragments<kM, kN>& now, u32 a_first, u32 b_first,
                                        u32 next_a_first, u32 next_b_first) {
  constexpr int kGroup = kColumns % 64 == 0 ? 4 : 2;  // steps after which the order of chunks repeats
  const auto steps = [&]<bool last>() __attribute__((always_inline)) {
#pragma unroll
    for (int step = 0; step < kGroup; ++step) {
      RowFragments<kM, kN> next;
      if (!last || step < kGroup - 1) {
        next.template load<kColumns>(a_first, b_first, step + 1);
      } else if constexpr (kNextColumns > 0) {
        next.template load<kNextColumns>(next_a_first, next_b_first, 0);
      }
#pragma unroll
      for (int n = 0; n < kN / 16; ++n)
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          multiply_add<T>(s[m] + 8 * n, now.a[m], now.b[n][0], now.b[n][1]);
          multiply_add<T>(s[m] + 8 * n + 4, now.a[m], now.b[n][2], now.b[n][3]);
        }
      if (!last || step < kGroup - 1 || kNextColumns > 0) now = next;
    }
  };
#pragma unroll 1
  for (int group = 0; group < kColumns / 16 / kGroup - 1; ++group) {
    steps.template operator()<false>();
    a_first += kGroup * 32, b_first += kGroup * 32;
  }
  steps.template operator()<true>();
}

/// s += Q K^T and dp += dO V^T as multiply_rows, with the fragments of each step loaded before the products of the one
/// before it.
template <class T, int kD, int kDv, int kM, int kR>
HEED_DEVICE void multiply_ahead(float (&s)[kM][kR], float (&dp)[kM][kR], u32 q_at, u32 k_at, u32 do_at, u32 v_at,
                                u32 lane_index) {
  constexpr int kN = 2 * kR;
  const u32 lane = fresh(lane_index) % 32;
  const u32 q_first = matrices_down<kD / 8>(q_at, lane), k_first = matrices_across<kD / 8>(k_at, lane),
            do_first = matrices_down<kDv / 8>(do_at, lane), v_first = matrices_across<kDv / 8>(v_at, lane);
  RowFragments<kM, kN> fragments;
  fragments.template load<kD>(q_first, k_first, 0);
  multiply_and_load_next<T, kD, kDv>(s, fragments, q_first, k_first, do_first, v_first);
  multiply_and_load_next<T, kDv, 0>(dp, fragments, do_first, v_first, 0, 0);
}

/// The same for one product.
template <class T, int kColumns, int kM, int kR>
HEED_DEVICE void multiply_ahead(float (&s)[kM][kR], u32 a_at, u32 b_at, u32 lane_index) {
  const u32 lane = fresh(lane_index) % 32;
  const u32 a_first = matrices_down<kColumns / 8>(a_at, lane), b_first = matrices_across<kColumns / 8>(b_at, lane);
  RowFragments<kM, 2 * kR> fragments;
  fragments.template load<kColumns>(a_first, b_first, 0);
  multiply_and_load_next<T, kColumns, 0>(s, fragments, a_first, b_first, 0, 0);
}

/// Half of S [32, 32] for half of dP, between the warp that has the one (of_dp: false) and the warp that has the other:
/// each gets both of 16 keys, the first 16 or the last. s_at, dp_at: where a lane points in memory of both warps, four
/// chunks each. By a barrier of the two.
template <int kM>
HEED_DEVICE void exchange_halves(const float (&product)[kM][16], bool of_dp, float (&s)[kM][8], float (&dp)[kM][8],
                                 u32 s_at, u32 dp_at, u32 barrier) {
  const u32 to = of_dp ? dp_at : s_at, from = of_dp ? s_at : dp_at;
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) {
    float four[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int at = i % 2 * 4 + e;
      four[e] = of_dp ? product[i / 2][at] : product[i / 2][8 + at];
    }
    store_shared(to ^ i * 16, four);
  }
  join_pair(barrier);
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) {
    float four[4];
    load_shared(four, from ^ i * 16);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int at = i % 2 * 4 + e;
      s[i / 2][at] = of_dp ? four[e] : product[i / 2][at];
      dp[i / 2][at] = of_dp ? product[i / 2][8 + at] : four[e];
    }
  }
  join_pair(barrier);  // both have read
}

/// s [16 * kM, 16] += A B^T for fragments of A, of which some are held, and 16 rows of B. a_first: matrices_down,
/// b_first: matrices_across.
template <class T, int kColumns, int kM, int kHeld>
HEED_DEVICE void multiply_held(float (&s)[kM][8], const u32 (&held)[kM][kHeld][4], u32 a_first, u32 b_first) {
#pragma unroll
  for (int step = 0; step < kColumns / 16; ++step) {
    u32 a[kM][4], b[4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      if (step < kHeld) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][i] = held[m][step][i];
      } else {
        load_matrices(a[m], moved<kColumns / 8>(a_first, 16 * m, 2 * step));
      }
    }
    load_matrices(b, moved<kColumns / 8>(b_first, 0, 2 * step));
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      multiply_add<T>(s[m], a[m], b[0], b[1]);
      multiply_add<T>(s[m] + 4, a[m], b[2], b[3]);
    }
  }
}

/// How weights lie in shared memory, beside the sums that they are for: a row of them for each row of the sums, or for
/// each step of the products' depth.
enum class Stored { by_row, by_depth };

/// Where a lane points for the weights of the rows `row` .. of the sums, in a tile with rows of kTile.
template <Stored kStored, int kTile>
HEED_DEVICE u32 stored_first(u32 weights_at, int row, u32 lane_index) {
  const u32 lane = fresh(lane_index) % 32;
  if constexpr (kStored == Stored::by_row) return matrices_down<kTile / 8>(weights_at + row * kTile * 2, lane);
  return moved<kTile / 8>(matrices_across<kTile / 8>(weights_at, lane), 0, row / 8);
}
/// The same for the warp's first 16 columns of X, which are the warp_column-th.
template <int kColumns>
HEED_DEVICE u32 columns_first(u32 x_at, int warp_column, u32 lane_index) {
  return moved<kColumns / 8>(matrices_down<kColumns / 8>(x_at, fresh(lane_index) % 32), 0, 2 * warp_column);
}

/// sums [16 * kM, kR / 8 times 16 columns] += W X [kDepth, kColumns], both in shared memory. Warps take turns with the
/// columns, sixteen at a time: every kWarps-th sixteen are this one's. kWideSteps: loaded together of the widest dQ.
template <class T, Stored kStored, int kTile, int kColumns, int kDepth, int kWarps, int kWideSteps = 1, int kM, int kR>
HEED_DEVICE void add_stored_product(float (&sums)[kM][kR], u32 weights_first, u32 x_first) {
  static_assert(kR / 8 * kWarps * 16 == kColumns && kM <= 2);
  // dQ beside the widest dK and dV: more would be loaded ahead than registers hold.
  constexpr int kUnroll = kStored == Stored::by_row && kColumns > 192 ? kWideSteps : kDepth / 16;
#pragma unroll kUnroll
  for (int step = 0; step < kDepth / 16; ++step) {
    u32 a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      if constexpr (kStored == Stored::by_row) {
        load_matrices(a[m], moved<kTile / 8>(weights_first, 16 * m, 2 * step));
      } else {
        load_transposed(a[m], moved<kTile / 8>(weights_first, 16 * step, 2 * m));
      }
    }
#pragma unroll
    for (int n = 0; n < kR / 8; ++n) {
      u32 b[4];  // columns 0..7: depth 0..7, 8..15; columns 8..15: the same
      load_transposed(b, moved<kColumns / 8>(x_first, 16 * step, 2 * kWarps * n));
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add<T>(sums[m] + 8 * n, a[m], b[0], b[1]);
        multiply_add<T>(sums[m] + 8 * n + 4, a[m], b[2], b[3]);
      }
    }
  }
}

/// Columns first_column .. of a matrix.
template <class T>
HEED_DEVICE Matrix<T> from_column(Matrix<T> matrix, int first_column) {
  matrix.data += first_column * matrix.column_step;
  matrix.columns -= first_column;
  return matrix;
}

/// Two tiles in shared memory, [kARows, kPiece] and [kBRows, kPiece], and what of them is the warp's.
struct PieceTiles {
  u32 a_at, b_at;
  u32 my_a_at, my_b_at;
};

/// multiply_rows for head dims that are wider than shared memory: pieces of the rows a_row .. of A and b_row .. of B
/// come one after the other. By all threads of the CTA; `mine`: this warp wants the product.
template <class T, int kARows, int kBRows, int kPiece, int kThreads, int kRowBytes, int kN, int kM,
          class A, class B>
HEED_DEVICE void multiply_in_pieces(float (&s)[kM][kN / 2], const PieceTiles& tiles, const Matrix<A>& a, int a_row,
                                    const Matrix<B>& b, int b_row, bool mine, u32 thread, int lane) {
#pragma unroll 1
  for (int column = 0; column < a.columns; column += kPiece) {
    __syncthreads();  // all are done with the tiles
    load_tile<T, A, kARows, kPiece, kThreads, kRowBytes>(tiles.a_at, from_column(a, column), a_row, thread);
    load_tile<T, B, kBRows, kPiece, kThreads, kRowBytes>(tiles.b_at, from_column(b, column), b_row, thread);
    close_copies();
    wait_copies<0>();
    __syncthreads();
    if (mine) multiply_rows<T, kPiece, kN, kM>(s, tiles.my_a_at, tiles.my_b_at, a.columns - column, lane);
  }
}

/// Columns first_column .. of the rows `row` .. of X -> a tile [kRows, kColumns], by all threads of the CTA.
template <class T, int kRows, int kColumns, int kThreads, int kRowBytes, class X>
HEED_DEVICE void load_columns(u32 to, const Matrix<X>& x, int row, int first_column, u32 thread) {
  __syncthreads();
  load_tile<T, X, kRows, kColumns, kThreads, kRowBytes>(to, from_column(x, first_column), row, thread);
  close_copies();
  wait_copies<0>();
  __syncthreads();
}

template <int kM, int R>
HEED_DEVICE void clear(float (&x)[kM][R]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int i = 0; i < R; ++i) x[m][i] = 0.0f;
}

/// Eight accumulators of a 16 x 16 tile.
template <int R>
HEED_DEVICE float (&eighth(float (&x)[R], int n))[8] {
  return *reinterpret_cast<float(*)[8]>(x + 8 * n);
}

}  // namespace heed::kernels
