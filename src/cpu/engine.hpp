#pragma once

#include "dispatch/arch.hpp"
#include "dispatch/engine.hpp"

#include <memory>
#include <optional>

namespace heed::cpu {

struct CpuEngineOptions {
  std::optional<dispatch::CpuIsa> max_isa = {};  ///< use no level above this one
};

std::unique_ptr<dispatch::Engine> make_cpu_engine(const CpuEngineOptions& options = {});

}  // namespace heed::cpu
