#pragma once

#include <heed/backward.hpp>

#include <array>

namespace heed::verify {

/// Every tensor that a call only reads.
inline std::array<TensorView*, 13> input_views(ForwardArgs& args) {
  return {&args.q,
          &args.k,
          &args.v,
          &args.bool_mask,
          &args.block_mask.keep,
          &args.bias,
          &args.alibi_slopes,
          &args.sink,
          &args.seqstart_q,
          &args.seqstart_k,
          &args.seqlen_q,
          &args.seqlen_k,
          &args.dropout.state};
}
/// Of its own beside those of the forward call.
inline std::array<TensorView*, 2> input_views(BackwardArgs& args) { return {&args.d_o, &args.d_lse}; }

}  // namespace heed::verify
