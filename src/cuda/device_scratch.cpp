#include "cuda/device_scratch.hpp"

#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "dispatch/fork_safe_mutex.hpp"

#include <algorithm>

namespace heed::cuda {
namespace {

constexpr std::size_t kLeastBytes = 4096;

/// A thread that may have a stream of its own.
struct Thread {
  std::uint64_t number;  ///< from 1 on; an ended thread's goes to one that comes later
  std::uint64_t serial;  ///< of this thread and never of another one
};

Thread this_thread() {
  struct Numbers {
    dispatch::ForkSafeMutex mutex;
    std::vector<std::uint64_t> free;
    std::uint64_t last = 0, threads = 0;
  };
  static Numbers& numbers = *new Numbers;  // for threads that end after main has
  struct Holder {
    Thread thread;
    Holder() {
      const std::scoped_lock lock(numbers.mutex);
      thread.serial = ++numbers.threads;
      if (numbers.free.empty()) numbers.free.push_back(++numbers.last);
      thread.number = numbers.free.back();
      numbers.free.pop_back();
    }
    ~Holder() {
      const std::scoped_lock lock(numbers.mutex);
      numbers.free.push_back(thread.number);
    }
  };
  static thread_local const Holder mine;
  return mine.thread;
}

/// While it lives this thread may allocate although a stream is being captured.
class RelaxedCapture {
 public:
  RelaxedCapture() { Driver::get()->cuThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { Driver::get()->cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CaptureMode mode_ = CaptureMode::relaxed;
};

}  // namespace

DeviceScratch::Stream DeviceScratch::stream_of(int device, CUstream handle) {
  constexpr std::uintptr_t kLegacy = 1, kPerThread = 2;
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  if (number == kLegacy) handle = nullptr;
  return {device, handle, number == kPerThread ? this_thread().number : 0};
}

DeviceScratch::~DeviceScratch() {
  const Driver* const driver = Driver::get();
  for (const auto& [device, pointer] : allocations_) {
    try {
      const DeviceGuard guard(device);
      driver->cuMemFree(pointer);
    } catch (const Error&) {  // the driver has ended before us, and its memory with it
      return;
    }
  }
}

std::span<std::byte> DeviceScratch::take(int device, CUstream stream, std::size_t bytes) {
  if (bytes == 0) return {};
  CaptureStatus capturing = CaptureStatus::none;
  check(Driver::get()->cuStreamIsCapturing(stream, &capturing), "asking whether the stream is being captured");
  if (capturing != CaptureStatus::none) return allocate(device, bytes);
  const Stream which = stream_of(device, stream);
  OfStream& here = of(which);
  const std::lock_guard lock(here.growing);
  std::span<std::byte>& workspace = here.workspace;
  if (which.thread != 0 && here.owner != this_thread().serial) {
    // What an ended thread has put on its stream may not be done yet, and there is no name any more to wait for it
    // alone. Where waiting is forbidden, because a graph is being captured, the memory is left to it.
    const RelaxedCapture relaxed;
    if (!workspace.empty() && Driver::get()->cuCtxSynchronize() != kSuccess) workspace = {};
    here.owner = this_thread().serial;
  }
  // By half at least: what was outgrown is kept, and many small steps would pile up.
  if (workspace.size() < bytes)
    workspace = allocate(device, std::max({bytes, kLeastBytes, workspace.size() + workspace.size() / 2}));
  return workspace;
}

std::mutex& DeviceScratch::steps(int device, CUstream stream) { return of(stream_of(device, stream)).steps; }

DeviceScratch::OfStream& DeviceScratch::of(const Stream& which) {
  const std::lock_guard lock(mutex_);
  return of_stream_[which];
}

std::span<std::byte> DeviceScratch::allocate(int device, std::size_t bytes) {
  const Driver& driver = *Driver::get();
  const RelaxedCapture relaxed;
  CUdeviceptr pointer = 0;
  check(driver.cuMemAlloc(&pointer, bytes), "allocating a workspace");
  {
    const std::lock_guard lock(mutex_);
    allocations_.emplace_back(device, pointer);
  }
  // On a stream of its own and waited for: the caller's stream may be one that is being captured.
  CUstream quiet = nullptr;
  check(driver.cuStreamCreate(&quiet, kStreamNonBlocking), "clearing a workspace");
  const CUresult cleared = driver.cuMemsetD8Async(pointer, 0, bytes, quiet);
  const CUresult done = driver.cuStreamSynchronize(quiet);
  driver.cuStreamDestroy(quiet);
  check(cleared, "clearing a workspace");
  check(done, "clearing a workspace");
  return {reinterpret_cast<std::byte*>(pointer), bytes};
}

}  // namespace heed::cuda
