#pragma once

#include "verify/device_buffers.hpp"

#include <heed/tensor.hpp>

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

namespace heed::conformance {

/// Memory that is there only where it is touched, for the host and, where it is asked for, for GPUs too.
class SparseMemory {
 public:
  SparseMemory(std::size_t bytes, bool for_gpu) : bytes_(bytes) {
    if (for_gpu) {
      managed_.emplace(bytes);
      memory_ = managed_->data();
    } else {
      memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  ~SparseMemory() {
    if (!managed_ && there()) munmap(memory_, bytes_);
  }
  bool there() const { return memory_ != MAP_FAILED; }
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_ = MAP_FAILED;
  std::size_t bytes_;
  std::optional<verify::ManagedMemory> managed_;
};

/// Copies every row of `from` to where `to` has it: [b, s, heads, d] in both.
inline void copy_rows(const TensorView& from, const OutputView& to) {
  const auto bytes = static_cast<std::size_t>(bits(from.type) / 8);
  const auto place = [&](const auto& view, std::int64_t b, std::int64_t s, std::int64_t h) {
    return static_cast<std::size_t>(b * view.stride(0) + s * view.stride(1) + h * view.stride(2)) * bytes;
  };
  for (std::int64_t b = 0; b < from.size(0); ++b)
    for (std::int64_t s = 0; s < from.size(1); ++s)
      for (std::int64_t h = 0; h < from.size(2); ++h)
        std::memcpy(static_cast<std::byte*>(to.data) + place(to, b, s, h),
                    static_cast<const std::byte*>(from.data) + place(from, b, s, h),
                    static_cast<std::size_t>(from.size(3)) * bytes);
}

}  // namespace heed::conformance
