#pragma once

#include "core/expect_invalid.hpp"
#include "core/forward_buffers.hpp"

#include <heed/problem.hpp>

#include <functional>

namespace heed {

using Pieces = std::initializer_list<const char*>;

/// Arguments in order but for one change are refused, and the text holds these pieces.
template <class Buffers>
void expect_refused(const std::function<void(ForwardArgs&, Buffers&)>& change, Pieces pieces) {
  Buffers buffers;
  ForwardArgs args = buffers.args();
  ASSERT_NO_THROW(Problem::of(args));
  change(args, buffers);
  expect_invalid([&] { Problem::of(args); }, pieces);
}
inline void batch_refuses(const std::function<void(ForwardArgs&, BatchBuffers&)>& change, Pieces pieces) {
  expect_refused<BatchBuffers>(change, pieces);
}
inline void group_refuses(const std::function<void(ForwardArgs&, GroupBuffers&)>& change, Pieces pieces) {
  expect_refused<GroupBuffers>(change, pieces);
}

template <class Buffers>
Problem accepted(const std::function<void(ForwardArgs&, Buffers&)>& change) {
  Buffers buffers;
  ForwardArgs args = buffers.args();
  change(args, buffers);
  try {
    return Problem::of(args);
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
    return Problem::forward();
  }
}
inline Problem batch_accepts(const std::function<void(ForwardArgs&, BatchBuffers&)>& change) {
  return accepted<BatchBuffers>(change);
}
inline Problem group_accepts(const std::function<void(ForwardArgs&, GroupBuffers&)>& change) {
  return accepted<GroupBuffers>(change);
}

}  // namespace heed
