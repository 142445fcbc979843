#include "cuda/device.hpp"

#include "cuda/driver.hpp"

#include <fmt/format.h>

#include <array>
#include <mutex>

namespace heed::cuda {
namespace {

Device read_device(const Driver& driver, int ordinal) {
  const std::string doing = fmt::format("asking GPU {} what it is", ordinal);
  CUdevice handle = 0;
  check(driver.cuDeviceGet(&handle, ordinal), doing);
  const auto attribute = [&](DeviceAttribute which) {
    int value = 0;
    check(driver.cuDeviceGetAttribute(&value, which, handle), doing);
    return value;
  };
  std::array<char, 256> name{};
  check(driver.cuDeviceGetName(name.data(), static_cast<int>(name.size()), handle), doing);
  std::size_t memory = 0;
  check(driver.cuDeviceTotalMem(&memory, handle), doing);

  constexpr double kTransfersPerClock = 2;
  return {.ordinal = ordinal,
          .name = name.data(),
          .sm = 10 * attribute(DeviceAttribute::compute_capability_major) +
                attribute(DeviceAttribute::compute_capability_minor),
          .multiprocessors = attribute(DeviceAttribute::multiprocessors),
          .max_shared_memory = attribute(DeviceAttribute::max_shared_memory_per_block),
          .shared_memory_per_multiprocessor = attribute(DeviceAttribute::shared_memory_per_multiprocessor),
          .l2_bytes = attribute(DeviceAttribute::l2_bytes),
          .memory_bytes = static_cast<long long>(memory),
          .clock_khz = attribute(DeviceAttribute::clock_khz),
          .memory_bytes_per_second = kTransfersPerClock * 1e3 * attribute(DeviceAttribute::memory_clock_khz) *
                                     attribute(DeviceAttribute::memory_bus_bits) / 8};
}

std::vector<Device> read_devices() {
  const Driver* const driver = Driver::get();
  if (driver == nullptr) return {};
  int count = 0;
  check(driver->cuDeviceGetCount(&count), "counting the GPUs");
  std::vector<Device> list;
  for (int ordinal = 0; ordinal < count; ++ordinal) list.push_back(read_device(*driver, ordinal));
  return list;
}

/// The primary contexts that this process has retained, by ordinal. Never released: whoever else works in them may
/// release theirs while kernels of ours are loaded.
CUcontext primary_context(const Driver& driver, int ordinal) {
  struct Held {
    std::once_flag once;
    CUcontext context = nullptr;
  };
  static std::vector<Held>* const held = new std::vector<Held>(devices().size());
  if (ordinal < 0 || ordinal >= static_cast<int>(held->size()))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("GPU {}: there are {} GPUs here, numbered from 0.", ordinal, held->size()));
  Held& mine = (*held)[static_cast<std::size_t>(ordinal)];
  std::call_once(mine.once, [&] {
    CUdevice handle = 0;
    const std::string doing = fmt::format("opening GPU {}", ordinal);
    check(driver.cuDeviceGet(&handle, ordinal), doing);
    check(driver.cuDevicePrimaryCtxRetain(&mine.context, handle), doing);
  });
  return mine.context;
}

}  // namespace

const std::vector<Device>& devices() {
  static const std::vector<Device>* const list = new std::vector<Device>(read_devices());
  return *list;
}

DeviceGuard::DeviceGuard(int ordinal) {
  const Driver* const driver = Driver::get();
  if (driver == nullptr) throw Error(ErrorCode::unsupported, Driver::missing());
  const CUcontext wanted = primary_context(*driver, ordinal);
  CUcontext current = nullptr;
  if (driver->cuCtxGetCurrent(&current) == kSuccess && current == wanted) return;
  check(driver->cuCtxPushCurrent(wanted), "switching to a GPU");
  pushed_ = true;
}

DeviceGuard::~DeviceGuard() {
  if (!pushed_) return;
  CUcontext popped = nullptr;
  Driver::get()->cuCtxPopCurrent(&popped);
}

PointerPlace place_of(const void* pointer) {
  const Driver* const driver = Driver::library();
  if (driver == nullptr || driver->cuPointerGetAttributes == nullptr || pointer == nullptr) return {};
  auto type = MemoryType::unknown;
  unsigned managed = 0;
  int ordinal = -1;
  std::array which{PointerAttribute::memory_type, PointerAttribute::is_managed, PointerAttribute::device_ordinal};
  std::array<void*, which.size()> values{&type, &managed, &ordinal};
  const CUresult result = driver->cuPointerGetAttributes(static_cast<unsigned>(which.size()), which.data(),
                                                         values.data(), reinterpret_cast<CUdeviceptr>(pointer));
  // Where nobody has started CUDA, or not since a fork(), nobody has memory of a GPU.
  if (result == kNotInitialized || result == kDeinitialized) return {};
  if (result != kSuccess && Driver::get() == nullptr) return {};
  check(result, "asking where a pointer points to");
  if (managed != 0) return {PointerPlace::managed, ordinal};
  if (type == MemoryType::device) return {PointerPlace::device, ordinal};
  return {type == MemoryType::host ? PointerPlace::pinned : PointerPlace::host, -1};
}

std::string to_text(const PointerPlace& place) {
  switch (place.kind) {
    case PointerPlace::host:
      return "host memory";
    case PointerPlace::pinned:
      return "pinned host memory";
    case PointerPlace::device:
      return fmt::format("memory of GPU {}", place.device_ordinal);
    case PointerPlace::managed:
      return "managed memory";
  }
  return {};
}

}  // namespace heed::cuda
