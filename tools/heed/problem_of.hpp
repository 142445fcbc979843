#pragma once

#include "verify/case.hpp"

#include <heed/problem.hpp>

namespace heed::command {

/// The problem that the tensors of a Case pose, without making them: for questions about problems that need not fit in
/// memory. Equal to Problem::of(Buffers(c).args(), memory).
Problem problem_of(const verify::Case& c, Memory memory);

/// Throws UnsupportedError when the tensors of this Case would not fit in the memory that is free.
void require_memory(const verify::Case& c, const Problem& problem);

}  // namespace heed::command
