#pragma once

#include "verify/run.hpp"

#include <heed/plan.hpp>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace heed::conformance {

/// An engine as the suite sees it. It joins by adding itself to engines() before main begins.
struct Engine {
  std::string name;  ///< letters, digits and underscores: part of the tests' names
  EngineChoice choice = EngineChoice::automatic;
  std::function<std::unique_ptr<Context>()> make_context;
  bool emulated = false;  ///< its instructions are executed by tests/amx

  friend std::ostream& operator<<(std::ostream& out, const Engine& engine) { return out << engine.name; }
};

std::vector<Engine>& engines();

}  // namespace heed::conformance
