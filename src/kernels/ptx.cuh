// One function per instruction of sm_90 that C++ has no name for: mbarriers, the tensor copy engine (TMA), named
// barriers, register budgets, matrix stores. What older GPUs have too is in mma.cuh. Addresses are shared-memory addresses as u32.
#pragma once

#include "numbers.cuh"

namespace heed::kernels {

/// Bit-compatible with CUtensorMap.
struct alignas(64) TensorMap {
  u64 opaque[16];
};

// ---- threads ----
HEED_DEVICE u32 warp_uniform(u32 x) { return __shfl_sync(0xffffffffu, x, 0); }
/// True in one thread of the warp. The compiler knows that only one goes on: copies issued there need no loop over lanes.
HEED_DEVICE bool elect_one() {
  u32 elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
  return elected != 0;
}
template <int kRegisters>
HEED_DEVICE void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
HEED_DEVICE void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
HEED_DEVICE void barrier_sync(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
HEED_DEVICE void barrier_arrive(u32 id, u32 threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- clusters ----
/// Which block of its cluster this one is.
HEED_DEVICE u32 cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// Waits for every thread of the cluster that has not ended.
HEED_DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// ---- mbarriers ----
HEED_DEVICE void mbarrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
HEED_DEVICE void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
HEED_DEVICE void mbarrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives at the barrier that lies at the same place in another block of the cluster.
HEED_DEVICE void mbarrier_arrive_at(u32 barrier, u32 rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
/// Arrives, and says that this many bytes will come by TMA.
HEED_DEVICE void mbarrier_arrive_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
HEED_DEVICE bool mbarrier_try_wait(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}
/// Whether it has ended, without waiting for it.
HEED_DEVICE bool mbarrier_test(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}
/// Arrives as soon as all that this thread has sent by cp.async is there.
HEED_DEVICE void arrive_after_copies(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
/// Waits for the phase with this parity to end.
HEED_DEVICE void mbarrier_wait(u32 barrier, u32 parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

// ---- TMA ----
HEED_DEVICE u64 keep_in_l2() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
HEED_DEVICE u64 drop_from_l2() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
HEED_DEVICE void tma_prefetch(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/// The box of `map` at these coordinates, innermost first -> shared memory; what lies outside the tensor becomes zero.
HEED_DEVICE void tma_load(u32 to, const TensorMap* map, u32 barrier, int c0, int c1, int c2, int c3, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(policy)
      : "memory");
}
/// Of a tensor with five dimensions.
HEED_DEVICE void tma_load(u32 to, const TensorMap* map, u32 barrier, int c0, int c1, int c2, int c3, int c4, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "l"(policy)
      : "memory");
}
/// The same for every block of the cluster whose bit is set: memory and barrier at the same place in each.
HEED_DEVICE void tma_load_to_all(u32 to, const TensorMap* map, u32 barrier, int c0, int c1, int c2, int c3, u16 blocks,
                                 u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], %7, %8;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "h"(blocks), "l"(policy)
      : "memory");
}
/// The other way; what lies outside the tensor is not written.
HEED_DEVICE void tma_store(const TensorMap* map, u32 from, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}
HEED_DEVICE void tma_store(const TensorMap* map, u32 from, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
               "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}
HEED_DEVICE void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until at most `kPending` committed stores have yet to read their shared memory.
template <int kPending>
HEED_DEVICE void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
/// Waits until at most `kPending` committed stores have yet to be seen in global memory.
template <int kPending>
HEED_DEVICE void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}
/// Plain memory, a multiple of 16 bytes, aligned to them -> shared memory.
HEED_DEVICE void bulk_load(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
/// And back.
HEED_DEVICE void bulk_store(void* to, u32 from, u32 bytes, u64 policy) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(to), "r"(from),
               "r"(bytes), "l"(policy)
               : "memory");
}
/// Elements of shared memory are added to those of global memory, each add on its own.
#define HEED_BULK_ADD(T, TYPE)                                                                                           \
  template <>                                                                                                          \
  __device__ __forceinline__ void bulk_add<T>(T::Raw * to, u32 from, u32 bytes, u64 policy) {                          \
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.add." TYPE " [%0], [%1], %2, %3;" \
                 ::"l"(to), "r"(from), "r"(bytes), "l"(policy)                                                         \
                 : "memory");                                                                                          \
  }
template <class T>
HEED_DEVICE void bulk_add(typename T::Raw* to, u32 from, u32 bytes, u64 policy);
HEED_BULK_ADD(f32, "f32")
HEED_BULK_ADD(f16, "noftz.f16")
HEED_BULK_ADD(bf16, "noftz.bf16")
#undef HEED_BULK_ADD
HEED_DEVICE void wait_a_while() { asm volatile("nanosleep.u32 20;"); }
/// Ordinary writes to shared memory before this line are seen by TMA and wgmma after the next barrier.
HEED_DEVICE void fence_shared_for_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- between thread blocks ----
/// What a thread saw before its store_release, this thread sees after its load_acquire.
HEED_DEVICE u32 load_acquire(const u32* from) {
  u32 x;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}
HEED_DEVICE void store_release(u32* to, u32 x) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
HEED_DEVICE void add_release(u32* to, u32 x) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
/// Between accesses to global memory by the thread and by its TMA copies.
HEED_DEVICE void fence_global_for_async() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// ---- matrices in shared memory ----
HEED_DEVICE void store_matrix_x4(u32 address, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
/// The four 8 x 8 matrices transposed: the address is that of a row of the result.
HEED_DEVICE void store_transposed_x4(u32 address, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
HEED_DEVICE uint4 load_shared_16(u32 address) {
  uint4 x;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(address)
               : "memory");
  return x;
}
HEED_DEVICE void store_shared_zero_16(u32 address) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(address), "r"(0) : "memory");
}

}  // namespace heed::kernels
