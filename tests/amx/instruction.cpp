#include "amx/instruction.hpp"

#include <cstring>

namespace heed::amx {
namespace {

enum class Prefix : std::uint8_t { none, x66, f3, f2 };

/// The three-byte form, which alone reaches these opcodes; with its inverted bits turned round.
struct Vex {
  static constexpr int kBytes = 3;
  bool r = false, x = false, b = false;
  int operand = 0;
  Prefix prefix = Prefix::none;
};

/// VEX.128 W0 of the opcodes behind 0F 38.
std::optional<Vex> read_vex(const std::uint8_t* code) {
  constexpr int kEscape = 0xC4, kMap0f38 = 2, kMap = 0x1F, kWideOrLong = 0x84;
  if (code[0] != kEscape || (code[1] & kMap) != kMap0f38 || (code[2] & kWideOrLong) != 0) return {};
  const int inverted = ~code[1];
  return Vex{.r = (inverted & 0x80) != 0,
             .x = (inverted & 0x40) != 0,
             .b = (inverted & 0x20) != 0,
             .operand = ~code[2] >> 3 & 0xF,
             .prefix = static_cast<Prefix>(code[2] & 3)};
}

struct ModRm {
  int mod, reg, rm;
};
ModRm read_modrm(std::uint8_t byte) { return {byte >> 6, byte >> 3 & 7, byte & 7}; }

constexpr int kRegister = 3;  // of mod
constexpr int kSib = 4;       // of rm: a SIB byte follows

/// Where a memory operand is, in the parts that tile loads use by themselves.
struct Memory {
  std::uint64_t begin = 0;   // base and displacement
  std::uint64_t scaled = 0;  // index times scale
  const std::uint8_t* end = nullptr;
};

std::uint64_t displacement(const std::uint8_t* at, int bytes) {
  std::int8_t narrow = 0;
  std::int32_t wide = 0;
  if (bytes == 1) std::memcpy(&narrow, at, sizeof narrow);
  if (bytes == 4) std::memcpy(&wide, at, sizeof wide);
  return static_cast<std::uint64_t>(std::int64_t{narrow} + wide);
}

/// `at` is the byte behind ModRM.
Memory read_memory(const std::uint8_t* at, const Vex& vex, ModRm modrm, const GeneralRegisters& registers) {
  constexpr int kNoIndex = 4, kNoBase = 5;
  Memory memory;
  int base = modrm.rm;
  if (modrm.rm == kSib) {
    const ModRm sib = read_modrm(*at++);  // scale, index, base
    const int index = sib.reg + (vex.x ? 8 : 0);
    if (index != kNoIndex) memory.scaled = registers[static_cast<std::size_t>(index)] << sib.mod;
    base = sib.rm;
  }
  const bool without_base = modrm.mod == 0 && base == kNoBase;
  const int bytes = modrm.mod == 2 || without_base ? 4 : modrm.mod;
  memory.begin = displacement(at, bytes);
  memory.end = at + bytes;
  if (!without_base)
    memory.begin += registers[static_cast<std::size_t>(base + (vex.b ? 8 : 0))];
  else if (modrm.rm != kSib)
    memory.begin += reinterpret_cast<std::uintptr_t>(memory.end);  // relative to the next instruction
  return memory;
}

}  // namespace

const char* name(Operation operation) {
  constexpr const char* kNames[] = {"LDTILECFG", "STTILECFG",  "TILERELEASE", "TILEZERO",
                                    "TILELOADD", "TILESTORED", "TDPBF16PS"};
  return kNames[static_cast<int>(operation)];
}

std::optional<Instruction> decode(const std::uint8_t* code, const GeneralRegisters& registers) {
  const std::optional<Vex> vex = read_vex(code);
  if (!vex || vex->r) return {};  // there are eight tiles
  const std::uint8_t opcode = code[Vex::kBytes];
  if (opcode != 0x49 && opcode != 0x4B && opcode != 0x5C) return {};
  const std::uint8_t* const behind = code + Vex::kBytes + 2;
  const ModRm modrm = read_modrm(behind[-1]);

  const auto in_registers = [&](Operation operation) -> std::optional<Instruction> {
    return Instruction{.operation = operation, .bytes = Vex::kBytes + 2, .tile = modrm.reg};
  };
  const auto in_memory = [&](Operation operation) -> std::optional<Instruction> {
    const Memory memory = read_memory(behind, *vex, modrm, registers);
    const bool rows = operation == Operation::load || operation == Operation::store;
    return Instruction{.operation = operation,
                       .bytes = static_cast<int>(memory.end - code),
                       .tile = modrm.reg,
                       .address = memory.begin + (rows ? 0 : memory.scaled),
                       .row_stride = rows ? memory.scaled : 0};
  };

  if (opcode == 0x5C) {
    if (vex->prefix != Prefix::f3 || modrm.mod != kRegister || vex->b || vex->operand >= 8) return {};
    std::optional<Instruction> products = in_registers(Operation::products);
    products->first = modrm.rm;
    products->second = vex->operand;
    return products;
  }
  if (vex->operand != 0) return {};
  if (opcode == 0x4B) {
    if (modrm.mod == kRegister || modrm.rm != kSib || vex->prefix == Prefix::none) return {};
    return in_memory(vex->prefix == Prefix::f3 ? Operation::store : Operation::load);
  }
  if (modrm.mod == kRegister) {
    if (modrm.rm != 0) return {};
    if (vex->prefix == Prefix::f2) return in_registers(Operation::zero);
    if (vex->prefix == Prefix::none && modrm.reg == 0) return in_registers(Operation::release);
    return {};
  }
  if (modrm.reg != 0) return {};
  if (vex->prefix == Prefix::none) return in_memory(Operation::load_config);
  if (vex->prefix == Prefix::x66) return in_memory(Operation::store_config);
  return {};
}

}  // namespace heed::amx
