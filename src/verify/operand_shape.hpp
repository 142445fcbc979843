#pragma once

#include "verify/case.hpp"
#include "verify/shape.hpp"

namespace heed::verify {

/// How an operand of a Case lies in its memory, dimensions of size 1 not yet absurd: [b, s, heads, d] in batch mode,
/// [rows, heads, d] in group mode.
Shape operand_shape(const Case& c, Operand which);

/// Of tensors packed into one, how many elements are from one to the next; where there are none, 0.
std::int64_t packed_step(const Case& c, Operand which);

/// How gradients and inputs are packed: gradients with a layout of their own are not.
Packing packing_of(const Case& c, Operand which);

}  // namespace heed::verify
