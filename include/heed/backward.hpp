#pragma once

#include <heed/forward.hpp>

namespace heed {

/// Everything backward attention can be told: the arguments of the forward call as they were, with o and lse as it left
/// them, the gradient of its output, and where the gradients of its inputs go.
///
///   const heed::ForwardArgs forward{.q = ..., .k = ..., .v = ..., .o = ..., .lse = ..., .mask = heed::Mask::causal()};
///   heed::forward(forward);
///   ...                                  // the loss, and from it the gradient d_o of o
///   heed::backward({.forward = forward, .d_o = ..., .dq = ..., .dk = ..., .dv = ...});
///
/// So mask, scale, dropout and all the rest are told once and cannot differ between the two calls. A dropout pattern is
/// replayed from its seed and offset; dropout.randval is neither read nor written.
struct BackwardArgs {
  ForwardArgs forward;  ///< o and lse (natural logarithm) are read, and must be given

  TensorView d_o;  ///< as o, of its type: the gradient of o
  OutputView dq;   ///< as q, of the type of q
  OutputView dk;   ///< as k: h_k heads, summed over the query heads that share each
  OutputView dv;   ///< as v, its head dim innermost

  TensorView d_lse = {};  ///< f32, as lse: its gradient, where the loss depends on it, too

  OutputView dbias = {};    ///< f32 or the type of bias, of the sizes of bias: summed over whatever shared an element
  OutputView dsink = {};    ///< f32 [h]
  OutputView dslopes = {};  ///< f32, as alibi_slopes

  /// What dQ is summed up in, from one block of keys to the next: f32, or the type of q where that has 16 bits.
  DataType dq_accumulation = DataType::f32;
  /// The same bits in every run, or an error; dbias, dsink and dslopes are always so.
  bool deterministic = false;
};

/// Computes the gradients. On the CPU engine they are there when this returns; on the CUDA engine the work has been put
/// on the stream. Throws Error before anything is written.
HEED_API void backward(const BackwardArgs& args, const RunOptions& options = {});

}  // namespace heed
