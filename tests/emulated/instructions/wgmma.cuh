// What src/kernels/wgmma.cuh does, by the CPU: every warp multiplies its 16 of 64 rows. f32 accumulators only.
#pragma once

#include "emulated/async.hpp"
#include "mma.cuh"
#include "numbers.cuh"

#include <array>

namespace heed::kernels {

HEED_DEVICE u64 swizzled_operand(u32 address, u32 panel_bytes) {
  return (u64(1) << 62) | (u64(1024 >> 4) << 32) | (u64((panel_bytes >> 4) & 0x3fff) << 16) |
         u64((address & 0x3ffff) >> 4);
}
HEED_DEVICE void wgmma_fence() {}
HEED_DEVICE void wgmma_commit() { emulated::multiply_commit(); }
/// A warp waits as one: no lane goes on before the products of all.
HEED_DEVICE void wgmma_wait_all() {
  emulated::multiply_wait(0);
  emulated::join_warp();
}
template <class X, int R>
HEED_DEVICE void pin(X (&)[R]) {}
HEED_DEVICE void pin(u32&) {}
template <int R>
HEED_DEVICE void make_zeros(float (&c)[R]) {
  for (float& x : c) x = 0.0f;
}
template <int kPending, class X, int R>
HEED_DEVICE void wgmma_wait(X (&)[R]) {
  emulated::multiply_wait(kPending);
  emulated::join_warp();
}

/// Element (i, k) of an operand in shared memory, with k < 16. kColumns: i is the contiguous dimension.
template <class T, bool kColumns>
HEED_DEVICE float operand_element(u64 operand, u32 i, u32 k) {
  const u32 base = u32(operand & 0x3fff) << 4, panel = u32(operand >> 16 & 0x3fff) << 4;
  const u32 offset = kColumns ? i / 64 * panel + k / 8 * 1024 + k % 8 * 128 + i % 64 * 2
                              : i / 8 * 1024 + i % 8 * 128 + k * 2;
  u16 raw;
  get(raw, emulated::swizzled(base + offset));
  return to_float<T>(raw);
}

/// c = accumulate * c + A B^T; `a(half, k)`: of this thread's two rows.
template <class T, int N, bool kBColumns, class A>
HEED_DEVICE void multiply_rows(float (&c)[N / 2], const A& a, u64 b, bool accumulate) {
  const u32 lane = u32(emulated::thread_index()) % emulated::kLanes;
  float* const to = c;
  emulated::multiply([=] {
    float rows[2][16];
    for (int half = 0; half < 2; ++half)
      for (u32 k = 0; k < 16; ++k) rows[half][k] = a(half, k);
    for (u32 j = 0; j < N / 8; ++j)
      for (u32 e = 0; e < 2; ++e) {
        float sum[2] = {0, 0};
        for (u32 k = 0; k < 16; ++k) {
          const float x = operand_element<T, kBColumns>(b, 8 * j + lane % 4 * 2 + e, k);
          sum[0] += rows[0][k] * x;
          sum[1] += rows[1][k] * x;
        }
        for (u32 half = 0; half < 2; ++half) {
          float& result = to[4 * j + 2 * half + e];
          result = (accumulate ? result : 0.0f) + sum[half];
        }
      }
  });
}
template <class T, int N, bool kAColumns, bool kBColumns>
HEED_DEVICE void multiply_shared(float (&c)[N / 2], u64 a, u64 b, bool accumulate) {
  const u32 row = u32(emulated::thread_index()) % 128 / 32 * 16 + u32(emulated::thread_index()) % 32 / 4;
  multiply_rows<T, N, kBColumns>(
      c, [=](int half, u32 k) { return operand_element<T, kAColumns>(a, row + 8 * u32(half), k); }, b, accumulate);
}

template <class T, int N>
struct Wgmma {
  template <bool kRowsAreK = false>
  HEED_DEVICE void shared_shared(float (&c)[N / 2], u64 a, u64 b, int accumulate) {
    multiply_shared<T, N, false, kRowsAreK>(c, a, b, accumulate != 0);
  }
  template <bool kRowsAreK>
  HEED_DEVICE void registers_shared(float (&c)[N / 2], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, int accumulate) {
    const u32 mine[4] = {a0, a1, a2, a3};
    const emulated::LaneWords& all = emulated::exchange(mine, 4);
    const std::size_t first = static_cast<std::size_t>(emulated::thread_index()) % 32 / 4 * 4;  // lane of this row
    std::array<std::array<u32, 4>, 4> row;
    for (std::size_t q = 0; q < 4; ++q)
      for (std::size_t i = 0; i < 4; ++i) row[q][i] = all[first + q][i];
    multiply_rows<T, N, kRowsAreK>(
        c,
        [=](int half, u32 k) {
          return to_float<T>(u16(row[k % 8 / 2][static_cast<std::size_t>(half) + k / 8 * 2] >> (16 * (k % 2))));
        },
        b, accumulate != 0);
  }
};
template <class T, int N>
struct WgmmaFirst {
  HEED_DEVICE void registers_shared(float (&c)[N / 2], u32 a0, u32 a1, u32 a2, u32 a3, u64 b) {
    Wgmma<T, N>::template registers_shared<true>(c, a0, a1, a2, a3, b, 0);
  }
};
template <class T, int N>
struct WgmmaMajor {
  template <bool kAColumns, bool kBColumns>
  HEED_DEVICE void first(float (&c)[N / 2], u64 a, u64 b) {
    multiply_shared<T, N, kAColumns, kBColumns>(c, a, b, false);
  }
  template <bool kAColumns, bool kBColumns>
  HEED_DEVICE void add(float (&c)[N / 2], u64 a, u64 b) {
    multiply_shared<T, N, kAColumns, kBColumns>(c, a, b, true);
  }
};
template <int N>
struct WgmmaHalf;

}  // namespace heed::kernels
