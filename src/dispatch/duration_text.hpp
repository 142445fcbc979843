#pragma once

#include <fmt/format.h>

#include <string>

namespace heed::dispatch {

/// "850 ns", "12.3 us", "4.56 ms", "1.20 s": three digits in the unit that fits.
inline std::string duration_text(double seconds) {
  if (seconds < 1e-6) return fmt::format("{:.0f} ns", seconds * 1e9);
  struct Unit {
    double seconds;
    const char* name;
  };
  constexpr Unit kUnits[] = {{1e-6, "us"}, {1e-3, "ms"}, {1, "s"}};
  const Unit& unit = kUnits[seconds < 1e-3 ? 0 : seconds < 1 ? 1 : 2];
  const double value = seconds / unit.seconds;
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, unit.name);
}

}  // namespace heed::dispatch
