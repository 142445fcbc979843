#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace heed::command {

/// What a reader of a result must know about where it was measured. Never a name of a host or a person.
struct Machine {
  std::string cpu;                                         ///< "AMD EPYC 9B14 96-Core Processor"
  std::string system;                                      ///< "Linux 6.1.0 x86_64, Debian GNU/Linux 12"
  std::string compiler;                                    ///< what compiled this command
  int processors = 0;                                      ///< online
  int affinity = 0;                                        ///< of these, how many this process may use
  std::optional<int> quota;                                ///< the cgroup's limit, in processors
  int threads = 0;                                         ///< what heed uses by default
  std::int64_t l1d_bytes = 0, l2_bytes = 0, l3_bytes = 0;  ///< of the first processor; 0: unknown
  std::int64_t memory_bytes = 0;
  std::string gpu;     ///< the first, "NVIDIA H200"; empty: none
  std::string driver;  ///< newest CUDA version it knows, "13.0"; empty: none
  std::string nvrtc;   ///< version of NVRTC where there is a GPU to compile for; empty: none
};

Machine this_machine();

/// Bytes that processes can still have; infinite where the system does not tell.
double free_memory();

/// The load average of the last minute: how many threads wanted to run. 0 where it is unknown.
double load_average();
nlohmann::ordered_json to_json(const Machine& machine);

/// "32 KiB", "1.5 GiB"; "?" for 0.
std::string bytes_text(double bytes);

}  // namespace heed::command
