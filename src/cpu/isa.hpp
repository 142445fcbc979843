#pragma once

#include "dispatch/arch.hpp"

#include <array>
#include <cstdint>
#include <string>

namespace heed::cpu {

/// What this machine can run, found by exact feature bits: the CPU's and the operating system's word on each.
struct Machine {
  std::array<bool, dispatch::kCpuIsaCount>
      has{};          ///< indexed by CpuIsa; a level is there only with all those before it
  std::string model;  ///< the CPU's name for itself
  /// A thread's share of the second- and third-level caches; 0: not known.
  std::int64_t cache_bytes = 0;

  dispatch::CpuIsa best() const;
};

/// Detected once. Asks the kernel for the AMX tile registers where the CPU has them.
const Machine& machine();

}  // namespace heed::cpu
