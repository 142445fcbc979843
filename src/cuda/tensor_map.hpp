#pragma once

#include <heed/problem.hpp>

#include "cuda/driver_types.hpp"
#include "kernels/forward_params.h"

#include <array>
#include <mutex>

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
/// Whether TMA can step so, from data on: elements of 16 bits.
bool can_map(const void* data, const Strides& strides);
/// An operand or a gradient of a problem.
MappedTensor map_operand(const Problem& problem, const kernels::ForwardParams& p, Operand which, const void* data,
                         unsigned box_rows);
/// A tensor of query heads whose groups of `group` heads share tiles: (column, head of the group, row, group, batch). A
/// box has `box_rows` pairs of row and head, the heads of a row side by side.
MappedTensor map_groups(const void* data, DataType type, const Strides& strides, std::int64_t columns,
                        std::int64_t rows, std::int64_t heads, std::int64_t group, std::int64_t batch,
                        unsigned box_rows);

/// The maps of a plan's last run: making four of them costs the host more than a microsecond, and most callers come
/// with the same tensors again. The plan fixes all else that a map depends on.
class LastMaps {
 public:
  struct Maps {
    MappedTensor q, k, v, o;
  };
  using Pointers = std::array<const void*, 4>;

  /// A thread that meets another one here makes its own.
  template <class Make>
  Maps get(const Pointers& pointers, const Make& make) {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return make();
    if (pointers != pointers_) {
      pointers_ = {};  // should make() throw
      maps_ = make();
      pointers_ = pointers;
    }
    return maps_;
  }

 private:
  std::mutex mutex_;
  Pointers pointers_{};
  Maps maps_{};
};

}  // namespace heed::cuda
