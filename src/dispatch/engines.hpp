#pragma once

#include "dispatch/engine.hpp"
#include "dispatch/registry.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heed::dispatch {

struct Engines {
  std::vector<std::unique_ptr<Engine>> present;
  std::vector<Registry::MissingEngine> missing;  ///< those that this build does not have
};

/// What the context's options say about them.
struct EngineOptions {
  std::optional<CpuIsa> max_cpu_isa = {};
  std::string cuda_family = {};  ///< "hopper" or "portable": only these kernels; empty: all
  /// Knobs that the Hopper kernels of a pass are forced to; empty: heed chooses.
  std::string cuda_algo = {}, cuda_backward_algo = {};
};

/// The engines of this build: the one list of them.
Engines make_engines(const EngineOptions& options);

/// All their kernels. An engine that is not available here is missing, and its kernels are not asked for.
std::shared_ptr<const Registry> make_registry(const Engines& engines);

}  // namespace heed::dispatch
