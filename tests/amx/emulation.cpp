#include "amx/emulation.hpp"
#include "amx/instruction.hpp"
#include "amx/tiles.hpp"

#include <signal.h>
#include <ucontext.h>

namespace heed::amx {
namespace {

// What a signal handler may touch: there from the start, in the executable's own block of thread-local memory.
constinit thread_local Tiles g_tiles;
constinit struct sigaction g_before {};
constinit bool g_emulated = false;

GeneralRegisters general_registers(const gregset_t& saved) {
  constexpr int kPlaces[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                             REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  GeneralRegisters registers;
  for (std::size_t i = 0; i < registers.size(); ++i) registers[i] = static_cast<std::uint64_t>(saved[kPlaces[i]]);
  return registers;
}

/// Executes what is at the instruction pointer, and goes on while more of the kind follows: a signal takes much longer
/// than most of them. None changes a general register. Returns false if there was nothing to execute.
bool execute_from(gregset_t& saved) {
  const GeneralRegisters registers = general_registers(saved);
  for (bool any = false;; any = true) {
    const auto instruction = decode(reinterpret_cast<const std::uint8_t*>(saved[REG_RIP]), registers);
    if (!instruction) return any;
    execute(*instruction, g_tiles);
    saved[REG_RIP] += instruction->bytes;
  }
}

void on_illegal_instruction(int signal, siginfo_t* info, void* context) {
  const bool sent = info->si_code <= 0;  // by somebody, not by an instruction
  if (!sent && execute_from(static_cast<ucontext_t*>(context)->uc_mcontext.gregs)) return;
  // The instruction is met again and ends as it would have without us.
  sigaction(signal, &g_before, nullptr);
  if (sent) raise(signal);
}

bool emulate() {
  struct sigaction action {};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO;
  g_emulated = sigaction(SIGILL, &action, &g_before) == 0;
  return g_emulated;
}

}  // namespace

// The linker puts the second of these into the place of heed::cpu::may_use_tile_registers, which the first one then is
// (--wrap). heed asks once, and only where there is AVX-512 BF16.
bool may_really_use_tile_registers() asm("__real_" HEED_WRAPPED);
bool may_use_tile_registers() asm("__wrap_" HEED_WRAPPED);
bool may_use_tile_registers() { return may_really_use_tile_registers() || emulate(); }

bool emulated() { return g_emulated; }

}  // namespace heed::amx
