// What src/kernels/ptx.cuh does, by the CPU.
#pragma once

#include "emulated/async.hpp"
#include "mma.cuh"
#include "numbers.cuh"

#include <cstring>

namespace heed::kernels {

/// Holds a pointer to an emulated::Map.
struct alignas(64) TensorMap {
  u64 opaque[16];
};
HEED_DEVICE const emulated::Map& map_of(const TensorMap* map) { return *reinterpret_cast<const emulated::Map*>(map->opaque[0]); }

HEED_DEVICE u32 warp_uniform(u32 x) { return __shfl_sync(0xffffffffu, x, 0); }
HEED_DEVICE bool elect_one() { return emulated::thread_index() % emulated::kLanes == 0; }
template <int kRegisters>
HEED_DEVICE void fewer_registers() {}
template <int kRegisters>
HEED_DEVICE void more_registers() {}
HEED_DEVICE void barrier_sync(u32 id, u32 threads) { emulated::named_barrier_sync(id, int(threads)); }
HEED_DEVICE void barrier_arrive(u32 id, u32 threads) { emulated::named_barrier_arrive(id, int(threads)); }

HEED_DEVICE u32 cluster_rank() { return u32(emulated::cluster_rank()); }
HEED_DEVICE void cluster_sync() { emulated::join_cluster(); }

HEED_DEVICE void mbarrier_init(u32 barrier, u32 arrivals) { emulated::mbarrier_init(barrier, int(arrivals)); }
HEED_DEVICE void mbarrier_init_fence() {}
HEED_DEVICE void mbarrier_arrive(u32 barrier) { emulated::mbarrier_arrive(barrier); }
HEED_DEVICE void mbarrier_arrive_at(u32 barrier, u32 rank) { emulated::mbarrier_arrive_at(barrier, int(rank)); }
HEED_DEVICE void mbarrier_arrive_expect(u32 barrier, u32 bytes) { emulated::mbarrier_arrive(barrier, bytes); }
HEED_DEVICE bool mbarrier_try_wait(u32 barrier, u32 parity) { return emulated::mbarrier_ended(barrier, parity); }
HEED_DEVICE bool mbarrier_test(u32 barrier, u32 parity) { return emulated::mbarrier_ended(barrier, parity); }
HEED_DEVICE void arrive_after_copies(u32 barrier) { emulated::mbarrier_arrive_after_copies(barrier); }
HEED_DEVICE void mbarrier_wait(u32 barrier, u32 parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

HEED_DEVICE u64 keep_in_l2() { return 0; }
HEED_DEVICE u64 drop_from_l2() { return 0; }
HEED_DEVICE void tma_prefetch(const TensorMap*) {}
HEED_DEVICE void tma_load(u32 to, const TensorMap* map, u32 barrier, int c0, int c1, int c2, int c3, u64) {
  emulated::tma_load(to, map_of(map), barrier, {c0, c1, c2, c3, 0});
}
HEED_DEVICE void tma_load(u32 to, const TensorMap* map, u32 barrier, int c0, int c1, int c2, int c3, int c4, u64) {
  emulated::tma_load(to, map_of(map), barrier, {c0, c1, c2, c3, c4});
}
HEED_DEVICE void tma_load_to_all(u32 to, const TensorMap* map, u32 barrier, int c0, int c1, int c2, int c3, u16 blocks, u64) {
  for (int rank = 0; rank < 16; ++rank)
    if (blocks >> rank & 1)
      emulated::in_block_of_cluster(rank, [&] { emulated::tma_load(to, map_of(map), barrier, {c0, c1, c2, c3, 0}); });
}
HEED_DEVICE void tma_store(const TensorMap* map, u32 from, int c0, int c1, int c2, int c3) {
  emulated::tma_store(map_of(map), from, {c0, c1, c2, c3, 0});
}
HEED_DEVICE void tma_store(const TensorMap* map, u32 from, int c0, int c1, int c2, int c3, int c4) {
  emulated::tma_store(map_of(map), from, {c0, c1, c2, c3, c4});
}
HEED_DEVICE void tma_store_commit() { emulated::bulk_commit(); }
template <int kPending>
HEED_DEVICE void tma_store_wait_read() {
  emulated::bulk_wait(kPending);
}
template <int kPending>
HEED_DEVICE void tma_store_wait() {
  emulated::bulk_wait(kPending);
}
HEED_DEVICE void bulk_load(u32 to, const void* from, u32 bytes, u32 barrier) { emulated::bulk_load(to, from, bytes, barrier); }
HEED_DEVICE void bulk_store(void* to, u32 from, u32 bytes, u64) {
  constexpr std::size_t kAtOnce = 16;
  emulated::bulk_add(to, from, bytes, kAtOnce, [](void* in, const void* x) { std::memcpy(in, x, kAtOnce); });
}
template <class T>
HEED_DEVICE void bulk_add(typename T::Raw* to, u32 from, u32 bytes, u64) {
  using Raw = typename T::Raw;
  emulated::bulk_add(to, from, bytes, sizeof(Raw), [](void* sum, const void* x) {
    Raw added;
    std::memcpy(&added, x, sizeof(Raw));
    Raw& in = *static_cast<Raw*>(sum);
    in = from_float<T>(to_float<T>(in) + to_float<T>(added));
  });
}
HEED_DEVICE void wait_a_while() {}
HEED_DEVICE void fence_shared_for_async() {}

HEED_DEVICE u32 load_acquire(const u32* from) {
  emulated::pause();
  return *from;
}
HEED_DEVICE void store_release(u32* to, u32 x) { *to = x; }
HEED_DEVICE void add_release(u32* to, u32 x) { *to += x; }
HEED_DEVICE void fence_global_for_async() {}

/// Rows of four 8 x 8 matrices begin at the addresses that the lanes bring.
HEED_DEVICE void store_matrix_x4(u32 address, u32 a, u32 b, u32 c, u32 d) {
  const u32 mine[4] = {a, b, c, d};
  const emulated::LaneWords rows = emulated::exchange(&address, 1);
  const int lane = emulated::thread_index() % emulated::kLanes;
  for (int i = 0; i < 4; ++i) put(rows[static_cast<std::size_t>(8 * i + lane / 4)][0] + u32(lane % 4 * 4), mine[i]);
}
HEED_DEVICE void store_transposed_x4(u32 address, u32 a, u32 b, u32 c, u32 d) {
  const u32 mine[4] = {a, b, c, d};
  const emulated::LaneWords rows = emulated::exchange(&address, 1);
  const int lane = emulated::thread_index() % emulated::kLanes;
  for (int i = 0; i < 4; ++i)
    for (int e = 0; e < 2; ++e)
      put(rows[static_cast<std::size_t>(8 * i + lane % 4 * 2 + e)][0] + u32(lane / 4 * 2), u16(mine[i] >> (16 * e)));
}
HEED_DEVICE uint4 load_shared_16(u32 address) {
  uint4 x;
  get(x, address);
  return x;
}
HEED_DEVICE void store_shared_zero_16(u32 address) { put(address, uint4{}); }

}  // namespace heed::kernels
