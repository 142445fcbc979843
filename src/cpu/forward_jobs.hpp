#pragma once

#include "core/sequences.hpp"
#include "cpu/forward_job.hpp"
#include "dispatch/forward_kernel.hpp"

namespace heed::cpu {

/// Turns the arguments of one call into jobs. Made once per run; holds no memory.
class ForwardJobs {
 public:
  explicit ForwardJobs(const dispatch::ForwardCall& call);

  const core::Sequences& sequences() const { return sequences_; }
  /// All query heads of key/value head `unit`, or (heads apart) query head `unit` alone.
  ForwardJob job(std::int64_t batch, const core::Sequence& sequence, std::int64_t unit, bool heads_together) const;

 private:
  const Problem& problem_;
  const ForwardArgs& args_;
  core::Sequences sequences_;
  Strides q_, k_, v_, o_;
  core::ScoreStrides bias_, keep_, blocks_;
  core::LseStrides lse_;
  core::SlopeStrides slopes_;
};

}  // namespace heed::cpu
