#include "verify/fill_rows.hpp"

#include "core/float_bits.hpp"
#include "core/sequences.hpp"

#include <algorithm>

namespace heed::verify {

void fill_rows(const Data& data, FillRow fill_row, const RowTensor& tensor, Executor& executor) {
  const Strides steps = core::strides_of(tensor.view);
  const auto one_if_broadcast = [](std::int64_t step, std::int64_t size) {
    return step == 0 ? std::min<std::int64_t>(size, 1) : size;
  };
  const bool group = tensor.view.rank == 3;
  const bool shared = group ? steps.sequence == 0 : steps.batch == 0;
  const std::int64_t entries = shared ? std::min<std::int64_t>(tensor.b, 1) : tensor.b;
  const std::int64_t heads = one_if_broadcast(steps.head, tensor.heads);
  parallel_for(executor, entries * heads, [&](std::int64_t index, int) {
    const std::int64_t b = index / heads, h = index % heads;
    std::vector<float> row(static_cast<std::size_t>(tensor.dim));
    std::int64_t length = tensor.logical_length(b);
    // A shared entry holds what the longest sequence needs.
    for (std::int64_t other = 0; shared && other < tensor.b; ++other)
      length = std::max(length, tensor.logical_length(other));
    for (std::int64_t i = 0; i < one_if_broadcast(steps.sequence, length); ++i) {
      (data.*fill_row)(b, h, i, row);
      const std::int64_t at =
          b * steps.batch + (tensor.starts[static_cast<std::size_t>(b)] + i) * steps.sequence + h * steps.head;
      for (std::int64_t e = 0; e < tensor.dim; ++e)
        core::store(const_cast<void*>(tensor.view.data), tensor.view.type, at + e * steps.dim,
                    row[static_cast<std::size_t>(e)]);
    }
  });
}

}  // namespace heed::verify
