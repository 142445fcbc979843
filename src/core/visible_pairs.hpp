#pragma once

#include <heed/mask.hpp>

#include <cstdint>

namespace heed::core {

/// How many pairs of the rows [0, s_q) and the keys [0, bounds.s_k) see each other. Takes the same few steps for any
/// length. With another s_k in the same bounds it counts the pairs of the keys before that one.
double visible_pairs(const MaskBounds& bounds, std::int64_t s_q);

}  // namespace heed::core
