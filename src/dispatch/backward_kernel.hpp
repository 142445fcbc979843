#pragma once

#include <heed/backward.hpp>

#include "dispatch/attention_kernel.hpp"

namespace heed::dispatch {

using BackwardSignature = Signature;
using BackwardAlgorithm = Algorithm;
using BackwardKernelSpec = AttentionKernelSpec;
using BackwardCall = Call<BackwardArgs>;

/// A backward kernel as an engine implements it: all the stages from d_o to the gradients.
class BackwardKernel : public AttentionKernel {
 public:
  Operation operation() const final { return Operation::backward; }

  /// Computes. Allocates nothing; checks nothing that a Problem can tell.
  virtual void run(const BackwardCall& call) const = 0;

 protected:
  using AttentionKernel::AttentionKernel;
};

}  // namespace heed::dispatch
