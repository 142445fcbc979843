#pragma once

#include "cuda/driver_types.hpp"

#include <cstddef>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace heed::cuda {

/// Workspaces in GPU memory for calls that bring none: one for every stream, since work on a stream follows in order,
/// and one of its own for every call that is captured into a graph, which may be replayed at any time on any stream.
/// All bytes are zero at first. Memory is given back with the object; a workspace that grew keeps its old memory until
/// then, because work in flight or a graph may still use it: all in all at most three times the last.
class DeviceScratch {
 public:
  DeviceScratch() = default;
  ~DeviceScratch();
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  /// The device's context is current.
  std::span<std::byte> take(int device, CUstream stream, std::size_t bytes);

 private:
  std::span<std::byte> allocate(int device, std::size_t bytes);

  std::mutex mutex_;
  std::map<std::pair<int, CUstream>, std::span<std::byte>> of_stream_;
  std::vector<std::pair<int, CUdeviceptr>> allocations_;
};

}  // namespace heed::cuda
