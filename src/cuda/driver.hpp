#pragma once

#include "cuda/driver_types.hpp"

#include <heed/error.hpp>

#include <cstddef>
#include <string>
#include <string_view>

/// What heed calls in the driver: name as in the driver's manual, CUDA version whose form of it is meant, name of that
/// form in libcuda (for drivers that cannot be asked by version), its parameters.
// clang-format off
#define HEED_CUDA_ENTRIES(ENTRY)                                                                                        \
  ENTRY(cuInit, 2000, "cuInit", (unsigned))                                                                             \
  ENTRY(cuDriverGetVersion, 2020, "cuDriverGetVersion", (int*))                                                         \
  ENTRY(cuGetErrorName, 6000, "cuGetErrorName", (CUresult, const char**))                                               \
  ENTRY(cuGetErrorString, 6000, "cuGetErrorString", (CUresult, const char**))                                           \
  ENTRY(cuDeviceGetCount, 2000, "cuDeviceGetCount", (int*))                                                             \
  ENTRY(cuDeviceGet, 2000, "cuDeviceGet", (CUdevice*, int))                                                             \
  ENTRY(cuDeviceGetName, 2000, "cuDeviceGetName", (char*, int, CUdevice))                                               \
  ENTRY(cuDeviceGetAttribute, 2000, "cuDeviceGetAttribute", (int*, DeviceAttribute, CUdevice))                          \
  ENTRY(cuDeviceTotalMem, 3020, "cuDeviceTotalMem_v2", (std::size_t*, CUdevice))                                        \
  ENTRY(cuDevicePrimaryCtxRetain, 7000, "cuDevicePrimaryCtxRetain", (CUcontext*, CUdevice))                             \
  ENTRY(cuCtxGetCurrent, 4000, "cuCtxGetCurrent", (CUcontext*))                                                         \
  ENTRY(cuCtxPushCurrent, 4000, "cuCtxPushCurrent_v2", (CUcontext))                                                     \
  ENTRY(cuCtxPopCurrent, 4000, "cuCtxPopCurrent_v2", (CUcontext*))                                                      \
  ENTRY(cuCtxGetDevice, 2000, "cuCtxGetDevice", (CUdevice*))                                                            \
  ENTRY(cuCtxSynchronize, 2000, "cuCtxSynchronize", ())                                                                 \
  ENTRY(cuModuleLoadDataEx, 2010, "cuModuleLoadDataEx", (CUmodule*, const void*, unsigned, int*, void**))               \
  ENTRY(cuModuleUnload, 2000, "cuModuleUnload", (CUmodule))                                                             \
  ENTRY(cuModuleGetFunction, 2000, "cuModuleGetFunction", (CUfunction*, CUmodule, const char*))                         \
  ENTRY(cuFuncSetAttribute, 9000, "cuFuncSetAttribute", (CUfunction, FunctionAttribute, int))                           \
  ENTRY(cuLaunchKernel, 4000, "cuLaunchKernel",                                                                         \
        (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**))   \
  ENTRY(cuTensorMapEncodeTiled, 12000, "cuTensorMapEncodeTiled",                                                        \
        (CUtensorMap*, TensorMapType, unsigned, void*, const std::uint64_t*, const std::uint64_t*,                      \
         const std::uint32_t*, const std::uint32_t*, TensorMapInterleave, TensorMapSwizzle, TensorMapL2, TensorMapFill))\
  ENTRY(cuPointerGetAttributes, 7000, "cuPointerGetAttributes", (unsigned, PointerAttribute*, void**, CUdeviceptr))     \
  ENTRY(cuMemAlloc, 3020, "cuMemAlloc_v2", (CUdeviceptr*, std::size_t))                                                 \
  ENTRY(cuMemFree, 3020, "cuMemFree_v2", (CUdeviceptr))                                                                 \
  ENTRY(cuMemAllocManaged, 6000, "cuMemAllocManaged", (CUdeviceptr*, std::size_t, unsigned))                            \
  ENTRY(cuMemcpyHtoD, 3020, "cuMemcpyHtoD_v2", (CUdeviceptr, const void*, std::size_t))                                 \
  ENTRY(cuMemcpyDtoH, 3020, "cuMemcpyDtoH_v2", (void*, CUdeviceptr, std::size_t))                                       \
  ENTRY(cuMemcpyHtoDAsync, 3020, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void*, std::size_t, CUstream))             \
  ENTRY(cuMemcpyDtoHAsync, 3020, "cuMemcpyDtoHAsync_v2", (void*, CUdeviceptr, std::size_t, CUstream))                   \
  ENTRY(cuMemsetD8Async, 3020, "cuMemsetD8Async", (CUdeviceptr, unsigned char, std::size_t, CUstream))                  \
  ENTRY(cuStreamCreate, 2000, "cuStreamCreate", (CUstream*, unsigned))                                                  \
  ENTRY(cuStreamDestroy, 4000, "cuStreamDestroy_v2", (CUstream))                                                        \
  ENTRY(cuStreamSynchronize, 2000, "cuStreamSynchronize", (CUstream))                                                   \
  ENTRY(cuStreamIsCapturing, 10000, "cuStreamIsCapturing", (CUstream, CaptureStatus*))                                  \
  ENTRY(cuStreamBeginCapture, 10010, "cuStreamBeginCapture_v2", (CUstream, CaptureMode))                                \
  ENTRY(cuStreamEndCapture, 10000, "cuStreamEndCapture", (CUstream, CUgraph*))                                          \
  ENTRY(cuThreadExchangeStreamCaptureMode, 10010, "cuThreadExchangeStreamCaptureMode", (CaptureMode*))                  \
  ENTRY(cuGraphInstantiateWithFlags, 11040, "cuGraphInstantiateWithFlags", (CUgraphExec*, CUgraph, unsigned long long)) \
  ENTRY(cuGraphLaunch, 10000, "cuGraphLaunch", (CUgraphExec, CUstream))                                                 \
  ENTRY(cuGraphDestroy, 10000, "cuGraphDestroy", (CUgraph))                                                             \
  ENTRY(cuGraphExecDestroy, 10000, "cuGraphExecDestroy", (CUgraphExec))                                                 \
  ENTRY(cuEventCreate, 2000, "cuEventCreate", (CUevent*, unsigned))                                                     \
  ENTRY(cuEventRecord, 2000, "cuEventRecord", (CUevent, CUstream))                                                      \
  ENTRY(cuEventSynchronize, 2000, "cuEventSynchronize", (CUevent))                                                      \
  ENTRY(cuEventElapsedTime, 2000, "cuEventElapsedTime", (float*, CUevent, CUevent))                                     \
  ENTRY(cuEventDestroy, 4000, "cuEventDestroy_v2", (CUevent))
