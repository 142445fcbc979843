// Sequences of a packed batch that do not begin at its first row nor end at its last: what a slice of a list of offsets
// tells.
#pragma once

#include "core/float_bits.hpp"
#include "verify/buffers.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace heed::emulated {

/// Two sequences, with rows of others before and behind them: two more, of which no row counts.
inline verify::Case sequences_between_others(verify::Case c) {
  c.mode = Mode::group, c.b = 4;
  c.s_q = {0, 100, 70, 0}, c.s_qpad = {200, 100, 70, 150};
  c.s_k = {0, 140, 65, 0}, c.s_kpad = {300, 140, 65, 260};
  return c;
}

/// The same as offsets alone: those of the first two sequences are the same, and so are those of the last two.
inline void leave_out_the_outer_ones(verify::Buffers& buffers) {
  ForwardArgs& args = buffers.args();
  const auto narrow = [&](TensorView& starts, TensorView& lengths) {
    const std::int64_t last = starts.size(0) - 1;
    auto* const values = static_cast<std::int32_t*>(const_cast<void*>(starts.data));
    values[0] = values[1];
    values[last] = values[last - 1];
    lengths = {};
  };
  narrow(args.seqstart_q, args.seqlen_q);
  narrow(args.seqstart_k, args.seqlen_k);
  buffers.remember_inputs();
}

}  // namespace heed::emulated
