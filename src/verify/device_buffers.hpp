#pragma once

#include "verify/buffers.hpp"

#include <heed/backward.hpp>
#include <heed/forward.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace heed::verify {

/// GPU memory that grows when more is asked for, and is kept: what a thousand small cases need is allocated a few
/// times.
class DeviceMemory {
 public:
  explicit DeviceMemory(int ordinal) : ordinal_(ordinal) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  /// At least so many bytes, aligned to 256; what was in it is lost when it grows. Null for none.
  std::byte* reserve(std::size_t bytes);

 private:
  int ordinal_;
  std::uint64_t data_ = 0;
  std::size_t bytes_ = 0;
};

/// Memory that the host and every GPU read and write, there only where it is touched.
class ManagedMemory {
 public:
  explicit ManagedMemory(std::size_t bytes);
  ManagedMemory(const ManagedMemory&) = delete;
  ManagedMemory& operator=(const ManagedMemory&) = delete;
  ~ManagedMemory();
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

/// The tensors of a Buffers in the memory of a GPU, with a stream to compute them on. Everything is copied, guard bands
/// included, both ways: what an engine does to memory here shows in the Buffers as if it had computed there.
class DeviceBuffers {
 public:
  /// Which of the GPUs. Throws Error where it is not there.
  explicit DeviceBuffers(int ordinal = 0);
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;
  ~DeviceBuffers();

  /// Copies what is in `buffers` here, in the place of what was here before.
  void upload(const Buffers& buffers);
  /// `args` with each pointer into the memory of the uploaded buffers replaced by its place here, as far from a
  /// boundary of 64 bytes as it was. Pointers to anywhere else stay.
  ForwardArgs translated(const ForwardArgs& args) const;
  BackwardArgs translated(const BackwardArgs& args) const;
  /// Waits for the stream, and copies everything back.
  void download(const Buffers& buffers);

  /// Zeros, with a guard band behind them. Valid until the next call.
  std::span<std::byte> workspace(std::size_t bytes);
  /// Whether something has written into that guard band. Waits for the stream.
  bool workspace_overrun() const;

  int ordinal() const { return ordinal_; }
  void* stream() const { return stream_; }
  /// Waits for the stream. Throws Error for what has failed on it.
  void synchronize() const;

 private:
  template <class View>
  void move(View& view) const;

  struct Piece {
    std::span<std::byte> host;
    std::byte* device;
  };

  int ordinal_;
  void* stream_ = nullptr;
  DeviceMemory tensors_, workspace_memory_;
  std::vector<Piece> pieces_;
  std::span<std::byte> workspace_guard_;
};

/// DeviceBuffers that are lent to one call each, so that calls may come from many threads.
class DeviceBuffersPool {
 public:
  /// Gives back what it holds.
  class Lease {
   public:
    Lease(DeviceBuffersPool& pool, std::unique_ptr<DeviceBuffers> buffers)
        : pool_(pool), buffers_(std::move(buffers)) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease();
    DeviceBuffers* operator->() const { return buffers_.get(); }
    DeviceBuffers& operator*() const { return *buffers_; }

   private:
    DeviceBuffersPool& pool_;
    std::unique_ptr<DeviceBuffers> buffers_;
  };

  Lease take();

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<DeviceBuffers>> idle_;
};

}  // namespace heed::verify
