#pragma once

#include "verify/buffers.hpp"
#include "verify/reference_cache.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace heed::verify {

/// Where an element is: batch entry, head, query or key, number in the row (-1 where there is none, as in the LSE).
struct Position {
  std::int64_t b = 0, h = 0, i = 0, d = 0;
  std::string to_string() const;  ///< "(0, 3, 17, 44)"
};

/// How far an output is from the oracle.
struct Distance {
  bool compared = false;  ///< false: there was nothing to compare
  double max_error = 0;
  Position at = {};
  double allowed = 0;  ///< at that place
  double reference = 0, got = 0;
};

struct Verdict {
  enum class Status : std::uint8_t { valid, wrong, refused };

  Status status = Status::valid;
  Distance o, lse;
  bool has_lse = false;
  std::vector<std::pair<std::string, Distance>> gradients;  ///< of a backward case, by name; o and lse are then unused
  std::vector<std::string> not_compared;  ///< gradients that a choice of rows says nothing about: sums over all of them
  std::int64_t rows_checked = 0, rows_total = 0;
  std::vector<std::string> complaints;  ///< what is wrong, or why it was refused
  bool device_failed = false;           ///< refused because the device did, maybe for all that comes after it
  bool unsupported = false;             ///< refused because no kernel computes it, and nothing was touched

  bool valid() const { return status == Status::valid; }
  /// O, or of a backward case the gradient that is furthest off, measured by what it may be.
  Distance worst() const;
  bool all_rows() const { return rows_checked == rows_total; }
  /// "max error 1.9e-03 at (0, 3, 17, 44), allowed 3.1e-03; 512 of 4096 rows checked", and the complaints.
  std::string to_string() const;
};

struct JudgeOptions {
  Executor* executor = nullptr;  ///< for the oracle
  double budget = 4e9;  ///< multiplications that comparing all rows may cost; beyond it a choice of rows is compared
  ReferenceCache* references = nullptr;  ///< where what the oracle says is kept; null: nowhere
};

/// Compares the outputs in `buffers` with the oracle, and looks for memory that should not have changed.
///
/// An element may be off by 2 x the largest error of a plain computation in the same precision (oracle::plain_forward)
/// + u x the largest element, where u is the rounding unit of the output type; both are taken over the judged rows that
/// see about as many keys (within a factor of two). To this is added what the rounding of logits in f32 can do, which
/// the plain computation is spared where sums of whole numbers are exact, and what the rounding of weights can do where
/// it has too few rows not to be lucky (oracle/noise.hpp). An LSE may be off by 2 x the plain error + 1e-5 x
/// max(1, |LSE|) + the rounding of logits. NaN and infinities must be where the oracle has them, with their signs;
/// random words must be exact.
Verdict judge(const Buffers& buffers, const JudgeOptions& options = {});

/// judge() of a backward case. An element of a gradient may be off by 3 x the largest error of the plain computation
/// (oracle::plain_backward) + u x the largest element, both over rows that sum up about as many terms, + what
/// roundings of logits and weights can do to this element (oracle/measure.hpp). Where all rows would cost more than the
/// budget, a choice of the rows of dq and of dk and dv is compared, of a dbias that no two queries share likewise, and
/// dsink; dslopes and any other dbias, which sum up all pairs, are not: Verdict::not_compared names them.
Verdict judge_backward(const Buffers& buffers, const JudgeOptions& options);

}  // namespace heed::verify
