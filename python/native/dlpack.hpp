#pragma once

#include <heed/heed.h>

#include <cstdint>

namespace heed::python {

// The memory layout of DLPack (https://dmlc.github.io/dlpack), versions 0 and 1, as far as it is needed here.
namespace dlpack {

struct Device {
  std::int32_t type, index;
};
inline constexpr std::int32_t kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13;

struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
inline constexpr std::uint8_t kInt = 0, kUnsigned = 1, kFloat = 2, kBfloat = 4, kBool = 6;

struct Tensor {
  void* data;
  Device device;
  std::int32_t rank;
  DataType type;
  std::int64_t* sizes;
  std::int64_t* strides;  ///< in elements; null: dense
  std::uint64_t byte_offset;
};

struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

struct ManagedVersioned {
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};
inline constexpr std::uint64_t kReadOnly = 1;

/// What a library's type has as __dlpack_c_exchange_api__ (version 1.3): functions instead of methods. Those that are
/// not needed here are pointers.
struct Exchange {
  std::uint32_t major, minor;
  const Exchange* previous;
  void *allocate, *lend, *adopt;
  /// A view of an array of that very type, for as long as nobody else runs. Not 0: an exception is set.
  int (*view)(void* object, Tensor* view);
  void* current_stream;
};
inline constexpr char kExchangeName[] = "dlpack_exchange_api";

}  // namespace dlpack

/// False: heed has no such type.
bool type_of(const dlpack::DataType& from, std::int32_t& type);
/// Address, sizes and strides, of a rank that fits.
void read_dlpack_memory(const dlpack::Tensor& from, heed_tensor& tensor);

/// What a producer lent, until it is given back.
class ManagedTensor {
 public:
  ManagedTensor() = default;
  ManagedTensor(const ManagedTensor&) = delete;
  ManagedTensor& operator=(const ManagedTensor&) = delete;
  ~ManagedTensor() {
    if (plain_ != nullptr && plain_->deleter != nullptr) plain_->deleter(plain_);
    if (versioned_ != nullptr && versioned_->deleter != nullptr) versioned_->deleter(versioned_);
  }
  void hold(dlpack::Managed* managed) { plain_ = managed; }
  void hold(dlpack::ManagedVersioned* managed) { versioned_ = managed; }

 private:
  dlpack::Managed* plain_ = nullptr;
  dlpack::ManagedVersioned* versioned_ = nullptr;
};

}  // namespace heed::python
