// The way of O in the Hopper forward kernel, warp by warp: times the rows' factors, to 16 bits, into shared memory, and from
// there to global memory.
#pragma once

#include "hopper_products.cuh"
#include "hopper_rows.cuh"
#include "hopper_tiles.cuh"
#include "ptx.cuh"

namespace heed::kernels {

/// One panel of a warp's 16 rows into shared memory. `row` is where this lane's row begins there.
template <HopperConfig C, class T, class X, int R>
HEED_DEVICE void put_o_panel(const X (&o)[R], const float (&factor)[2], int panel, u32 row, u32 lane) {
#pragma unroll
  for (int column = 0; column < 64; column += 16) {
    if (panel * 64 + column >= C.d_v) break;
    const u32 there = row + (((column / 8 + (lane >> 4)) ^ (lane & 7)) * 16);
    // Two groups of 8 columns, rows r and r + 8.
    if constexpr (C.sums_in_f16) {
      float x[8];
      widen(x, o, (panel * 64 + column) / 4);
      store_matrix_x4(there, pack<T>(x[0] * factor[0], x[1] * factor[0]), pack<T>(x[2] * factor[1], x[3] * factor[1]),
                      pack<T>(x[4] * factor[0], x[5] * factor[0]), pack<T>(x[6] * factor[1], x[7] * factor[1]));
    } else {
      const float* x = o + (panel * 64 + column) / 2;
      store_matrix_x4(there, pack<T>(x[0] * factor[0], x[1] * factor[0]), pack<T>(x[2] * factor[1], x[3] * factor[1]),
                      pack<T>(x[4] * factor[0], x[5] * factor[0]), pack<T>(x[6] * factor[1], x[7] * factor[1]));
    }
  }
}

/// The 16 rows of a warp from `first_row` on. `at` is their memory: of the whole O, or, where it has memory of its own, of
/// two panels.
template <HopperConfig C, class T, class X, int R>
HEED_DEVICE void store_o_of_warp(const X (&o)[R], const float (&factor)[2], const TensorMap* map, const ForwardParams& p,
                                 const Sequence& sequence, const TileWork& work, int first_row, u32 at, u32 matrix_row,
                                 u32 lane) {
  const int rows = sequence.rows() - first_row;  // rows of this warp that are the sequence's
  const bool whole = !C.features.own_lengths || rows >= 16;
#pragma unroll
  for (int panel = 0; panel < C.v_panels(); ++panel) {
    const u32 to = at + (C.own_o_memory ? panel % 2 : panel) * (64 * 128);
    if (C.own_o_memory) {  // the store that used this panel before must have read it
      if (lane == 0) tma_store_wait_read<1>();
      __syncwarp();
    }
    put_o_panel<C, T>(o, factor, panel, to + matrix_row, lane);
    if (C.own_o_memory || panel == C.v_panels() - 1) {
      const int first_panel = C.own_o_memory ? panel : 0;
      if (whole) {
        fence_shared_for_async();
        __syncwarp();
        if (lane == 0) {
#pragma unroll
          for (int i = first_panel; i <= panel; ++i)
            store_o_rows<C>(map, C.own_o_memory ? to : at + i * (64 * 128), i * 64, p, sequence, work, first_row);
        }
      } else {  // the rows behind belong to somebody else: written one by one
        __syncwarp();
        u16* out = static_cast<u16*>(p.o) + work.batch * p.o_steps.batch;
#pragma unroll 1
        for (int i = lane; i < rows * 8 * (panel + 1 - first_panel); i += 32) {
          const int chunk = i % 8, row = i / 8 % rows, which = first_panel + i / 8 / rows;
          if (which * 64 + chunk * 8 >= p.d_v) continue;
          const u32 source = C.own_o_memory ? to : at + which * (64 * 128);
          const i64 at_row = sequence.head(work.head, first_row + row) * p.o_steps.head +
                             (sequence.q_row + sequence.query(first_row + row)) * p.o_steps.row;
          *reinterpret_cast<uint4*>(out + at_row + which * 64 + chunk * 8) =
              load_shared_16(source + row * 128 + ((chunk ^ (row & 7)) * 16));
        }
        __syncwarp();
      }
      if (lane == 0) tma_store_commit();
    }
  }
}

}  // namespace heed::kernels
