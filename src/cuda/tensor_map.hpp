#pragma once

#include <heed/problem.hpp>

#include "cuda/driver_types.hpp"
#include "kernels/forward_params.h"

namespace heed::cuda {

/// A tensor as TMA sees it: (column, row, head, batch), boxes of 64 columns by `box_rows` rows with 128-byte swizzle,
/// zeros outside.
struct MappedTensor {
  CUtensorMap map;
  kernels::MapSteps steps;
};

/// `strides` as a Problem tells them: 0 where there is one entry for all. 16-bit types.
MappedTensor map_tensor(const void* data, DataType type, const Strides& strides, std::int64_t columns,
                        std::int64_t rows, std::int64_t heads, std::int64_t batch, unsigned box_rows);

}  // namespace heed::cuda
