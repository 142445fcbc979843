#include "cuda/tensor_map.hpp"

#include "cuda/driver.hpp"

#include <algorithm>
#include <array>

namespace heed::cuda {

namespace {

constexpr std::uint64_t kBytes = 2;    // of an element
constexpr std::uint64_t kUnused = 16;  // a stride that is never taken

std::uint64_t step_bytes(std::int64_t stride) {
  return stride == 0 ? kUnused : static_cast<std::uint64_t>(stride) * kBytes;
}
std::uint64_t count(std::int64_t stride, std::int64_t size) {
  return stride == 0 ? std::uint64_t{1} : static_cast<std::uint64_t>(size);
}

template <std::size_t Rank>
CUtensorMap encode(const void* data, DataType type, const std::array<std::uint64_t, Rank>& sizes,
                   const std::array<std::uint64_t, Rank - 1>& steps, const std::array<std::uint32_t, Rank>& box) {
  std::array<std::uint32_t, Rank> every;
  every.fill(1);
  CUtensorMap map{};
  check(Driver::get()->cuTensorMapEncodeTiled(&map, type == DataType::f16 ? TensorMapType::f16 : TensorMapType::bf16,
                                              Rank, const_cast<void*>(data), sizes.data(), steps.data(), box.data(),
                                              every.data(), TensorMapInterleave::none, TensorMapSwizzle::bytes_128,
                                              TensorMapL2::bytes_256, TensorMapFill::zero),
        "describing a tensor to TMA");
  return map;
}

}  // namespace

MappedTensor map_tensor(const void* data, DataType type, const Strides& strides, std::int64_t columns,
                        std::int64_t rows, std::int64_t heads, std::int64_t batch, unsigned box_rows) {
  const std::array<std::uint64_t, 4> sizes{static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows),
                                           count(strides.head, heads), count(strides.batch, batch)};
  const std::array<std::uint64_t, 3> steps{step_bytes(strides.sequence), step_bytes(strides.head),
                                           step_bytes(strides.batch)};
  return {encode<4>(data, type, sizes, steps, {64, box_rows, 1, 1}),
          {strides.head != 0 ? 1 : 0, strides.batch != 0 ? 1 : 0}};
}

bool can_map(const void* data, const Strides& strides) {
  constexpr std::uint64_t kAligned = 16, kMost = std::uint64_t{1} << 40;
  const auto can_step = [](std::int64_t stride) {
    return step_bytes(stride) % kAligned == 0 && step_bytes(stride) < kMost;
  };
  return reinterpret_cast<std::uintptr_t>(data) % kAligned == 0 && strides.dim == 1 && can_step(strides.sequence) &&
         can_step(strides.head) && can_step(strides.batch);
}

MappedTensor map_operand(const Problem& problem, const kernels::ForwardParams& p, Operand which, const void* data,
                         unsigned box_rows) {
  const Operand shape = shape_of(which);
  const bool of_q = shape == Operand::q || shape == Operand::o;
  const bool of_d = shape == Operand::q || shape == Operand::k;
  return map_tensor(data, problem.type(), problem.strides(which), of_d ? problem.d() : problem.d_v(),
                    of_q ? p.s_q : p.s_k, of_q ? problem.heads_q() : problem.heads_k(), problem.batch(), box_rows);
}

MappedTensor map_groups(const void* data, DataType type, const Strides& strides, std::int64_t columns,
                        std::int64_t rows, std::int64_t heads, std::int64_t group, std::int64_t batch,
                        unsigned box_rows) {
  const std::array<std::uint64_t, 5> sizes{static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(group),
                                           static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(heads / group),
                                           count(strides.batch, batch)};
  const std::array<std::uint64_t, 4> steps{step_bytes(strides.head), step_bytes(strides.sequence),
                                           step_bytes(strides.head * group), step_bytes(strides.batch)};
  const auto of_group = std::min(static_cast<unsigned>(group), box_rows);
  return {encode<5>(data, type, sizes, steps, {64, of_group, box_rows / of_group, 1, 1}),
          {1, strides.batch != 0 ? 1 : 0}};
}

}  // namespace heed::cuda
