/// heed bwd: computes the gradients of attention, checks them against the oracle, times them.

#include "heed/attention_once.hpp"
#include "heed/command.hpp"

namespace heed::command {

int run_bwd(const Words& words) { return attention_once(words, Operation::backward).exit_code; }

}  // namespace heed::command
