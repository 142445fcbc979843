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

/// Workspaces in GPU memory for calls that bring none: one for every stream, where runs follow each other (those of
/// several steps as long as steps() keeps these together), and one of its own for every call that is captured into a
/// graph, which may be replayed at any time on any stream. All bytes are zero at first. Memory is given back with the
/// object. A workspace that grew keeps its old memory until then, because work in flight may still use it: all in all
/// at most three times the last. So does that of a stream that was destroyed: nobody says when its work is done. That
/// of a thread's own stream goes to a thread that comes when it has ended, which waits for the GPU once.
class DeviceScratch {
 public:
  DeviceScratch() = default;
  ~DeviceScratch();
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  /// The device's context is current.
  std::span<std::byte> take(int device, CUstream stream, std::size_t bytes);

  /// Held while the steps of a run are put on a stream. They share a workspace: those of another thread's run may not
  /// come between them. (Runs of one step may, which leave all but the counters alone.) Each stream has its own mutex,
  /// because a launch may wait until its GPU has room for it, and that for what another thread is about to launch on
  /// another one.
  std::mutex& steps(int device, CUstream stream);

 private:
  /// What tells streams apart: a handle may mean several, and several handles the same.
  struct Stream {
    int device;
    CUstream handle;       ///< null: the default stream, which has another name, too
    std::uint64_t thread;  ///< its number: CU_STREAM_PER_THREAD is one handle for a stream of every thread; 0: others
    friend auto operator<=>(const Stream&, const Stream&) = default;
  };
  struct OfStream {
    std::mutex growing;
    std::span<std::byte> workspace;  ///< guarded by it
    std::uint64_t owner = 0;         ///< likewise: of a thread's own stream which thread has waited for those before it
    std::mutex steps;
  };
  static Stream stream_of(int device, CUstream handle);
  OfStream& of(const Stream& which);
  std::span<std::byte> allocate(int device, std::size_t bytes);

  std::mutex mutex_;  ///< of both; never held while the driver is asked, which may wait for one of the GPUs
  std::map<Stream, OfStream> of_stream_;
  std::vector<std::pair<int, CUdeviceptr>> allocations_;
};

}  // namespace heed::cuda
