#pragma once

#include "heed/prepared.hpp"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>

namespace heed::command {

/// Everything about one run of a problem.
struct Result {
  Words words;  ///< the arguments as given
  std::string engine, kernel, isa;
  int threads = 0;
  Problem problem = Problem::forward();
  verify::Case problem_case;
  Work work;
  Times times;
  std::optional<verify::Verdict> verdict;  ///< nothing: not checked
  std::size_t workspace_bytes = 0;
};

/// The record that `heed replay` reads.
nlohmann::ordered_json record_of(const Result& result);

}  // namespace heed::command
