/// heed fwd: computes forward attention, checks it against the oracle, times it.

#include "heed/attention_once.hpp"
#include "heed/command.hpp"

namespace heed::command {

int run_fwd(const Words& words) { return attention_once(words, Operation::forward).exit_code; }

}  // namespace heed::command
