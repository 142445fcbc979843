#pragma once

#include "cuda/hopper_backward_lines.hpp"
#include "cuda/hopper_lines.hpp"

#include <cstddef>
#include <vector>

namespace heed::cuda {

/// The lines of the user's own tuning record.
struct UserLines {
  std::vector<HopperLine> forward;
  std::vector<HopperBackwardLine> backward;

  std::size_t size() const { return forward.size() + backward.size(); }
  /// A file in the cache folder that cannot be taken is ignored as a whole, as `user.ignored` then says. Throws Error
  /// when HEED_TUNING names one.
  static UserLines of(UserTuning& user);
};

}  // namespace heed::cuda
