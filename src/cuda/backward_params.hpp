#pragma once

#include "cuda/engine_state.hpp"
#include "dispatch/backward_kernel.hpp"
#include "kernels/backward_params.h"

#include <cstddef>
#include <cstdint>

namespace heed::cuda {

/// Where in the workspace a backward pass keeps what, in bytes from its beginning. What it does not need has no bytes.
struct BackwardWorkspace {
  std::int64_t row_space = 0;  ///< places of a head's rows: see kernels::BackwardParams
  std::size_t row_lse = 0, row_dot = 0, row_part = 0, dq_sum = 0, turns = 0, key_sum = 0, d_bias_part = 0;
  std::size_t bytes = 0;
};

/// What a family asks of it beside the LSE and D of every row.
struct BackwardWorkspaceNeeds {
  std::size_t begin = kCounterBytes;  ///< the bytes before are left alone
  std::int64_t row_space = 0;
  std::int64_t dq_sum_floats = 0;   ///< of all heads
  std::int64_t turns = 0;           ///< of all heads
  std::int64_t key_sum_floats = 0;  ///< of all parts of all heads
  std::int64_t d_bias_floats = 0;   ///< of all parts of dBias
  bool row_parts = true;            ///< what rows add to dSink and dSlopes, where those are asked for
};
BackwardWorkspace divide_workspace(const Problem& problem, const BackwardWorkspaceNeeds& needs);

/// The portable family's row_space: the rows of q one behind the other, every sequence from a multiple of 16 on. What
/// its kernels make of it is row_start of kernels/portable_backward_features.cuh.
std::int64_t packed_row_space(const Problem& problem);

/// What the kernels are told when they run; the schedule is left to the family.
kernels::BackwardParams backward_params(const dispatch::BackwardCall& call, const BackwardWorkspace& workspace);

}  // namespace heed::cuda
