#pragma once

#include "dispatch/backward_kernel.hpp"
#include "dispatch/family.hpp"

namespace heed::dispatch {

using BackwardRule = Rule<Problem, BackwardKernel>;

/// Backward attention: which kernel may compute which problem.
extern const Family<Problem, BackwardKernel> kBackwardFamily;

}  // namespace heed::dispatch
