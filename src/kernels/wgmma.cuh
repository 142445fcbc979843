// wgmma.m64nNk16 with f32 accumulators for sm_90a: one struct per width N. The accumulator has N / 2 registers a thread,
// in the layout that forward_features.cuh describes.
//
// An asm statement cannot take an array, so that every register is named: the lists below hold nothing else.
#pragma once

#include "numbers.cuh"

namespace heed::kernels {

/// Shared-memory descriptor of an operand with 128-byte swizzle. Groups of 8 rows of 128 bytes are 1024 bytes apart.
/// `panel_bytes`: distance between 64-element panels along N where N is the contiguous dimension (V); no matter
/// otherwise.
HEED_DEVICE u64 swizzled_operand(u32 address, u32 panel_bytes) {
  return (u64(1) << 62) | (u64(1024 >> 4) << 32) | (u64((panel_bytes >> 4) & 0x3fff) << 16) |
         u64((address & 0x3ffff) >> 4);
}

HEED_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
HEED_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
HEED_DEVICE void wgmma_wait_all() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
/// No register of c may be read or written across this line.
HEED_DEVICE void pin(u32& x) { asm volatile("" : "+r"(x)::"memory"); }
template <int R>
HEED_DEVICE void pin(float (&c)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i) asm volatile("" : "+f"(c[i])::"memory");
}
template <int R>
HEED_DEVICE void pin(u32 (&c)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i) asm volatile("" : "+r"(c[i])::"memory");
}
/// Waits until at most `kPending` committed groups are in flight; then c may be read.
template <int kPending, class X, int R>
HEED_DEVICE void wgmma_wait(X (&c)[R]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
  pin(c);
}

/// Zeros for an accumulator, each by an instruction of its own: of one zero that is copied later products would wait.
template <int R>
HEED_DEVICE void make_zeros(float (&c)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i) asm volatile("mov.f32 %0, 0f00000000;" : "=f"(c[i]));
}

template <class T, int N>
struct Wgmma;

// clang-format off
#define HEED_R0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define HEED_R8 "%8,%9,%10,%11,%12,%13,%14,%15"
#define HEED_R16 "%16,%17,%18,%19,%20,%21,%22,%23"
#define HEED_R24 "%24,%25,%26,%27,%28,%29,%30,%31"
#define HEED_R32 "%32,%33,%34,%35,%36,%37,%38,%39"
#define HEED_R40 "%40,%41,%42,%43,%44,%45,%46,%47"
#define HEED_R48 "%48,%49,%50,%51,%52,%53,%54,%55"
#define HEED_R56 "%56,%57,%58,%59,%60,%61,%62,%63"
#define HEED_R64 "%64,%65,%66,%67,%68,%69,%70,%71"
#define HEED_R72 "%72,%73,%74,%75,%76,%77,%78,%79"
#define HEED_R80 "%80,%81,%82,%83,%84,%85,%86,%87"
#define HEED_R88 "%88,%89,%90,%91,%92,%93,%94,%95"
#define HEED_R96 "%96,%97,%98,%99,%100,%101,%102,%103"
#define HEED_R104 "%104,%105,%106,%107,%108,%109,%110,%111"
#define HEED_R112 "%112,%113,%114,%115,%116,%117,%118,%119"
#define HEED_R120 "%120,%121,%122,%123,%124,%125,%126,%127"
#define HEED_C8(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
#define HEED_LIST8 HEED_R0
#define HEED_REGS8(c) HEED_C8(c, 0)
#define HEED_LIST16 HEED_LIST8 "," HEED_R8
#define HEED_REGS16(c) HEED_REGS8(c), HEED_C8(c, 8)
#define HEED_LIST24 HEED_LIST16 "," HEED_R16
#define HEED_REGS24(c) HEED_REGS16(c), HEED_C8(c, 16)
#define HEED_LIST32 HEED_LIST24 "," HEED_R24
#define HEED_REGS32(c) HEED_REGS24(c), HEED_C8(c, 24)
#define HEED_LIST40 HEED_LIST32 "," HEED_R32
#define HEED_REGS40(c) HEED_REGS32(c), HEED_C8(c, 32)
#define HEED_LIST48 HEED_LIST40 "," HEED_R40
#define HEED_REGS48(c) HEED_REGS40(c), HEED_C8(c, 40)
#define HEED_LIST56 HEED_LIST48 "," HEED_R48
#define HEED_REGS56(c) HEED_REGS48(c), HEED_C8(c, 48)
#define HEED_LIST64 HEED_LIST56 "," HEED_R56
#define HEED_REGS64(c) HEED_REGS56(c), HEED_C8(c, 56)
#define HEED_LIST72 HEED_LIST64 "," HEED_R64
#define HEED_REGS72(c) HEED_REGS64(c), HEED_C8(c, 64)
#define HEED_LIST80 HEED_LIST72 "," HEED_R72
#define HEED_REGS80(c) HEED_REGS72(c), HEED_C8(c, 72)
#define HEED_LIST88 HEED_LIST80 "," HEED_R80
#define HEED_REGS88(c) HEED_REGS80(c), HEED_C8(c, 80)
#define HEED_LIST96 HEED_LIST88 "," HEED_R88
#define HEED_REGS96(c) HEED_REGS88(c), HEED_C8(c, 88)
#define HEED_LIST104 HEED_LIST96 "," HEED_R96
#define HEED_REGS104(c) HEED_REGS96(c), HEED_C8(c, 96)
#define HEED_LIST112 HEED_LIST104 "," HEED_R104
#define HEED_REGS112(c) HEED_REGS104(c), HEED_C8(c, 104)
#define HEED_LIST120 HEED_LIST112 "," HEED_R112
#define HEED_REGS120(c) HEED_REGS112(c), HEED_C8(c, 112)
#define HEED_LIST128 HEED_LIST120 "," HEED_R120
#define HEED_REGS128(c) HEED_REGS120(c), HEED_C8(c, 120)
#define HEED_W8(c, i) "=f"(c[i]), "=f"(c[i + 1]), "=f"(c[i + 2]), "=f"(c[i + 3]), "=f"(c[i + 4]), "=f"(c[i + 5]), "=f"(c[i + 6]), "=f"(c[i + 7])
#define HEED_OUT16(c) HEED_W8(c, 0), HEED_W8(c, 8)
#define HEED_OUT24(c) HEED_OUT16(c), HEED_W8(c, 16)
#define HEED_OUT32(c) HEED_OUT24(c), HEED_W8(c, 24)
#define HEED_OUT48(c) HEED_OUT32(c), HEED_W8(c, 32), HEED_W8(c, 40)
#define HEED_OUT64(c) HEED_OUT48(c), HEED_W8(c, 48), HEED_W8(c, 56)
// clang-format on

