#include "capi/status.hpp"

#include <string>

namespace heed::capi {
namespace {

thread_local std::string t_message;
// What is told when there is no memory even for the message.
thread_local const char* t_fallback = nullptr;

}  // namespace

heed_status fail(heed_status status, std::string_view message) noexcept {
  try {
    t_message = message;
    t_fallback = nullptr;
  } catch (...) {
    t_fallback = "out of memory; the message was lost.";
  }
  return status;
}

}  // namespace heed::capi

const char* heed_last_error(void) {
  using namespace heed::capi;
  return t_fallback != nullptr ? t_fallback : t_message.c_str();
}

const char* heed_version(void) { return HEED_VERSION_STRING; }
