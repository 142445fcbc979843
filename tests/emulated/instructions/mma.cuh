// What src/kernels/mma.cuh does, by the CPU.
#pragma once

#include "emulated/fibers.hpp"
#include "emulated/shared_memory.hpp"
#include "numbers.cuh"

#include <cstring>

namespace heed::kernels {

HEED_DEVICE u32 shared_address(const void* pointer) { return emulated::shared_address(pointer); }
HEED_DEVICE u32 fresh(u32 x) { return x; }
HEED_DEVICE u32 thread_anew() { return threadIdx.x; }
HEED_DEVICE i64 fresh_wide(i64 x) { return x; }

HEED_DEVICE void copy_16_or_zeros(u32 to, const void* from, bool inside) { emulated::copy_later(to, from, inside ? 16 : 0, 16); }
template <int kBytes>
HEED_DEVICE void copy(u32 to, const void* from, int bytes) {
  emulated::copy_later(to, from, static_cast<std::size_t>(bytes), kBytes);
}
HEED_DEVICE void copy_4(u32 to, const void* from, int bytes) { copy<4>(to, from, bytes); }
HEED_DEVICE void close_copies() { emulated::close_copies(); }
template <int kOpen>
HEED_DEVICE void wait_copies() {
  emulated::wait_copies(kOpen);
}

template <class X>
HEED_DEVICE void put(u32 to, const X& x) {
  std::memcpy(emulated::shared_bytes(to, sizeof x), &x, sizeof x);
}
template <class X>
HEED_DEVICE void get(X& x, u32 from) {
  std::memcpy(&x, emulated::shared_bytes(from, sizeof x), sizeof x);
}
HEED_DEVICE void store_shared(u32 to, const u32 (&x)[4]) { put(to, x); }
HEED_DEVICE void store_shared(u32 to, const u32 (&x)[2]) { put(to, x); }
HEED_DEVICE void store_shared(u32 to, const float (&x)[4]) { put(to, x); }
HEED_DEVICE void store_shared(u32 to, float x, float y) {
  const float both[2] = {x, y};
  put(to, both);
}
HEED_DEVICE void store_shared(u32 to, u32 x) { put(to, x); }
HEED_DEVICE void store_shared(u32 to, float x) { put(to, x); }
template <class Word, int N>
HEED_DEVICE void load_shared(Word (&x)[N], u32 from) {
  get(x, from);
}
HEED_DEVICE void load_shared(u32 (&x)[4], u32 from) { get(x, from); }
HEED_DEVICE void load_anew(u32 (&x)[4], u32 from) { get(x, from); }

HEED_DEVICE void join_pair(u32 barrier) { emulated::join_gate(barrier, 2 * emulated::kLanes); }
HEED_DEVICE bool any_of_pair(u32 barrier, bool here) {
  return emulated::join_gate_or(barrier, 2 * emulated::kLanes, here);
}

/// Element (row, column) of an 8 x 8 matrix whose rows begin at the addresses that eight lanes bring.
HEED_DEVICE u32 matrix_element(const emulated::LaneWords& rows, int first_lane, int row, int column) {
  u16 element;
  get(element, rows[static_cast<std::size_t>(first_lane + row)][0] + u32(column) * 2);
  return element;
}
/// Four matrices, whose rows lanes 8 i to 8 i + 7 point at.
HEED_DEVICE void load_matrices(u32 (&x)[4], u32 row) {
  const emulated::LaneWords rows = emulated::exchange(&row, 1);
  const int lane = emulated::thread_index() % emulated::kLanes, r = lane / 4, c = lane % 4 * 2;
  for (int i = 0; i < 4; ++i) x[i] = matrix_element(rows, 8 * i, r, c) | matrix_element(rows, 8 * i, r, c + 1) << 16;
}
HEED_DEVICE void load_transposed(u32 (&x)[4], u32 row) {
  const emulated::LaneWords rows = emulated::exchange(&row, 1);
  const int lane = emulated::thread_index() % emulated::kLanes, r = lane % 4 * 2, c = lane / 4;
  for (int i = 0; i < 4; ++i) x[i] = matrix_element(rows, 8 * i, r, c) | matrix_element(rows, 8 * i, r + 1, c) << 16;
}
HEED_DEVICE u32 transpose_8x8(u32 two) {
  const emulated::LaneWords& all = emulated::exchange(&two, 1);
  const int lane = emulated::thread_index() % emulated::kLanes;
  const auto element = [&](int row, int column) {
    return all[static_cast<std::size_t>(row * 4 + column / 2)][0] >> (column % 2 * 16) & 0xffff;
  };
  return element(lane % 4 * 2, lane / 4) | element(lane % 4 * 2 + 1, lane / 4) << 16;
}

HEED_DEVICE void add_to_memory(float* to, float x) { *to += x; }
HEED_DEVICE void add_to_memory(float* to, float x, float y, float z, float w) {
  to[0] += x;
  to[1] += y;
  to[2] += z;
  to[3] += w;
}

template <class T>
HEED_DEVICE void multiply_add(float* c, const u32 (&a)[4], u32 b0, u32 b1) {
  const u32 mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const emulated::LaneWords& all = emulated::exchange(mine, 6);
  const int lane = emulated::thread_index() % emulated::kLanes;
  const auto element = [&](int of_lane, int word, int half) {
    return to_float<T>(u16(all[static_cast<std::size_t>(of_lane)][static_cast<std::size_t>(word)] >> (16 * half)));
  };
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    float sum = 0;
    for (int k = 0; k < 16; ++k)
      sum += element(row % 8 * 4 + k % 8 / 2, row / 8 + k / 8 * 2, k % 2) * element(column * 4 + k % 8 / 2, 4 + k / 8, k % 2);
    c[i] += sum;
  }
}

}  // namespace heed::kernels
