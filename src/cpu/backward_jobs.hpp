#pragma once

#include "cpu/backward_job.hpp"
#include "cpu/forward_jobs.hpp"
#include "dispatch/backward_kernel.hpp"

namespace heed::cpu {

/// Turns the arguments of one backward call into jobs. Made once per run; holds no memory but the arguments.
class BackwardJobs {
 public:
  /// `stretch`: the jobs' own. `delta`: room for D of every row, delta_rows(problem) floats.
  BackwardJobs(const dispatch::BackwardCall& call, std::int32_t stretch, float* delta);
  BackwardJobs(const BackwardJobs&) = delete;
  BackwardJobs& operator=(const BackwardJobs&) = delete;

  static std::int64_t delta_rows(const Problem& problem) {
    return problem.heads_q() * (problem.mode() == Mode::group ? problem.total_q() : problem.batch() * problem.s_q());
  }

  const core::Sequences& sequences() const { return forward_jobs_.sequences(); }
  BackwardJob job(std::int64_t batch, const core::Sequence& sequence, std::int64_t head) const;

 private:
  const Problem& problem_;
  const BackwardArgs& args_;
  const ForwardArgs forward_;  ///< without what backward does not look at
  const dispatch::ForwardCall forward_call_;
  const ForwardJobs forward_jobs_;
  std::int32_t stretch_;
  float* delta_;
};

}  // namespace heed::cpu
