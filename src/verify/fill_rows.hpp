#pragma once

#include "verify/data.hpp"

#include <heed/executor.hpp>
#include <heed/tensor.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace heed::verify {

/// A row of a tensor of Data: batch entry, head, row, and its elements.
using FillRow = void (Data::*)(std::int64_t, std::int64_t, std::int64_t, std::span<float>) const;

struct RowTensor {
  TensorView view;
  std::int64_t b, heads, dim;
  std::vector<std::int64_t> starts;                          ///< [b + 1]
  std::function<std::int64_t(std::int64_t)> logical_length;  ///< of a batch entry
};

/// Fills the rows that count. A dimension of stride 0 has one index.
void fill_rows(const Data& data, FillRow fill_row, const RowTensor& tensor, Executor& executor);

}  // namespace heed::verify
