#pragma once

#include "cuda/driver_types.hpp"

#include <string>
#include <vector>

namespace heed::cuda {

/// What selection and `heed info` want to know about a GPU.
struct Device {
  int ordinal = 0;
  std::string name;  ///< "NVIDIA H200"
  int sm = 0;        ///< compute capability: 90 is 9.0
  int multiprocessors = 0;
  int max_shared_memory = 0;                 ///< bytes for one block, when asked for
  int shared_memory_per_multiprocessor = 0;  ///< bytes
  long long l2_bytes = 0;
  long long memory_bytes = 0;
  int clock_khz = 0;
  double memory_bytes_per_second = 0;  ///< what the memory's clock and width promise; 0 where the driver does not tell
};

/// Those that the driver shows, found once. Empty without a driver.
const std::vector<Device>& devices();

/// Makes a device's primary context (the one the CUDA runtime, and so torch, works in) current on this thread, and puts
/// back what was there, where it was not that one already. The context is made at the first use in this process and
/// kept.
class DeviceGuard {
 public:
  explicit DeviceGuard(int ordinal);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  bool pushed_ = false;
};

/// Where memory lies.
struct PointerPlace {
  enum Kind {
    host,     ///< memory the driver knows nothing of, or null
    pinned,   ///< host memory that was allocated or registered through CUDA: every GPU can read it over the bus
    device,   ///< memory of one GPU
    managed,  ///< moves between host and GPU by itself: counts as both
  };
  Kind kind = host;
  int device_ordinal = -1;  ///< -1 for host

  bool for_host() const { return kind != device; }
  bool for_device(int ordinal) const { return kind == managed || (kind == device && device_ordinal == ordinal); }
};

/// Without a driver everything is host memory.
PointerPlace place_of(const void* pointer);

/// "host memory", "memory of GPU 1", for errors.
std::string to_text(const PointerPlace& place);

}  // namespace heed::cuda
