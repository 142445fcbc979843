#pragma once

#include <heed/backward.hpp>
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

struct BackwardOptions {
  /// Which rows of dq (batch, query head, query) and of dk and dv (batch, key/value head, key) to compute; empty: all.
  /// Rows left out keep what they held. Of a dbias that no two queries share, the rows of those left out do, too; any
  /// other dbias, dsink and dslopes are always computed whole.
  std::function<bool(std::int64_t b, std::int64_t h, std::int64_t i)> queries = {};
  std::function<bool(std::int64_t b, std::int64_t g, std::int64_t j)> keys = {};
  Executor* executor = nullptr;  ///< null: the calling thread
};

/// The gradients in fp64, plain loops, from o and lse as they are given. All outputs may be f64; then o, d_o, lse and
/// d_lse may be, too.
HEED_API void backward(const BackwardArgs& args, const BackwardOptions& options = {});

/// The same in f32 arithmetic, P and dS rounded to the input type (unless math is accurate) before the products that
/// sum over them, the results to the types they are written in.
HEED_API void plain_backward(const BackwardArgs& args, const BackwardOptions& options = {});

}  // namespace heed::oracle
