// AMX on CPUs without it: the signal that such an instruction raises is answered by executing it.
#pragma once

namespace heed::amx {

/// Whether this process has tiles only because they are emulated. They are wherever the CPU has AVX-512 BF16 and no
/// AMX, from the moment on in which heed asks what the machine can run.
#if HEED_X86
bool emulated();
#else
constexpr bool emulated() { return false; }
#endif

}  // namespace heed::amx
