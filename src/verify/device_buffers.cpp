#include "verify/device_buffers.hpp"

#include "verify/input_views.hpp"

#include "cuda/device.hpp"
#include "cuda/driver.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace heed::verify {
namespace {

using cuda::check;
using cuda::CUdeviceptr;
using cuda::CUstream;
using cuda::DeviceGuard;

constexpr std::size_t kAlignment = 256, kSmallest = std::size_t{1} << 20, kWorkspaceGuard = 4096;
constexpr unsigned char kWorkspaceGuardByte = 0xA5;

/// For what has a device already, and so a driver.
const cuda::Driver& driver() { return *cuda::Driver::get(); }

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
CUstream handle(void* stream) { return static_cast<CUstream>(stream); }

/// For destructors, whose errors nobody can be told: when a process ends, the driver may be gone before.
template <class F>
void at_the_end(int ordinal, F&& give_back) noexcept {
  try {
    const DeviceGuard guard(ordinal);
    give_back();
  } catch (const Error&) {
  }
}

std::size_t rounded_up(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

DeviceMemory::~DeviceMemory() {
  if (data_ != 0) at_the_end(ordinal_, [&] { driver().cuMemFree(data_); });
}

std::byte* DeviceMemory::reserve(std::size_t bytes) {
  if (bytes > bytes_) {
    const DeviceGuard guard(ordinal_);
    if (data_ != 0) check(driver().cuMemFree(std::exchange(data_, 0)), "freeing GPU memory");
    const std::size_t wanted = std::max({bytes, std::min(2 * bytes_, 64 * kSmallest), kSmallest});
    bytes_ = 0;
    check(driver().cuMemAlloc(&data_, wanted), "allocating GPU memory for the tensors");
    bytes_ = wanted;
  }
  return bytes == 0 ? nullptr : reinterpret_cast<std::byte*>(data_);
}

ManagedMemory::ManagedMemory(std::size_t bytes) {
  const DeviceGuard guard(0);
  CUdeviceptr memory = 0;
  check(driver().cuMemAllocManaged(&memory, bytes, cuda::kMemAttachGlobal), "allocating managed memory");
  data_ = reinterpret_cast<std::byte*>(memory);
}

ManagedMemory::~ManagedMemory() {
  at_the_end(0, [&] { driver().cuMemFree(address(data_)); });
}

DeviceBuffers::DeviceBuffers(int ordinal) : ordinal_(ordinal), tensors_(ordinal), workspace_memory_(ordinal) {
  const DeviceGuard guard(ordinal_);
  CUstream stream = nullptr;
  check(driver().cuStreamCreate(&stream, cuda::kStreamNonBlocking), "making a stream");
  stream_ = stream;
}

DeviceBuffers::~DeviceBuffers() {
  at_the_end(ordinal_, [&] { driver().cuStreamDestroy(handle(stream_)); });
}

void DeviceBuffers::upload(const Buffers& buffers) {
  const DeviceGuard guard(ordinal_);
  const auto memory = buffers.memory();
  std::size_t bytes = 0;
  for (const auto& host : memory) bytes += rounded_up(host.size());
  std::byte* device = tensors_.reserve(bytes);
  pieces_.clear();
  for (const auto& host : memory) {
    pieces_.push_back({host, device});
    check(driver().cuMemcpyHtoDAsync(address(device), host.data(), host.size(), handle(stream_)),
          "copying a tensor to the GPU");
    device += rounded_up(host.size());
  }
}

template <class View>
void DeviceBuffers::move(View& view) const {
  const auto* const data = static_cast<const std::byte*>(view.data);
  for (const Piece& piece : pieces_) {
    const std::byte *const begin = piece.host.data(), *const end = begin + piece.host.size();
    if (std::less_equal<>{}(begin, data) && std::less<>{}(data, end)) {
      view.data = piece.device + (data - begin);
      return;
    }
  }
}

ForwardArgs DeviceBuffers::translated(const ForwardArgs& args) const {
  ForwardArgs here = args;
  for (TensorView* view : input_views(here)) move(*view);
  for (OutputView* view : {&here.o, &here.lse, &here.dropout.randval}) move(*view);
  return here;
}

BackwardArgs DeviceBuffers::translated(const BackwardArgs& args) const {
  BackwardArgs here = args;
  here.forward = translated(args.forward);
  for (TensorView* view : input_views(here)) move(*view);
  for (OutputView* view : {&here.dq, &here.dk, &here.dv, &here.dbias, &here.dsink, &here.dslopes}) move(*view);
  return here;
}

void DeviceBuffers::download(const Buffers& buffers) {
  const DeviceGuard guard(ordinal_);
  const auto memory = buffers.memory();
  for (std::size_t i = 0; i < pieces_.size(); ++i)
    check(
        driver().cuMemcpyDtoHAsync(memory.at(i).data(), address(pieces_[i].device), memory[i].size(), handle(stream_)),
        "copying a tensor from the GPU");
  synchronize();
}

std::span<std::byte> DeviceBuffers::workspace(std::size_t bytes) {
  const DeviceGuard guard(ordinal_);
  const std::size_t guarded = rounded_up(bytes) + kWorkspaceGuard;
  std::byte* const memory = workspace_memory_.reserve(guarded);
  workspace_guard_ = {memory + bytes, guarded - bytes};
  if (bytes > 0) check(driver().cuMemsetD8Async(address(memory), 0, bytes, handle(stream_)), "clearing the workspace");
  check(driver().cuMemsetD8Async(address(workspace_guard_.data()), kWorkspaceGuardByte, workspace_guard_.size(),
                                 handle(stream_)),
        "making the workspace's guard band");
  return {memory, bytes};
}

bool DeviceBuffers::workspace_overrun() const {
  const DeviceGuard guard(ordinal_);
  std::vector<std::byte> found(workspace_guard_.size());
  check(driver().cuMemcpyDtoHAsync(found.data(), address(workspace_guard_.data()), found.size(), handle(stream_)),
        "reading the workspace's guard band");
  synchronize();
  return std::any_of(found.begin(), found.end(), [](std::byte each) { return each != std::byte{kWorkspaceGuardByte}; });
}

void DeviceBuffers::synchronize() const {
  const DeviceGuard guard(ordinal_);
  check(driver().cuStreamSynchronize(handle(stream_)), "waiting for the GPU");
}

DeviceBuffersPool::Lease DeviceBuffersPool::take() {
  const std::scoped_lock lock(mutex_);
  if (idle_.empty()) return {*this, std::make_unique<DeviceBuffers>()};
  auto buffers = std::move(idle_.back());
  idle_.pop_back();
  return {*this, std::move(buffers)};
}

DeviceBuffersPool::Lease::~Lease() {
  const std::scoped_lock lock(pool_.mutex_);
  pool_.idle_.push_back(std::move(buffers_));
}

}  // namespace heed::verify