// clang-format on

namespace heed::cuda {

/// The driver of this machine as a table of functions, opened at run time: driver->cuMemAlloc(&pointer, bytes).
class Driver {
 public:
  /// Opened, checked and initialised at the first call; null where there is none that heed can use.
  static const Driver* get();
  /// Why there is none, and what to install; empty when there is one.
  static const std::string& missing();
  /// Also one that heed cannot use (too old, say), which others in this process may: whatever of it is there. Null
  /// where there is no libcuda.
  static const Driver* library();

  /// CUDA version of the driver as the driver writes it: 13000 is 13.0.
  int version() const { return version_; }

#define HEED_CUDA_MEMBER(name, version, symbol, parameters) CUresult(*name) parameters = nullptr;
  HEED_CUDA_ENTRIES(HEED_CUDA_MEMBER)
#undef HEED_CUDA_MEMBER

 private:
  struct Opened;
  static const Opened& opened();
  /// Empty when everything went well.
  std::string open();

  int version_ = 0;
};

/// "13.0" of 13000.
std::string version_text(int cuda_version);

/// `doing` says what was being done: "loading kernel forward_hopper_f16_d128".
Error error_of(CUresult result, std::string_view doing);

/// Throws error_of(...) unless `result` is success.
inline void check(CUresult result, std::string_view doing) {
  if (result != kSuccess) [[unlikely]]
    throw error_of(result, doing);
}

/// True for errors after which nothing works any more in this process.
bool is_sticky(CUresult result);

}  // namespace heed::cuda
