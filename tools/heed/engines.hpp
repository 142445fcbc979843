#pragma once

#include <heed/plan.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed::command {

struct EngineState {
  std::string name;
  bool present = false;
  std::string text;  ///< what it found, or why it is not here
};

std::vector<EngineState> engines(Context& context);

/// The levels of the CPU engine, lowest first, and whether this machine has them (whatever HEED_MAX_CPU_ISA allows).
std::vector<std::pair<std::string, bool>> isa_levels();

/// The highest level that this context may use on this machine.
std::string isa_in_use(const std::string& wish);

/// What an engine computes on: the ISA level, or the GPU's name.
std::string device_in_use(EngineChoice engine, const std::string& isa);

/// Throws UnsupportedError when this machine has not this level: running a lower one would be a silent change.
void require_isa(std::string_view isa);

/// For what no engine has yet: one line per engine with its reason.
std::string engines_without_it();

}  // namespace heed::command
