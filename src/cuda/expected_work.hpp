#pragma once

#include <heed/problem.hpp>

namespace heed::cuda {

/// About how many pairs of queries and keys are visible: for cost models, where lengths may be unknown.
inline double expected_pairs(const Problem& problem) {
  const double all = static_cast<double>(problem.batch() * problem.heads_q()) * static_cast<double>(problem.s_q()) *
                     static_cast<double>(problem.s_k());
  return problem.mask().hides_nothing() ? all : all / 2;
}

}  // namespace heed::cuda
