#pragma once

#include <heed/error.hpp>

#include <fmt/format.h>

#include <utility>

namespace heed::core {

/// An invalid_argument with its text: what was passed, the rule, what would be accepted. Made only when a rule is
/// broken: cold, so that the checks around it stay small.
template <class... Args>
[[gnu::cold, gnu::noinline]] Error invalid(fmt::format_string<Args...> text, Args&&... args) {
  return {ErrorCode::invalid_argument, fmt::format(text, std::forward<Args>(args)...)};
}

}  // namespace heed::core
