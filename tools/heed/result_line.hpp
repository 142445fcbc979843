#pragma once

#include "verify/case.hpp"

#include <string>

namespace heed::command {

/// The first part of a result, without figures:
///   [bf16|batch|bhsd] b:1, h:16/16, s:4096/4096, d:128/128, scale_s:0.0883883, bias:n, p_drop:0, lse:0, mask:b, v:r
/// followed by every argument that is not its default and has no place of its own: ", logits_soft_cap:50".
std::string problem_line(const verify::Case& problem);

/// The same in a few words, for the rows of a table: "bf16 b1 h32/8 s4096 d128 mask b".
std::string problem_words(const verify::Case& problem);

/// "12.34 ms, 0.521 TFlops, 33.10 GB/s"
std::string rates(double seconds, double flops, double bytes);

}  // namespace heed::command
