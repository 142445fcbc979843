#pragma once

#include "cuda/forward_params.hpp"
#include "cuda/hopper_knobs.hpp"
#include "cuda/tuning_record.hpp"
#include "dispatch/forward_kernel.hpp"

#include <span>
#include <vector>

namespace heed::cuda {

/// One line of the table of Hopper kernels: what it computes, how, and where it is the one to take.
struct HopperLine {
  dispatch::ForwardKernelSpec spec;
  kernels::HopperConfig config;  ///< for f16, without features
  int room;                      ///< the features' weight() that its registers have room for
  std::int64_t from_s_k = 0, to_s_k = dispatch::Sizes::kNoLimit;  ///< it is the one to take for so many keys
  double preference = 1;                                          ///< what its expected time is multiplied by there
  bool keeps_lazy_maximum = false;                                ///< somebody has told whether it has one
  bool only_block_masks = false;    ///< for block masks alone, whose blocks are whole blocks of its keys
  bool only_narrow_biases = false;  ///< for biases of 16 bits alone, whose rows begin at whole words
};

/// What room for one handful of features more adds to the expected time.
constexpr double kCostOfRoom = 0.05;

/// Those of the shipped tuning record, then those for everything else.
std::span<const HopperLine> hopper_lines();

/// The lines that a tuning record asks for. Throws Error when it asks for what cannot be.
std::vector<HopperLine> tuned_lines(const TuningRecord& record, TunedBy by = TunedBy::heed);

/// A line with these knobs for every problem of a tile of head dims; what they do not say is as in the line that is
/// named after the head dim. Whether it can be compiled is a question for impossible().
HopperLine forced_line(int d, int d_v, const HopperAlgo& algo);
/// One for every tile of head dims.
std::vector<HopperLine> forced_lines(const HopperAlgo& algo);

/// Tiles of query rows of one head, or of so many heads that share them.
std::int64_t row_tiles(const kernels::HopperConfig& config, const Problem& problem, std::int64_t heads_together);

/// The configuration of a line for a problem that it can compute.
kernels::HopperConfig hopper_config(const HopperLine& line, const Problem& problem);

}  // namespace heed::cuda
