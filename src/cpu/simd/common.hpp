// What every ISA level's vectors share. These headers use nothing of the standard library but fixed-width integers: an
// inline function shared between translation units with different instruction sets could be kept in the wrong one.
#pragma once

#include <stdint.h>

#define HEED_INLINE __attribute__((always_inline)) static inline
#define HEED_INLINE_MEMBER __attribute__((always_inline)) inline
#define HEED_NOINLINE_MEMBER __attribute__((noinline))
#define HEED_NOINLINE __attribute__((noinline, unused)) static  // a level need not use all of them
#define HEED_UNROLL _Pragma("GCC unroll 16")

#ifndef HEED_ISA
#error "define HEED_ISA (the namespace of this instruction set) before including the kernels"
#endif
