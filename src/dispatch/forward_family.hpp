#pragma once

#include "dispatch/family.hpp"
#include "dispatch/forward_kernel.hpp"

namespace heed::dispatch {

using ForwardRule = Rule<Problem, ForwardKernel>;

/// Forward attention: which kernel may compute which problem.
extern const Family<Problem, ForwardKernel> kForwardFamily;

}  // namespace heed::dispatch
