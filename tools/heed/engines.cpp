#include "heed/engines.hpp"

#include "cpu/isa.hpp"
#include "cuda/device.hpp"
#include "dispatch/context_impl.hpp"
#include "heed/command.hpp"

#include <fmt/format.h>

namespace heed::command {

std::vector<EngineState> engines(Context& context) {
  std::vector<EngineState> list;
  for (const auto& engine : context.impl().engines.present) {
    const auto reason = engine->unavailable();
    list.push_back({std::string(dispatch::name(engine->kind())), !reason, reason ? *reason : engine->arch_text()});
  }
  for (const auto& missing : context.impl().engines.missing)
    list.push_back({std::string(dispatch::name(missing.engine)), false, missing.reason});
  return list;
}

std::vector<std::pair<std::string, bool>> isa_levels() {
  std::vector<std::pair<std::string, bool>> levels;
  for (int level = 0; level < dispatch::kCpuIsaCount; ++level)
    levels.emplace_back(dispatch::name(static_cast<dispatch::CpuIsa>(level)),
                        cpu::machine().has[static_cast<std::size_t>(level)]);
  return levels;
}

std::string isa_in_use(const std::string& wish) {
  if (!wish.empty()) return wish;
  const dispatch::CpuIsa best = cpu::machine().best();
  constexpr const char* kVariable = "HEED_MAX_CPU_ISA";
  const std::string_view limit = dispatch::environment(kVariable);
  return std::string(dispatch::name(limit.empty() ? best : std::min(best, dispatch::parse_cpu_isa(limit, kVariable))));
}

std::string device_in_use(EngineChoice engine, const std::string& isa) {
  return engine == EngineChoice::cuda ? cuda::devices().front().name : isa_in_use(isa);
}

void require_isa(std::string_view isa) {
  std::string here;
  for (const auto& [level, present] : isa_levels()) {
    if (level == isa && present) return;
    if (present) here += (here.empty() ? "" : ", ") + level;
  }
  throw UnsupportedError(fmt::format("not supported: -isa={} : this machine has {}.", isa, here));
}

std::string engines_without_it() {
  Context context(Context::Options{.threads = 1});
  std::string lines;
  for (const EngineState& engine : engines(context))
    lines += fmt::format("{}  {:<5} {}", lines.empty() ? "" : "\n", engine.name,
                         engine.present ? "has no kernel for it" : engine.text);
  return lines;
}

}  // namespace heed::command
