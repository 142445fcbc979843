#pragma once

#include "dispatch/backward_kernel.hpp"

#include <memory>

namespace heed::cpu {

/// cpu/baseline/bwd_rows: the loops of backward_rows.hpp, each gradient by whoever owns it.
std::shared_ptr<const dispatch::BackwardKernel> make_backward_rows_kernel();

}  // namespace heed::cpu
