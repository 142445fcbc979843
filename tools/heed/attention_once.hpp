#pragma once

#include "heed/record.hpp"

namespace heed::command {

/// What `heed fwd` or `heed bwd` does with these words, and what came out of it; HelpShown when they ask for help.
struct Outcome {
  Result result;
  int exit_code = kValid;
};
Outcome attention_once(const Words& words, Operation operation);

}  // namespace heed::command
