#pragma once

#include "cuda/knobs.hpp"
#include "kernels/hopper_backward_config.h"

#include <variant>

namespace heed::cuda {

/// How a Hopper backward kernel computes, and in which order it takes its tiles.
struct HopperBackwardChoice {
  std::variant<kernels::HopperBackwardConfig, kernels::HopperWideBackwardConfig> config;
  int section = 0;  ///< tiles of keys that are in flight together, as whole heads; 0: by the rule for the problem
  int parts = 0;    ///< that the query heads of a group are divided into; 0: by the rule for the problem

  int d() const {
    return std::visit([](const auto& c) { return c.d; }, config);
  }
  friend bool operator==(const HopperBackwardChoice&, const HopperBackwardChoice&) = default;
};

/// Knobs of the Hopper backward kernels. Those for d = 64 and 128 and those for d = 192 and 256 have different ones.
using HopperBackwardKnob = Knob<HopperBackwardChoice>;
using HopperBackwardAlgo = Algo<HopperBackwardChoice>;

template <>
struct KnobsOf<HopperBackwardChoice> {
  static constexpr std::string_view kExample = "tile_q:64,pipeline:ahead";
  static std::span<const HopperBackwardKnob> all();
  /// Parts are told only where somebody has said how many: a sweep does not vary them.
  static bool told(const HopperBackwardKnob& knob, const HopperBackwardChoice& choice) {
    return knob.name != "parts" || choice.parts != 0;
  }
};

/// Which limit it breaks, with the figures; empty when it can be compiled.
std::string broken_limit(const HopperBackwardChoice& choice);
/// Which of the knobs kernels like this one do not have, and which they have; empty when they have all of them.
std::string foreign_knob(const HopperBackwardChoice& choice, const HopperBackwardAlgo& algo);

}  // namespace heed::cuda
