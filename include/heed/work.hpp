#pragma once

#include <heed/forward.hpp>
#include <heed/problem.hpp>

namespace heed {

/// What a problem costs at least, counted from visible pairs per sequence (masks, windows and logical lengths included;
/// boolean and block masks are not looked into).
struct Work {
  double visible_pairs = 0;  ///< summed over batch and query heads
  double flops = 0;          ///< 2 * pairs * (d + d_v)
  double bytes = 0;          ///< q, k, v, o of the logical lengths once, plus LSE and bias where given
};

HEED_API Work work_of(const ForwardArgs& args);
/// For a problem without per-sequence lengths (batch mode, no logical lengths); others throw Error.
HEED_API Work work_of(const Problem& problem);

}  // namespace heed
