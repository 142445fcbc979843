#pragma once

#include <heed/oracle.hpp>

#include <cstdint>
#include <functional>

namespace heed::oracle {

/// How strongly roundings move a row of O, to first order; the largest over its elements e.
struct Noise {
  /// sqrt(sum_j (P[j] V[j, e])^2): relative errors r of the weights, independent of each other, move it by r times
  /// this. Of f16, weights below its smallest normal number count as that number.
  double of_weights = 0;
  /// sum_j P[j] (m[j] + |S[j]|) |V[j, e] - O[e]|: relative errors r of the logits move it by at most r times this; m[j]
  /// is the size of a sum of such products, scale |Q| |K[j]| / sqrt(d), and 1 at least. What all logits share cancels
  /// here as it does in the softmax. (With a sink the LSE is added to the size of the logits; with dropout nothing
  /// cancels.)
  double of_logits = 0;
};

/// Called for each row, from any of the executor's threads.
using NoiseReport = std::function<void(std::int64_t b, std::int64_t h, std::int64_t i, const Noise& noise)>;

/// forward(), and a report of the noise of every row it computes.
void forward_with_noise(const ForwardArgs& args, const Options& options, const NoiseReport& report);

}  // namespace heed::oracle
