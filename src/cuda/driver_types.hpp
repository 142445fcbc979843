#pragma once

#include <cstdint>

/// The driver's types and the few of its constants that heed uses, as in cuda.h: heed is built without a toolkit.
/// Enumerations have the driver's values and names of our own.
namespace heed::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = std::uint64_t;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;

/// Results that heed tells from the rest.
enum Result : CUresult {
  kSuccess = 0,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kStubLibrary = 34,
  kNoDevice = 100,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kEccUncorrectable = 214,
  kInvalidPtx = 218,
  kNvlinkUncorrectable = 220,
  kUnsupportedPtxVersion = 222,
  kContained = 226,
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kAssert = 710,
  kHardwareStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidPc = 718,
  kLaunchFailed = 719,
  kTensorMemoryLeak = 721,
  kSystemDriverMismatch = 803,
};

enum class DeviceAttribute : int {
  clock_khz = 13,
  multiprocessors = 16,
  memory_clock_khz = 36,
  memory_bus_bits = 37,
  l2_bytes = 38,
  compute_capability_major = 75,
  compute_capability_minor = 76,
  shared_memory_per_multiprocessor = 81,
  max_shared_memory_per_block = 97,  ///< with cuFuncSetAttribute (max_dynamic_shared_bytes)
};

enum class FunctionAttribute : int { max_dynamic_shared_bytes = 8 };
enum class PointerAttribute : int { memory_type = 2, is_managed = 8, device_ordinal = 9 };
enum class MemoryType : unsigned { unknown = 0, host = 1, device = 2 };

enum class CaptureMode : int { global = 0, thread_local_ = 1, relaxed = 2 };
enum class CaptureStatus : int { none = 0, active = 1, invalidated = 2 };

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kMemAttachGlobal = 1;  ///< of cuMemAllocManaged

/// What TMA is told about a tensor: handed to a kernel by value, as a __grid_constant__ parameter.
struct alignas(64) CUtensorMap {
  std::uint64_t opaque[16];
};

enum class TensorMapType : int { u8 = 0, u16 = 1, u32 = 2, i32 = 3, f16 = 6, f32 = 7, bf16 = 9 };
enum class TensorMapInterleave : int { none = 0 };
enum class TensorMapSwizzle : int { none = 0, bytes_32 = 1, bytes_64 = 2, bytes_128 = 3 };
enum class TensorMapL2 : int { none = 0, bytes_64 = 1, bytes_128 = 2, bytes_256 = 3 };
enum class TensorMapFill : int { zero = 0 };

}  // namespace heed::cuda
