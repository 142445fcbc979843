// Integers by their size, and what device functions are declared with.
#pragma once

namespace heed::kernels {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

#define HEED_DEVICE static __device__ __forceinline__

}  // namespace heed::kernels
