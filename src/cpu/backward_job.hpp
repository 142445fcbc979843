// What the backward kernels are told: plain data shared by the host side of the CPU engine and every ISA level's
// translation unit, on top of forward_job.hpp.
#pragma once

#include "cpu/forward_job.hpp"

namespace heed::cpu {

/// One batch entry and one query head: everything its rows need, and where its gradients go. dk and dv belong to the
/// key/value head, which other query heads may share.
struct BackwardJob {
  ForwardJob forward;            ///< heads is 1; o and lse are read
  Plane d_o;                     ///< [s_q][d_v]
  Plane dq;                      ///< [s_q][d], written
  Plane dk;                      ///< [s_k][d], written
  Plane dv;                      ///< [s_k][d_v], written
  const float* d_lse = nullptr;  ///< [s_q] with the step below, or null
  int64_t d_lse_row = 0;
  float* delta = nullptr;      ///< [s_q], dense: D = rowsum(dO * O) - dLSE, made by the first stage
  bool dq_in_16_bits = false;  ///< dQ is rounded to its type after every block of keys
};

}  // namespace heed::cpu
