#pragma once

#include <heed/backward.hpp>
#include <heed/forward.hpp>
#include <heed/problem.hpp>

namespace heed {

/// What a problem costs at least, counted from visible pairs per sequence (masks, windows and logical lengths included;
/// boolean and block masks are not looked into).
struct Work {
  double visible_pairs = 0;  ///< summed over batch and query heads
  double flops = 0;          ///< 2 * pairs * (d + d_v); backward: 2 * pairs * (3 d + 2 d_v), five products for two
  double bytes = 0;          ///< all operands of the logical lengths once, plus LSE, bias and dbias where given
};

HEED_API Work work_of(const ForwardArgs& args);
HEED_API Work work_of(const BackwardArgs& args);
/// For a problem without per-sequence lengths (batch mode, no logical lengths); others throw Error.
HEED_API Work work_of(const Problem& problem);

}  // namespace heed
