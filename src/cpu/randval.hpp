#pragma once

#include <heed/executor.hpp>
#include <heed/forward.hpp>

namespace heed::cpu {

/// Writes the random word of every entry (b, h, i, j) to args.dropout.randval.
void write_random_words(const ForwardArgs& args, Executor& executor);

}  // namespace heed::cpu
