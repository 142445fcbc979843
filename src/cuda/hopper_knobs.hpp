#pragma once

#include "cuda/knobs.hpp"
#include "kernels/hopper_config.h"

namespace heed::cuda {

/// Knobs of the Hopper forward kernels.
using HopperKnob = Knob<kernels::HopperConfig>;
using HopperAlgo = Algo<kernels::HopperConfig>;

template <>
struct KnobsOf<kernels::HopperConfig> {
  static constexpr std::string_view kExample = "stages:3,tile_k:128";
  static std::span<const HopperKnob> all();
  /// What another knob says in one word is left out.
  static bool told(const HopperKnob& knob, const kernels::HopperConfig& config);
};

/// Which limit a configuration breaks, with the figures ("shared memory: 261 KB, more than ..."); empty when it can be
/// compiled.
std::string broken_limit(const kernels::HopperConfig& config);

}  // namespace heed::cuda
