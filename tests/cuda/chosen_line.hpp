// Which Hopper forward kernel is chosen for a problem.
#pragma once

#include "cuda/hopper_forward.hpp"
#include "cuda/hopper_lines.hpp"
#include "dispatch/forward_family.hpp"

#include <string>
#include <vector>

namespace heed::cuda {

/// Its name. `user`: lines of the user's own record, before the shipped ones.
inline std::string line_for(const Problem& problem, const std::vector<HopperLine>& user = {}) {
  dispatch::Registry registry;
  for (const HopperLine& line : user) registry.add(make_hopper_forward(line, nullptr));
  for (const HopperLine& line : hopper_lines()) registry.add(make_hopper_forward(line, nullptr));
  return dispatch::kForwardFamily.select(registry, problem, {})->name();
}

}  // namespace heed::cuda
