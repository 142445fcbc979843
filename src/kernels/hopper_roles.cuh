// Hopper kernels have warpgroups of two roles: the first one copies, the others compute. When the roles part, the copying
// warps give registers back, and the others take them.
#pragma once

#include "numbers.cuh"
#include "ptx.cuh"

namespace heed::kernels {

/// Whether the launch of C has the registers that its roles keep and take. It is given an equal number for each thread, a
/// multiple of 8, and who takes more than the others have left waits without end.
template <auto C>
constexpr bool launch_has_registers() {
  const int of_a_thread = 65536 / C.threads() / 8 * 8;
  return 128 * C.copy_registers() + (C.threads() - 128) * C.math_registers() <= of_a_thread * C.threads();
}

template <auto C>
HEED_DEVICE void begin_copying() {
  static_assert(launch_has_registers<C>());
  fewer_registers<C.copy_registers()>();
}
template <auto C>
HEED_DEVICE void begin_computing() {
  static_assert(launch_has_registers<C>());
  more_registers<C.math_registers()>();
}

}  // namespace heed::kernels
