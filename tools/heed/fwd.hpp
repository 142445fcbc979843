#pragma once

#include "heed/record.hpp"

namespace heed::command {

/// What `heed fwd` does with these words, and what came out of it; HelpShown when they ask for help.
struct ForwardOutcome {
  Result result;
  int exit_code = kValid;
};
ForwardOutcome forward_once(const Words& words);

}  // namespace heed::command
