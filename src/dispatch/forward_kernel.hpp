#pragma once

#include <heed/forward.hpp>

#include "dispatch/attention_kernel.hpp"

namespace heed::dispatch {

using ForwardSignature = Signature;
using ForwardAlgorithm = Algorithm;
using ForwardKernelSpec = AttentionKernelSpec;
using ForwardCall = Call<ForwardArgs>;

/// A forward kernel as an engine implements it.
class ForwardKernel : public AttentionKernel {
 public:
  Operation operation() const final { return Operation::forward; }

  /// Computes. Allocates nothing; checks nothing that a Problem can tell.
  virtual void run(const ForwardCall& call) const = 0;

 protected:
  using AttentionKernel::AttentionKernel;
};

}  // namespace heed::dispatch
