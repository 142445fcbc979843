#pragma once

#include "cuda/driver_types.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace heed::cuda {

/// Workspaces in GPU memory for calls that bring none: one for every stream, since work on a stream follows in order,
/// and one of its own for every call that is captured into a graph, which may be replayed at any time on any stream.
/// All bytes are zero at first. Memory is given back with the object. A workspace that grew keeps its old memory until
/// then, because work in flight or a graph may still use it: all in all at most three times the last. So does that of a
/// stream that has ended, or a thread with a stream of its own: nobody says when its work is done.
class DeviceScratch {
 public:
  DeviceScratch() = default;
  ~DeviceScratch();
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  /// The device's context is current.
  std::span<std::byte> take(int device, CUstream stream, std::size_t bytes);

 private:
  /// What tells streams apart: a handle may mean several, and several handles the same.
  struct Stream {
    int device;
    CUstream handle;       ///< null: the default stream, which has another name, too
    std::uint64_t thread;  ///< CU_STREAM_PER_THREAD is one handle for a stream of every thread; 0: all others
    friend auto operator<=>(const Stream&, const Stream&) = default;
  };
  static Stream stream_of(int device, CUstream handle);
  std::span<std::byte> allocate(int device, std::size_t bytes);

  std::mutex mutex_;
  std::map<Stream, std::span<std::byte>> of_stream_;
  std::vector<std::pair<int, CUdeviceptr>> allocations_;
};

}  // namespace heed::cuda
