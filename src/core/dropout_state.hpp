#pragma once

#include <heed/forward.hpp>

#include "core/sequences.hpp"

namespace heed::core {

/// Dropout with its seed and offset read from `state`, where they lie there.
inline Dropout with_state_read(const Dropout& dropout) {
  Dropout read = dropout;
  if (!dropout.state.given()) return read;
  const IndexArray state(dropout.state);
  read.seed = static_cast<std::uint64_t>(state[0]);
  read.offset = static_cast<std::uint64_t>(state[1]);
  return read;
}

}  // namespace heed::core
