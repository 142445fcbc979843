// How much the tests run.
#pragma once

#include <cstdlib>
#include <string_view>

namespace heed {

/// HEED_TEST_SCALE: "small" under sanitizers, "full" for whoever has the time; empty by default.
inline std::string_view test_scale() {
  const char* const told = std::getenv("HEED_TEST_SCALE");
  return told == nullptr ? "" : told;
}

}  // namespace heed
