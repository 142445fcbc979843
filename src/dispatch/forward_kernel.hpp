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

  /// Which limit of the machine the kernel's algorithm breaks for such a problem ("shared memory: ..."); empty when it
  /// can be compiled. For kernels whose algorithm is the caller's choice.
  virtual std::string impossible(const Problem&) const { return {}; }

  /// Computes. Allocates nothing; checks nothing that a Problem can tell.
  virtual void run(const ForwardCall& call) const = 0;

 protected:
  using AttentionKernel::AttentionKernel;
};

}  // namespace heed::dispatch
