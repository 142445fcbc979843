// How much the tests run.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace heed {

/// HEED_TEST_SCALE: "small" under sanitizers, "full" for whoever has the time; empty by default.
inline std::string_view test_scale() {
  const char* const told = std::getenv("HEED_TEST_SCALE");
  return told == nullptr ? "" : told;
}

/// How often something is repeated: `usual` times, or HEED_TEST_REPEATS.
inline std::int64_t test_repeats(std::int64_t usual) {
  const char* const told = std::getenv("HEED_TEST_REPEATS");
  return told == nullptr ? usual : std::atoll(told);
}

}  // namespace heed
