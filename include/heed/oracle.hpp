#pragma once

#include <heed/forward.hpp>

#include <cstdint>
#include <functional>

namespace heed::oracle {

struct Options {
  /// Which rows (batch, query head, query) to compute; empty: all. Rows left out keep what they held.
  std::function<bool(std::int64_t b, std::int64_t h, std::int64_t i)> rows = {};
  Executor* executor = nullptr;  ///< null: the calling thread
};

/// The contract in fp64, plain loops. o and lse may be f64 (or any other type heed writes). Slow and right.
HEED_API void forward(const ForwardArgs& args, const Options& options = {});

/// The same in the precision a straightforward implementation would use: f32 arithmetic, P rounded to the input type
/// (unless math is accurate) and O to the output type. Its distance from forward() is the yardstick for tolerances.
HEED_API void plain_forward(const ForwardArgs& args, const Options& options = {});

}  // namespace heed::oracle
