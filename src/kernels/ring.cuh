// A ring of stages in shared memory, as one of its users walks it.
#pragma once

#include "numbers.cuh"

namespace heed::kernels {

/// A place in a ring of N stages, and the parity of the current turn.
template <int N>
struct Ring {
  u32 stage = 0, phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == N) {
      stage = 0;
      phase ^= 1;
    }
  }
};
/// The same, of a user's turn number so-and-so.
template <int N>
struct RingTurn {
  u32 stage, phase;
  __device__ __forceinline__ explicit RingTurn(u32 number) : stage(number % N), phase(number / N & 1) {}
};

}  // namespace heed::kernels
