#pragma once

#include "core/forward_args.hpp"

/// The steps by which Problem::of reads BackwardArgs: those of forward_args.hpp for its forward half, and these.
namespace heed::core {

/// Every view of the arguments with the name it has there, outputs first. dropout.randval is not among them.
inline constexpr std::size_t kBackwardOutputs = 6, kBackwardViews = kBackwardOutputs + 2 + kViews - 1;
std::array<NamedView, kBackwardViews> all_views(const BackwardArgs& args);

/// The forward call's arguments as the backward pass reads them: o and lse are inputs, and there is no randval.
ForwardArgs forward_half(const BackwardArgs& args);

/// d_o, d_lse and the gradients against the operands and features they belong to. Needs a problem that has those.
void read_gradients(const BackwardArgs& args, Problem& problem);

}  // namespace heed::core
