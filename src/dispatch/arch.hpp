#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace heed::dispatch {

/// What runs kernels. The public EngineChoice is a wish about it.
enum class EngineKind : std::uint8_t { cpu, cuda };
std::string_view name(EngineKind kind);

/// The levels the CPU kernels are compiled for, each containing those before it. Which of them this machine has is
/// found by the CPU engine, by exact feature bits.
enum class CpuIsa : std::uint8_t { baseline, avx2, avx512, avx512bf16, amx };
inline constexpr int kCpuIsaCount = 5;
std::string_view name(CpuIsa isa);
/// Throws Error, which lists the accepted names and says where the text came from ("HEED_MAX_CPU_ISA").
CpuIsa parse_cpu_isa(std::string_view text, std::string_view source);

/// What a kernel is written for: an ISA level of the CPU, or a compute capability of a GPU (Sm{90}).
struct Sm {
  int number = 0;
};

class Arch {
 public:
  constexpr Arch() = default;
  // NOLINTBEGIN(google-explicit-constructor): tables of kernels write .arch = CpuIsa::avx512
  constexpr Arch(CpuIsa isa) : engine_(EngineKind::cpu), level_(static_cast<int>(isa)) {}
  constexpr Arch(Sm sm) : engine_(EngineKind::cuda), level_(sm.number) {}
  // NOLINTEND(google-explicit-constructor)

  constexpr EngineKind engine() const { return engine_; }
  constexpr int level() const { return level_; }
  constexpr std::optional<CpuIsa> cpu_isa() const {
    if (engine_ != EngineKind::cpu) return std::nullopt;
    return static_cast<CpuIsa>(level_);
  }
  std::string to_string() const;  ///< "avx512", "sm_90"

  friend constexpr auto operator<=>(const Arch&, const Arch&) = default;

 private:
  EngineKind engine_ = EngineKind::cpu;
  int level_ = 0;
};

/// Why a machine that has `has` cannot run what needs `needs` ("needs amx, this machine has avx512"); empty when it
/// can.
std::string lacks(const Arch& needs, const Arch& has);

}  // namespace heed::dispatch
