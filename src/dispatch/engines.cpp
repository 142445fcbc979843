#include "dispatch/engines.hpp"

#include "cpu/engine.hpp"
#include "cuda/engine.hpp"

namespace heed::dispatch {

Engines make_engines(const EngineOptions& options) {
  Engines engines;
  engines.present.push_back(cpu::make_cpu_engine({.max_isa = options.max_cpu_isa}));
  engines.present.push_back(cuda::make_cuda_engine(
      {.family = options.cuda_family, .forward_algo = options.cuda_algo, .backward_algo = options.cuda_backward_algo}));
  return engines;
}

std::shared_ptr<const Registry> make_registry(const Engines& engines) {
  auto registry = std::make_shared<Registry>();
  for (const auto& engine : engines.present) {
    engine->register_places(*registry);
    if (auto reason = engine->unavailable()) {
      registry->add_missing(engine->kind(), *std::move(reason));
    } else {
      engine->register_kernels(*registry);
    }
  }
  for (const auto& engine : engines.missing) registry->add_missing(engine.engine, engine.reason);
  return registry;
}

}  // namespace heed::dispatch