// The operands behind R accumulator registers are numbered a = R, b = R + 1, ...
#define HEED_WGMMA(T, N, R, a, b, c, d, e, f, g)                                                                       \
  template <>                                                                                                          \
  struct Wgmma<T, N> {                                                                                                 \
    /* C = accumulate * C + A [64 x 16, shared] * B [N x 16, shared]^T. kRowsAreK: B is stored as 16 x N, N contiguous. */ \
    template <bool kRowsAreK = false>                                                                                  \
    HEED_DEVICE void shared_shared(float (&acc)[R], u64 a_operand, u64 b_operand, int accumulate) {                     \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #c ", 0;\n"                                                    \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" HEED_LIST##R "}, %" #a ", %" #b    \
                   ", p, 1, 1, 0, %" #d ";\n}"                                                                         \
                   : HEED_REGS##R(acc)                                                                                 \
                   : "l"(a_operand), "l"(b_operand), "r"(accumulate), "n"(kRowsAreK ? 1 : 0));                         \
    }                                                                                                                  \
    /* The same with A in registers. kRowsAreK: B is stored as 16 x N, N contiguous. */                                 \
    template <bool kRowsAreK>                                                                                          \
    HEED_DEVICE void registers_shared(float (&acc)[R], u32 a0, u32 a1, u32 a2, u32 a3, u64 b_operand,                   \
                                      int accumulate) {                                                                \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #f ", 0;\n"                                                    \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" HEED_LIST##R "}, {%" #a ", %" #b   \
                   ", %" #c ", %" #d "}, %" #e ", p, 1, 1, %" #g ";\n}"                                                \
                   : HEED_REGS##R(acc)                                                                                 \
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b_operand), "r"(accumulate), "n"(kRowsAreK ? 1 : 0));     \
    }                                                                                                                  \
  };
