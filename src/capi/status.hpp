#pragma once

#include <heed/error.hpp>
#include <heed/heed.h>

#include <fmt/format.h>

#include <new>
#include <string_view>
#include <utility>

namespace heed::capi {

/// Remembers the message for heed_last_error() and returns the status.
heed_status fail(heed_status status, std::string_view message) noexcept;

/// Runs the body of a C function: no exception leaves it.
template <class F>
heed_status guarded(F&& body) noexcept {
  try {
    std::forward<F>(body)();
    return HEED_OK;
  } catch (const Error& error) {
    return fail(static_cast<heed_status>(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(HEED_OUT_OF_MEMORY, "out of memory.");
  } catch (const std::exception& error) {
    return fail(HEED_INTERNAL, error.what());
  } catch (...) {
    return fail(HEED_INTERNAL, "an exception of an unknown kind.");
  }
}

static_assert(static_cast<int>(ErrorCode::invalid_argument) == HEED_INVALID_ARGUMENT);
static_assert(static_cast<int>(ErrorCode::unsupported) == HEED_UNSUPPORTED);
static_assert(static_cast<int>(ErrorCode::out_of_memory) == HEED_OUT_OF_MEMORY);
static_assert(static_cast<int>(ErrorCode::internal) == HEED_INTERNAL);
static_assert(static_cast<int>(ErrorCode::device_failed) == HEED_DEVICE_FAILED);

template <class... Args>
Error invalid(fmt::format_string<Args...> text, Args&&... args) {
  return {ErrorCode::invalid_argument, fmt::format(text, std::forward<Args>(args)...)};
}

/// A pointer that the caller must give.
template <class T>
T& required(T* pointer, std::string_view name) {
  if (pointer == nullptr) throw invalid("{} is NULL: it must be given.", name);
  return *pointer;
}

}  // namespace heed::capi
