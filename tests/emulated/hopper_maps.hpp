// What the tests of Hopper kernels have in common. Comes after their headers.
#pragma once

#include "emulated/async.hpp"
#include "verify/fenced_copies.hpp"

#include <heed/problem.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace heed::emulated {

/// A tensor as map_tensor of src/cuda describes it to the driver.
struct MappedTensor {
  Map map;
  kernels::MapSteps steps;

  /// What the kernel gets; this must stay where it is.
  kernels::TensorMap told() const { return {{static_cast<kernels::u64>(reinterpret_cast<std::uintptr_t>(&map))}}; }
};
inline MappedTensor map_of(const Problem& problem, const kernels::ForwardParams& p, Operand which, const void* data,
                           int box_rows) {
  const Strides strides = problem.strides(which);
  const Operand shape = which == Operand::dk    ? Operand::k
                        : which == Operand::dv  ? Operand::v
                        : which == Operand::d_o ? Operand::o
                                                : which;
  const bool of_q = shape == Operand::q || shape == Operand::o, of_d = shape == Operand::q || shape == Operand::k;
  const std::int64_t heads = of_q ? problem.heads_q() : problem.heads_k();
  return {.map = {.data = static_cast<std::byte*>(const_cast<void*>(data)),
                  .rank = 4,
                  .sizes = {of_d ? problem.d() : problem.d_v(), of_q ? p.s_q : p.s_k, strides.head == 0 ? 1 : heads,
                            strides.batch == 0 ? 1 : problem.batch()},
                  .steps = {2, 2 * strides.sequence, 2 * strides.head, 2 * strides.batch},
                  .box = {64, box_rows, 1, 1}},
          .steps = {strides.head != 0 ? 1 : 0, strides.batch != 0 ? 1 : 0}};
}

/// As map_groups does, where the `group` query heads of a head of K and V share tiles: Q or O.
inline MappedTensor map_groups(const Problem& problem, const kernels::ForwardParams& p, Operand which, const void* data,
                               std::int64_t group, int box_rows) {
  const Strides strides = problem.strides(which);
  const auto of_group = std::min(static_cast<int>(group), box_rows);
  return {.map = {.data = static_cast<std::byte*>(const_cast<void*>(data)),
                  .rank = 5,
                  .sizes = {which == Operand::q ? problem.d() : problem.d_v(), group, p.s_q, problem.heads_q() / group,
                            strides.batch == 0 ? 1 : problem.batch()},
                  .steps = {2, 2 * strides.head, 2 * strides.sequence, 2 * strides.head * group, 2 * strides.batch},
                  .box = {64, of_group, box_rows / of_group, 1, 1}},
          .steps = {1, strides.batch != 0 ? 1 : 0}};
}

/// body(which end of the inputs to fence)
template <class Body>
void for_each_timing(const std::string& what, const Body& body) {
  for (const Timing timing : {Timing::fast_copies, Timing::fast_products}) {
    SCOPED_TRACE(what + (timing == Timing::fast_copies ? ", fast copies" : ", fast products"));
    set_timing(timing);
    body(timing == Timing::fast_copies ? verify::Fence::before : verify::Fence::behind);
  }
}

}  // namespace heed::emulated
