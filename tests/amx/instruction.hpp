// The instructions of AMX-TILE and AMX-BF16, read from where they lie.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace heed::amx {

enum class Operation : std::uint8_t {
  load_config,   // LDTILECFG
  store_config,  // STTILECFG
  release,       // TILERELEASE
  zero,          // TILEZERO
  load,          // TILELOADD, and TILELOADDT1, which asks the cache for something else
  store,         // TILESTORED
  products,      // TDPBF16PS
};

/// The instruction as the manual writes it.
const char* name(Operation operation);

/// By the numbers that encodings give them: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
using GeneralRegisters = std::array<std::uint64_t, 16>;

struct Instruction {
  Operation operation = Operation::release;
  int bytes = 0;                 ///< its own length
  int tile = 0;                  ///< that is written, or stored
  int first = 0, second = 0;     ///< tiles that are multiplied
  std::uint64_t address = 0;     ///< of the configuration, or of a tile's first row
  std::uint64_t row_stride = 0;  ///< bytes from a tile's row to the next, in two's complement
};

/// What lies at `code`, or nothing if that is none of these instructions, or one that reads memory by way of another
/// segment or with 32-bit addresses. Reads no byte behind the instruction.
std::optional<Instruction> decode(const std::uint8_t* code, const GeneralRegisters& registers);

}  // namespace heed::amx
