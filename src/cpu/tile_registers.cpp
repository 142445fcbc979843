#include "cpu/tile_registers.hpp"

#if HEED_X86

#include "cpu/cpuid.hpp"

#include <sys/syscall.h>
#include <unistd.h>

namespace heed::cpu {
namespace {

/// Tile registers are large: Linux hands them out to processes that ask.
bool request_tile_registers() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool may_use_tile_registers() {
  const CpuidWords extended = cpuid(7);
  const bool amx = bit(extended.d, 22) && bit(extended.d, 24);  // AMX-BF16, AMX-TILE
  const std::uint64_t saved = saved_states();
  return amx && bit(saved, 17) && bit(saved, 18) && request_tile_registers();
}

}  // namespace heed::cpu

#endif