HEED_WGMMA(f16, 32, 16, 16, 17, 18, 19, 20, 21, 22)
HEED_WGMMA(bf16, 32, 16, 16, 17, 18, 19, 20, 21, 22)
HEED_WGMMA(f16, 64, 32, 32, 33, 34, 35, 36, 37, 38)
HEED_WGMMA(bf16, 64, 32, 32, 33, 34, 35, 36, 37, 38)
HEED_WGMMA(f16, 80, 40, 40, 41, 42, 43, 44, 45, 46)
HEED_WGMMA(bf16, 80, 40, 40, 41, 42, 43, 44, 45, 46)
HEED_WGMMA(f16, 96, 48, 48, 49, 50, 51, 52, 53, 54)
HEED_WGMMA(bf16, 96, 48, 48, 49, 50, 51, 52, 53, 54)
HEED_WGMMA(f16, 112, 56, 56, 57, 58, 59, 60, 61, 62)
HEED_WGMMA(bf16, 112, 56, 56, 57, 58, 59, 60, 61, 62)
HEED_WGMMA(f16, 128, 64, 64, 65, 66, 67, 68, 69, 70)
HEED_WGMMA(bf16, 128, 64, 64, 65, 66, 67, 68, 69, 70)
HEED_WGMMA(f16, 144, 72, 72, 73, 74, 75, 76, 77, 78)
HEED_WGMMA(bf16, 144, 72, 72, 73, 74, 75, 76, 77, 78)
HEED_WGMMA(f16, 160, 80, 80, 81, 82, 83, 84, 85, 86)
HEED_WGMMA(bf16, 160, 80, 80, 81, 82, 83, 84, 85, 86)
HEED_WGMMA(f16, 176, 88, 88, 89, 90, 91, 92, 93, 94)
HEED_WGMMA(bf16, 176, 88, 88, 89, 90, 91, 92, 93, 94)
HEED_WGMMA(f16, 192, 96, 96, 97, 98, 99, 100, 101, 102)
HEED_WGMMA(bf16, 192, 96, 96, 97, 98, 99, 100, 101, 102)
HEED_WGMMA(f16, 208, 104, 104, 105, 106, 107, 108, 109, 110)
HEED_WGMMA(bf16, 208, 104, 104, 105, 106, 107, 108, 109, 110)
HEED_WGMMA(f16, 224, 112, 112, 113, 114, 115, 116, 117, 118)
HEED_WGMMA(bf16, 224, 112, 112, 113, 114, 115, 116, 117, 118)
HEED_WGMMA(f16, 256, 128, 128, 129, 130, 131, 132, 133, 134)
HEED_WGMMA(bf16, 256, 128, 128, 129, 130, 131, 132, 133, 134)

/// C [64 x N] = A [64 x 16, registers] * B [16 x N, shared, N contiguous]. What C held before is not kept alive.
template <class T, int N>
struct WgmmaFirst;

#define HEED_WGMMA_FIRST(T, N, R, a, b, c, d, e)                                                                       \
  template <>                                                                                                          \
  struct WgmmaFirst<T, N> {                                                                                            \
    HEED_DEVICE void registers_shared(float (&acc)[R], u32 a0, u32 a1, u32 a2, u32 a3, u64 b_operand) {                 \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"                                                          \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" HEED_LIST##R "}, {%" #a ", %" #b   \
                   ", %" #c ", %" #d "}, %" #e ", p, 1, 1, 1;\n}"                                                      \
                   : HEED_OUT##R(acc)                                                                                  \
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b_operand));                                              \
    }                                                                                                                  \
  };
HEED_WGMMA_FIRST(f16, 64, 32, 32, 33, 34, 35, 36)
HEED_WGMMA_FIRST(bf16, 64, 32, 32, 33, 34, 35, 36)
HEED_WGMMA_FIRST(f16, 128, 64, 64, 65, 66, 67, 68)
HEED_WGMMA_FIRST(bf16, 128, 64, 64, 65, 66, 67, 68)

// Products of two operands in shared memory, either of which may be stored with K as its rows ("columns": its 64 or N
// elements are the contiguous dimension). `first` does not read the accumulator: what it held before is not kept alive.
template <class T, int N>
struct WgmmaMajor;

#define HEED_WGMMA_MAJOR(T, N, R, a, b, c, d)                                                                          \
  template <>                                                                                                          \
  struct WgmmaMajor<T, N> {                                                                                            \
    template <bool kAColumns, bool kBColumns>                                                                          \
    HEED_DEVICE void first(float (&acc)[R], u64 a_operand, u64 b_operand) {                                             \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"                                                          \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" HEED_LIST##R "}, %" #a ", %" #b    \
                   ", p, 1, 1, %" #c ", %" #d ";\n}"                                                                   \
                   : HEED_OUT##R(acc)                                                                                  \
                   : "l"(a_operand), "l"(b_operand), "n"(kAColumns ? 1 : 0), "n"(kBColumns ? 1 : 0));                  \
    }                                                                                                                  \
    template <bool kAColumns, bool kBColumns>                                                                          \
    HEED_DEVICE void add(float (&acc)[R], u64 a_operand, u64 b_operand) {                                               \
      asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                                          \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" HEED_LIST##R "}, %" #a ", %" #b    \
                   ", p, 1, 1, %" #c ", %" #d ";\n}"                                                                   \
                   : HEED_REGS##R(acc)                                                                                 \
                   : "l"(a_operand), "l"(b_operand), "n"(kAColumns ? 1 : 0), "n"(kBColumns ? 1 : 0));                  \
    }                                                                                                                  \
  };
