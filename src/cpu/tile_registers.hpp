#pragma once

namespace heed::cpu {

/// On x86: whether this process may use AMX tiles and their bf16 products: the CPU has them, the operating system saves
/// them and, asked by this function, lets this process have them. Tests put a function of their own into this one's
/// place at link time (tests/amx), so its file is always compiled alone.
bool may_use_tile_registers();

}  // namespace heed::cpu
