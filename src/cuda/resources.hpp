#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace heed::cuda {

/// What a kernel takes of a multiprocessor, as the compiler reports it. All zero for PTX, which the driver compiles.
struct Resources {
  int registers = 0;     ///< per thread
  int shared_bytes = 0;  ///< static; what a launch asks for comes on top
  int local_bytes = 0;   ///< of stack per thread
  int spill_bytes = 0;   ///< stored and loaded
  bool serialized_wgmma = false;
  std::string remarks;  ///< what else the compiler had to say, line by line

  friend bool operator==(const Resources&, const Resources&) = default;
};

/// Reads the log of a compilation with --ptxas-options=-v. Of several functions the largest counts.
Resources read_resources(std::string_view log);

nlohmann::ordered_json to_json(const Resources& resources);
/// Throws Error where a value is missing or of the wrong kind.
Resources resources_from_json(const nlohmann::ordered_json& json);

}  // namespace heed::cuda