HEED_WGMMA_MAJOR(f16, 32, 16, 16, 17, 18, 19)
HEED_WGMMA_MAJOR(bf16, 32, 16, 16, 17, 18, 19)
HEED_WGMMA_MAJOR(f16, 48, 24, 24, 25, 26, 27)
HEED_WGMMA_MAJOR(bf16, 48, 24, 24, 25, 26, 27)
HEED_WGMMA_MAJOR(f16, 64, 32, 32, 33, 34, 35)
HEED_WGMMA_MAJOR(bf16, 64, 32, 32, 33, 34, 35)
HEED_WGMMA_MAJOR(f16, 96, 48, 48, 49, 50, 51)
HEED_WGMMA_MAJOR(bf16, 96, 48, 48, 49, 50, 51)
HEED_WGMMA_MAJOR(f16, 128, 64, 64, 65, 66, 67)
HEED_WGMMA_MAJOR(bf16, 128, 64, 64, 65, 66, 67)

/// The same with f16 accumulators, two to a register: register i holds what registers 2 * i and 2 * i + 1 hold above.
template <int N>
struct WgmmaHalf;

// clang-format off
#define HEED_H8(c, i) "+r"(c[i]), "+r"(c[i + 1]), "+r"(c[i + 2]), "+r"(c[i + 3]), "+r"(c[i + 4]), "+r"(c[i + 5]), "+r"(c[i + 6]), "+r"(c[i + 7])
#define HEED_HALF8(c) HEED_H8(c, 0)
#define HEED_HALF16(c) HEED_HALF8(c), HEED_H8(c, 8)
#define HEED_HALF24(c) HEED_HALF16(c), HEED_H8(c, 16)
#define HEED_HALF32(c) HEED_HALF24(c), HEED_H8(c, 24)
#define HEED_HALF40(c) HEED_HALF32(c), HEED_H8(c, 32)
#define HEED_HALF48(c) HEED_HALF40(c), HEED_H8(c, 40)
#define HEED_HALF64(c) HEED_HALF48(c), HEED_H8(c, 48), HEED_H8(c, 56)
// clang-format on
#define HEED_WGMMA_HALF(N, R, a, b, c, d, e, f, g)                                                                     \
  template <>                                                                                                          \
  struct WgmmaHalf<N> {                                                                                                \
    template <bool kRowsAreK = false>                                                                                  \
    HEED_DEVICE void shared_shared(u32 (&acc)[R], u64 a_operand, u64 b_operand, int accumulate) {                       \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #c ", 0;\n"                                                    \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f16.f16.f16 {" HEED_LIST##R "}, %" #a ", %" #b          \
                   ", p, 1, 1, 0, %" #d ";\n}"                                                                         \
                   : HEED_HALF##R(acc)                                                                                 \
                   : "l"(a_operand), "l"(b_operand), "r"(accumulate), "n"(kRowsAreK ? 1 : 0));                         \
    }                                                                                                                  \
    template <bool kRowsAreK>                                                                                          \
    HEED_DEVICE void registers_shared(u32 (&acc)[R], u32 a0, u32 a1, u32 a2, u32 a3, u64 b_operand, int accumulate) {   \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #f ", 0;\n"                                                    \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f16.f16.f16 {" HEED_LIST##R "}, {%" #a ", %" #b         \
                   ", %" #c ", %" #d "}, %" #e ", p, 1, 1, %" #g ";\n}"                                                \
                   : HEED_HALF##R(acc)                                                                                 \
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b_operand), "r"(accumulate), "n"(kRowsAreK ? 1 : 0));     \
    }                                                                                                                  \
  };
HEED_WGMMA_HALF(32, 8, 8, 9, 10, 11, 12, 13, 14)
HEED_WGMMA_HALF(64, 16, 16, 17, 18, 19, 20, 21, 22)
HEED_WGMMA_HALF(96, 24, 24, 25, 26, 27, 28, 29, 30)
HEED_WGMMA_HALF(128, 32, 32, 33, 34, 35, 36, 37, 38)
HEED_WGMMA_HALF(160, 40, 40, 41, 42, 43, 44, 45, 46)
HEED_WGMMA_HALF(192, 48, 48, 49, 50, 51, 52, 53, 54)
HEED_WGMMA_HALF(256, 64, 64, 65, 66, 67, 68, 69, 70)

}  // namespace heed::kernels
