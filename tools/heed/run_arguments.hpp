#pragma once

#include "heed/arguments.hpp"

#include <cstdint>
#include <string>

namespace heed::command {

enum class Check : std::uint8_t { none, sample, full };

enum class Clock : std::uint8_t {
  engine,  ///< its own: on the CPU engine the host's
  host,
};

/// How a problem is run and reported.
struct Run {
  Check check = Check::sample;
  bool spoil = false;  ///< make one element wrong before checking
  int warmup = 5, repeat = 20;
  Clock clock = Clock::engine;
  bool counts_given = false;  ///< warmup or repeat was asked for: run exactly so often, however long it takes
  bool kernel_name = false;
  bool json = false;
  std::string json_file;
};

/// heed fwd writes a record into a file (-json=1); heed explain prints its answer (--json).
enum class JsonMeans { write_file, print_it };

void declare_run(Arguments& arguments, JsonMeans json, const std::string& json_file = "fmha_fwd.json");
/// Throws UsageError, or UnsupportedError for what is not built yet.
Run read_run(const Arguments& arguments);

}  // namespace heed::command
