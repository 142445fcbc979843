// Instructions of sm_80 and up, for both families: asynchronous copies, shared memory in 16-byte chunks,
// ldmatrix, mma.sync. Each touches shared memory by its 32-bit address.
#pragma once

#include "numbers.cuh"

namespace heed::kernels {

HEED_DEVICE u32 shared_address(const void* pointer) { return u32(__cvta_generic_to_shared(pointer)); }

/// x, but nobody can tell: what depends on it is computed where it is used, not kept in registers around a loop.
HEED_DEVICE u32 fresh(u32 x) {
  asm volatile("" : "+r"(x));
  return x;
}
HEED_DEVICE i64 fresh_wide(i64 x) {
  asm volatile("" : "+l"(x));
  return x;
}
/// The thread's number, read anew: nothing that is made of it stays in registers.
HEED_DEVICE u32 thread_anew() {
  u32 x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  return x;
}

/// Sixteen bytes to shared memory, or zeros, and nothing is read. Both ends are aligned.
HEED_DEVICE void copy_16_or_zeros(u32 to, const void* from, bool inside) {
  asm volatile(
      "{\n.reg .pred outside;\nsetp.eq.u32 outside, %2, 0;\n"
      "cp.async.cg.shared.global [%0], [%1], 16, outside;\n}" ::"r"(to),
      "l"(from), "r"(u32(inside))
      : "memory");
}
/// Sixteen bytes to shared memory, of which the first `bytes` are read and the rest are zero. Both ends are aligned.
HEED_DEVICE void copy_16(u32 to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
/// The same for eight bytes, and for four.
HEED_DEVICE void copy_8(u32 to, const void* from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
HEED_DEVICE void copy_4(u32 to, const void* from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
template <int kBytes>
HEED_DEVICE void copy(u32 to, const void* from, int bytes) {
  static_assert(kBytes == 16 || kBytes == 8 || kBytes == 4);
  if constexpr (kBytes == 16) {
    copy_16(to, from, bytes);
  } else if constexpr (kBytes == 8) {
    copy_8(to, from, bytes);
  } else {
    copy_4(to, from, bytes);
  }
}
/// The copies since the last close are one group.
HEED_DEVICE void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most kOpen groups of this thread are under way.
template <int kOpen>
HEED_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

/// Eight by eight elements of 16 bits, of which lane l has two of row l / 4: row and column change places.
HEED_DEVICE u32 transpose_8x8(u32 two) {
  u32 transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(two));
  return transposed;
}

HEED_DEVICE void store_shared(u32 to, const u32 (&x)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}
HEED_DEVICE void store_shared(u32 to, const u32 (&x)[2]) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(x[0]), "r"(x[1]) : "memory");
}
HEED_DEVICE void store_shared(u32 to, const float (&x)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
}
HEED_DEVICE void store_shared(u32 to, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x), "f"(y) : "memory");
}
HEED_DEVICE void store_shared(u32 to, u32 x) { asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory"); }
HEED_DEVICE void store_shared(u32 to, float x) { asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory"); }
HEED_DEVICE void load_shared(float (&x)[4], u32 from) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
               : "r"(from)
               : "memory");
}
HEED_DEVICE void load_shared(float (&x)[2], u32 from) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x[0]), "=f"(x[1]) : "r"(from) : "memory");
}
HEED_DEVICE void load_shared(u32 (&x)[4], u32 from) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(from)
               : "memory");
}
HEED_DEVICE void load_shared(u32 (&x)[2], u32 from) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "r"(from) : "memory");
}
HEED_DEVICE void load_shared(float (&x)[1], u32 from) {
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x[0]) : "r"(from) : "memory");
}

/// The same words again and again: the compiler may not keep them from one time to the next.
HEED_DEVICE void load_anew(u32 (&x)[4], u32 from) {
  asm volatile("ld.volatile.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(from)
               : "memory");
}

/// Two warps wait for each other. Every pair has a barrier of its own, 1 to 15.
HEED_DEVICE void join_pair(u32 barrier) { asm volatile("bar.sync %0, 64;" ::"r"(barrier) : "memory"); }
/// And hear whether it was true in some of their threads.
HEED_DEVICE bool any_of_pair(u32 barrier, bool here) {
  u32 any;
  asm volatile(
      "{\n.reg .pred here, any;\nsetp.ne.u32 here, %1, 0;\nbar.red.or.pred any, %2, 64, here;\n"
      "selp.u32 %0, 1, 0, any;\n}"
      : "=r"(any)
      : "r"(u32(here)), "r"(barrier)
      : "memory");
  return any != 0;
}

/// Four 8 x 8 matrices of 16-bit elements, whose rows lanes 0..7, 8..15, 16..23 and 24..31 point to. Of each, a thread
/// gets elements 2 * (lane % 4) and the next of row lane / 4.
HEED_DEVICE void load_matrices(u32 (&x)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(row)
               : "memory");
}
/// The same of the transposed matrices.
HEED_DEVICE void load_transposed(u32 (&x)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(row)
               : "memory");
}

/// Adds to a number in global memory, whoever else adds to it, without waiting for it.
HEED_DEVICE void add_to_memory(float* to, float x) {
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
/// The same for four neighbours that begin at a multiple of 16 bytes. From sm_90 on.
HEED_DEVICE void add_to_memory(float* to, float x, float y, float z, float w) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
}

/// c [16, 8] += a [16, 16] b [16, 8]. With r = lane / 4 and q = 2 * (lane % 4), and e for 0 and 1:
///   a: (r, q + e), (r + 8, q + e), (r, q + 8 + e), (r + 8, q + 8 + e);  b: (q + e, r), (q + 8 + e, r);
///   c: (r, q + e) in c[0], c[1], (r + 8, q + e) in c[2], c[3].
template <class T>
HEED_DEVICE void multiply_add(float* c, const u32 (&a)[4], u32 b0, u32 b1);
template <>
__device__ __forceinline__ void multiply_add<f16>(float* c, const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply_add<bf16>(float* c, const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace heed::kernels
