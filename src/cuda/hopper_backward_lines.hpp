#pragma once

#include "cuda/hopper_backward_knobs.hpp"
#include "cuda/tuning_record.hpp"
#include "dispatch/backward_kernel.hpp"

#include <span>
#include <string_view>
#include <vector>

namespace heed::cuda {

/// One line of the table of Hopper backward kernels: what it computes, how, and where it is the one to take.
struct HopperBackwardLine {
  dispatch::BackwardKernelSpec spec;
  HopperBackwardChoice choice;  ///< for f16, without features
  int room;                     ///< the features' weight() that its registers have room for
  std::int64_t from_s_k = 0, to_s_k = dispatch::Sizes::kNoLimit;  ///< it is the one to take for so many keys
  double preference = 1;                                          ///< what its expected time is multiplied by there
  bool only_narrow_biases = false;                                ///< it is for a bias of 16 bits
  std::string_view foreign = {};  ///< the knob that somebody has told, and kernels for its d do not have
};

/// Those of the shipped tuning record, then those for everything else.
std::span<const HopperBackwardLine> hopper_backward_lines();
/// Those for everything else: the table of hopper_backward.cpp.
std::span<const HopperBackwardLine> general_backward_lines();

/// The lines that a tuning record asks for. Throws Error when it asks for what cannot be.
std::vector<HopperBackwardLine> tuned_backward_lines(const TuningRecord& record, TunedBy by = TunedBy::heed);

/// A line with these knobs for every problem of a tile of head dims; what they do not say is as in the line that is
/// named after the head dim. Whether it can be compiled is a question for broken_limit().
HopperBackwardLine forced_backward_line(int d, int d_v, const HopperBackwardAlgo& algo);
/// One for every tile of head dims.
std::vector<HopperBackwardLine> forced_backward_lines(const HopperBackwardAlgo& algo);

/// How a line computes a problem.
HopperBackwardChoice hopper_backward_choice(const HopperBackwardLine& line, const Problem& problem);
/// Which limit that breaks; empty when it can be compiled.
std::string broken_limit(const HopperBackwardLine& line, const Problem& problem);

}  // namespace heed::cuda
