#include "cuda/tensor_map.hpp"

#include "cuda/driver.hpp"

#include <array>

namespace heed::cuda {

MappedTensor map_tensor(const void* data, DataType type, const Strides& strides, std::int64_t columns,
                        std::int64_t rows, std::int64_t heads, std::int64_t batch, unsigned box_rows) {
  constexpr std::uint64_t kBytes = 2, kUnused = 16;  // of an element; a stride that is never taken
  MappedTensor mapped{};
  mapped.steps = {strides.head != 0 ? 1 : 0, strides.batch != 0 ? 1 : 0};
  const auto bytes = [](std::int64_t stride) {
    return stride == 0 ? kUnused : static_cast<std::uint64_t>(stride) * kBytes;
  };
  const auto count = [](std::int64_t stride, std::int64_t size) {
    return stride == 0 ? std::uint64_t{1} : static_cast<std::uint64_t>(size);
  };
  const std::array<std::uint64_t, 4> sizes{static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows),
                                           count(strides.head, heads), count(strides.batch, batch)};
  const std::array<std::uint64_t, 3> steps{bytes(strides.sequence), bytes(strides.head), bytes(strides.batch)};
  const std::array<std::uint32_t, 4> box{64, box_rows, 1, 1}, every{1, 1, 1, 1};
  check(Driver::get()->cuTensorMapEncodeTiled(
            &mapped.map, type == DataType::f16 ? TensorMapType::f16 : TensorMapType::bf16, 4, const_cast<void*>(data),
            sizes.data(), steps.data(), box.data(), every.data(), TensorMapInterleave::none,
            TensorMapSwizzle::bytes_128, TensorMapL2::bytes_256, TensorMapFill::zero),
        "describing a tensor to TMA");
  return mapped;
}

}  // namespace heed::cuda
