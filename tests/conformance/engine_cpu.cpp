/// The CPU engine, once for every ISA level this machine has, or has emulated.

#include "amx/emulation.hpp"
#include "conformance/engines.hpp"
#include "cpu/isa.hpp"
#include "dispatch/arch.hpp"

namespace heed::conformance {
namespace {

constexpr int kThreads = 2;

[[maybe_unused]] const bool g_cpu_joined = [] {
  for (int level = 0; level < dispatch::kCpuIsaCount; ++level) {
    if (!cpu::machine().has[static_cast<std::size_t>(level)]) continue;
    const std::string isa(dispatch::name(static_cast<dispatch::CpuIsa>(level)));
    engines().push_back(
        {.name = "cpu_" + isa,
         .choice = EngineChoice::cpu,
         .make_context =
             [isa] { return std::make_unique<Context>(Context::Options{.threads = kThreads, .max_cpu_isa = isa}); },
         .emulated = static_cast<dispatch::CpuIsa>(level) == dispatch::CpuIsa::amx && amx::emulated()});
  }
  return true;
}();

}  // namespace
}  // namespace heed::conformance
