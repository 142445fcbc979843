#pragma once

#include "cuda/driver.hpp"
#include "cuda/jit.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

namespace heed::cuda {

/// A compiled kernel on the GPUs of this machine: loaded where it is first launched, and kept. Its end unloads it: no
/// graph that launches it may be left by then.
class LoadedKernel {
 public:
  static constexpr int kMaxDevices = 64;

  LoadedKernel(std::string name, std::shared_ptr<const CompiledKernel> code, int shared_bytes)
      : name_(std::move(name)), code_(std::move(code)), shared_bytes_(shared_bytes) {}
  ~LoadedKernel();
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;

  /// Loads it on a device now rather than at the first launch. The device's context is made current.
  void load(int device) const { function(device); }

  /// Puts it on the stream of the device whose context is current.
  void launch(int device, unsigned blocks, unsigned threads, CUstream stream, void** parameters) const;

  const Resources& resources() const { return code_->resources; }

 private:
  /// A module belongs to a device's context. Each device has a mutex of its own, because loading may wait for the
  /// device, whose work may wait for what another thread is about to launch on another one.
  struct OnDevice {
    std::mutex mutex;
    std::atomic<CUfunction> function = nullptr;
    CUmodule module = nullptr;
  };
  CUfunction function(int device) const;

  std::string name_;
  std::shared_ptr<const CompiledKernel> code_;
  int shared_bytes_;
  mutable std::array<OnDevice, kMaxDevices> places_{};
};

}  // namespace heed::cuda
