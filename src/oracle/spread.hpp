#pragma once

#include <heed/oracle.hpp>

#include <cstdint>
#include <functional>

namespace heed::oracle {

/// Called for each row with the spread of its terms: the largest square root, over the elements e of the row, of
/// sum_j (P[j] V[j, e])^2. Relative errors r of the single weights, independent of each other, move the row's elements
/// by about r times this much, however the terms cancel. Comes from any of the executor's threads.
using SpreadReport = std::function<void(std::int64_t b, std::int64_t h, std::int64_t i, double spread)>;

/// forward(), and a report of the spread of every row it computes.
void forward_with_spread(const ForwardArgs& args, const Options& options, const SpreadReport& report);

}  // namespace heed::oracle
