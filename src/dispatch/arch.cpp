#include "dispatch/arch.hpp"

#include <heed/error.hpp>

#include <fmt/format.h>

#include <array>

namespace heed::dispatch {
namespace {

constexpr std::array<std::string_view, kCpuIsaCount> kIsaNames{"baseline", "avx2", "avx512", "avx512bf16", "amx"};

}  // namespace

std::string_view name(EngineKind kind) { return kind == EngineKind::cpu ? "cpu" : "cuda"; }

std::string_view name(CpuIsa isa) { return kIsaNames.at(static_cast<std::size_t>(isa)); }

CpuIsa parse_cpu_isa(std::string_view text, std::string_view source) {
  for (std::size_t i = 0; i < kIsaNames.size(); ++i)
    if (text == kIsaNames[i]) return static_cast<CpuIsa>(i);
  throw Error(ErrorCode::invalid_argument, fmt::format("{}={} : the CPU's instruction sets are called {}.", source,
                                                       text, fmt::join(kIsaNames, ", ")));
}

std::string Arch::to_string() const {
  if (const auto isa = cpu_isa()) return std::string(name(*isa));
  return fmt::format("sm_{}", level_);
}

std::string lacks(const Arch& needs, const Arch& has) {
  if (needs.engine() == has.engine() && needs.level() <= has.level()) return {};
  return fmt::format("needs {}, this machine has {}", needs.to_string(), has.to_string());
}

}  // namespace heed::dispatch
