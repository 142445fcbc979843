// The tile registers of a thread, and what instructions do to them (Intel's manual, volume 2, chapter on AMX).
#pragma once

#include "amx/instruction.hpp"

#include <cstdint>

namespace heed::amx {

// Palette 1, the only one there is.
constexpr int kTiles = 8, kMostRows = 16, kRowBytes = 64;

/// As LDTILECFG reads it and STTILECFG writes it. All zeros: there is no configuration.
struct TileConfig {
  std::uint8_t palette = 0;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[2 * kTiles] = {};  // the second half of both is reserved
  std::uint8_t rows[2 * kTiles] = {};
};
static_assert(sizeof(TileConfig) == 64);

struct Tiles {
  TileConfig config;
  alignas(kRowBytes) std::uint8_t bytes[kTiles][kMostRows][kRowBytes] = {};
};

/// Does what the instruction does. What a CPU would refuse ends the process with a line that says why. Memory is read
/// and written as by any other function: where nothing is mapped the process ends as it does anywhere.
void execute(const Instruction& instruction, Tiles& tiles);

}  // namespace heed::amx
