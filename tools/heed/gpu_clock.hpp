#pragma once

#include "cuda/driver_types.hpp"
#include "verify/device_buffers.hpp"

#include <functional>

namespace heed::command {

/// Times what is put on the stream of `device`, by the GPU's own clock: runs are captured into a graph and replayed, so
/// that the host's part of a call does not count.
class GpuClock {
 public:
  /// `run` puts one run on the stream.
  GpuClock(const verify::DeviceBuffers& device, std::function<void()> run);
  GpuClock(const GpuClock&) = delete;
  GpuClock& operator=(const GpuClock&) = delete;
  ~GpuClock();

  /// Seconds that one of `runs` runs takes when they follow each other.
  double seconds(int runs);

 private:
  void capture(int runs);

  const verify::DeviceBuffers& device_;
  std::function<void()> run_;
  cuda::CUevent begin_ = nullptr, end_ = nullptr;
  cuda::CUgraphExec graph_ = nullptr;
  int captured_ = 0;  ///< runs in the graph
};

}  // namespace heed::command
