#pragma once

#include "core/float_bits.hpp"
#include "verify/buffers.hpp"

#include <cmath>
#include <cstdint>
#include <utility>

namespace heed {

/// One element of an input becomes no number: of q, dO (of a backward pass), k or v (0 to 3), in this row and head of
/// the first batch entry.
inline void put_nan(verify::Buffers& buffers, int tensor, std::int64_t row, std::int64_t head) {
  const ForwardArgs& args = std::as_const(buffers).args();
  const TensorView& view = tensor == 0   ? args.q
                           : tensor == 1 ? std::as_const(buffers).backward_args().d_o
                           : tensor == 2 ? args.k
                                         : args.v;
  core::store(const_cast<void*>(view.data), view.type, row * view.stride(1) + head * view.stride(2) + 3, NAN);
  buffers.remember_inputs();
}

}  // namespace heed
