#include "cpu/engine.hpp"

#include "cpu/backward_kernel.hpp"
#include "cpu/forward_kernel.hpp"
#include "cpu/isa.hpp"
#include "dispatch/registry.hpp"

#include <algorithm>

namespace heed::cpu {

namespace {

class CpuEngine final : public dispatch::Engine {
 public:
  explicit CpuEngine(const CpuEngineOptions& options)
      : isa_(options.max_isa ? std::min(machine().best(), *options.max_isa) : machine().best()) {}

  dispatch::EngineKind kind() const override { return dispatch::EngineKind::cpu; }
  std::optional<std::string> unavailable() const override { return std::nullopt; }
  std::string arch_text() const override { return std::string(name(isa_)) + " (" + machine().model + ")"; }

  void register_kernels(dispatch::Registry& registry) const override {
    for (const dispatch::ForwardKernelSpec& spec : forward_kernel_specs())
      registry.add(make_forward_kernel(spec), lacks(spec.algorithm.arch));
    for (const dispatch::BackwardKernelSpec& spec : backward_kernel_specs())
      registry.add(make_backward_kernel(spec), lacks(spec.algorithm.arch));
  }

 private:
  std::string lacks(const dispatch::Arch& needed) const {
    std::string missing = dispatch::lacks(needed, machine().best());
    if (missing.empty() && needed > dispatch::Arch(isa_))
      missing = "needs " + needed.to_string() + ", which is left aside: the CPU engine was limited to " +
                std::string(name(isa_));
    return missing;
  }

  dispatch::CpuIsa isa_;
};

}  // namespace

std::unique_ptr<dispatch::Engine> make_cpu_engine(const CpuEngineOptions& options) {
  return std::make_unique<CpuEngine>(options);
}

}  // namespace heed::cpu
