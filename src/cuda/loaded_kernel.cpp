#include "cuda/loaded_kernel.hpp"

#include "cuda/device.hpp"

#include <fmt/format.h>

namespace heed::cuda {

LoadedKernel::~LoadedKernel() {
  // At the end of a process the driver may be gone before us: what it says then does not matter.
  const Driver* const driver = Driver::get();
  for (int device = 0; device < kMaxDevices; ++device) {
    const CUmodule module = places_[static_cast<std::size_t>(device)].module;
    if (module == nullptr || driver == nullptr) continue;
    try {
      const DeviceGuard guard(device);
      driver->cuModuleUnload(module);
    } catch (const Error&) {
      continue;
    }
  }
}

CUfunction LoadedKernel::function(int device) const {
  OnDevice& here = places_.at(static_cast<std::size_t>(device));
  if (CUfunction found = here.function.load(std::memory_order_acquire)) return found;
  const std::lock_guard lock(here.mutex);
  if (CUfunction found = here.function.load(std::memory_order_acquire)) return found;
  const Driver& driver = *Driver::get();
  // Loading allocates, which a capture on another stream of this thread would forbid.
  CaptureMode mode = CaptureMode::relaxed;
  driver.cuThreadExchangeStreamCaptureMode(&mode);
  CUmodule module = nullptr;
  CUfunction found = nullptr;
  const std::string doing = "loading kernel " + name_;
  CUresult result = driver.cuModuleLoadDataEx(&module, code_->cubin.data(), 0, nullptr, nullptr);
  if (result == kSuccess) {
    result = driver.cuModuleGetFunction(&found, module, kKernelEntry);
    if (result == kSuccess)
      result = driver.cuFuncSetAttribute(found, FunctionAttribute::max_dynamic_shared_bytes, shared_bytes_);
    if (result != kSuccess) driver.cuModuleUnload(module);  // who asks next tries again
  }
  driver.cuThreadExchangeStreamCaptureMode(&mode);
  check(result, doing);
  here.module = module;
  here.function.store(found, std::memory_order_release);
  return found;
}

void LoadedKernel::launch(int device, unsigned blocks, unsigned threads, CUstream stream, void** parameters) const {
  const CUresult result = Driver::get()->cuLaunchKernel(
      function(device), blocks, 1, 1, threads, 1, 1, static_cast<unsigned>(shared_bytes_), stream, parameters, nullptr);
  if (result != kSuccess) [[unlikely]]
    throw error_of(result, "launching kernel " + name_);
}

}  // namespace heed::cuda
