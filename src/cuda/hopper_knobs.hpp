#pragma once

#include "kernels/hopper_config.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed::cuda {

/// A knob of the Hopper forward kernels as people write it: "stages:3", "turns:products". Every value is a number;
/// those with names are numbered from 0.
struct HopperKnob {
  std::string_view name;
  std::string_view help;
  std::span<const std::string_view> words;  ///< names of the values; empty: numbers from `least` to `most`
  int least, most;
  int (*get)(const kernels::HopperConfig& config);
  void (*set)(kernels::HopperConfig& config, int value);

  std::string text(int value) const;
  std::string values() const;  ///< "free, products or softmax"; "1 to 4"
};

std::span<const HopperKnob> hopper_knobs();
/// Throws Error when there is none of this name.
const HopperKnob& hopper_knob(std::string_view name);

/// Some knobs with their values: what a caller, a sweep or a tuning record says of an algorithm.
class HopperAlgo {
 public:
  HopperAlgo() = default;
  /// "stages:3,tile_k:128". Throws Error: an unknown knob, a value it does not take, a knob given twice.
  static HopperAlgo parse(std::string_view text);
  /// Every knob of a configuration.
  static HopperAlgo of(const kernels::HopperConfig& config);

  HopperAlgo& set(const HopperKnob& knob, int value);
  bool empty() const { return settings_.empty(); }
  bool has(std::string_view knob) const;
  /// The configuration with these knobs turned, in the order they were given.
  kernels::HopperConfig applied_to(kernels::HopperConfig config) const;
  std::string to_string() const;

 private:
  struct Setting {
    const HopperKnob* knob;
    int value;
  };
  std::vector<Setting> settings_;
};

/// Which limit a configuration breaks, with the figures ("shared memory: 261 KB, more than ..."); empty when it can be
/// compiled.
std::string broken_limit(const kernels::HopperConfig& config);

}  // namespace heed::cuda
