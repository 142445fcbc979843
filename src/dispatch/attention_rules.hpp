#pragma once

#include <heed/problem.hpp>

#include "dispatch/rule.hpp"
#include "dispatch/signature.hpp"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

/// Rules that kernels of both passes are held to. A family lists those it takes, in the order they are asked.
namespace heed::dispatch::rules {

using Broken = std::optional<std::string>;

/// What to say when a set or a range does not hold what the problem has.
template <class Allowed, class Value, class Text>
Broken unless_has(const Allowed& allowed, const Value& value, std::string_view what, const Text& text) {
  if (allowed.has(value)) return std::nullopt;
  return fmt::format("{} {}, this kernel takes {}", what, text, allowed.to_string());
}

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kTypes{
    "types", "a kernel reads the types it was written for", [](const Problem& p, const KernelT& k) {
      return unless_has(k.signature().types, p.type(), "q, k and v are", name(p.type()));
    }};

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kOutputTypes{
    "output-types", "a kernel writes the types it was written for", [](const Problem& p, const KernelT& k) {
      return unless_has(k.signature().output_types, p.output_type(), "o is", name(p.output_type()));
    }};

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kHeadDim{
    "head-dim", "a kernel holds rows of q and k of certain lengths",
    [](const Problem& p, const KernelT& k) { return unless_has(k.signature().d, p.d(), "d is", p.d()); }};

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kHeadDimV{
    "head-dim-v", "a kernel holds rows of v and o of certain lengths",
    [](const Problem& p, const KernelT& k) { return unless_has(k.signature().d_v, p.d_v(), "d_v is", p.d_v()); }};

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kMath{
    "math", "accurate math wants every product in f32", [](const Problem& p, const KernelT& k) {
      return unless_has(k.signature().math, p.math(), "math is", enum_text(p.math()));
    }};

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kMode{
    "mode", "packed sequences (group mode) need a kernel that finds their rows",
    [](const Problem& p, const KernelT& k) {
      return unless_has(k.signature().modes, p.mode(), "the mode is", enum_text(p.mode()));
    }};

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kMask{
    "mask", "a kernel knows certain kinds of mask", [](const Problem& p, const KernelT& k) {
      return unless_has(k.signature().masks, mask_class(p.mask()), "the mask is",
                        fmt::format("{} ({})", p.mask().to_string(), name(mask_class(p.mask()))));
    }};

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kFeatures{"features", "every feature asked for must be in the kernel",
                                                  [](const Problem& p, const KernelT& k) -> Broken {
                                                    const auto absent = features_of(p).without(k.signature().features);
                                                    if (absent.empty()) return std::nullopt;
                                                    return fmt::format("it has no {}", absent.to_string());
                                                  }};

/// Saturates: s_q and h may each be near 2^63 in a problem that nobody can hold in memory but may ask about.
inline std::int64_t rows_per_kv_head(const Problem& p) {
  std::int64_t rows = 0;
  const std::int64_t group = p.heads_k() > 0 ? p.heads_q() / p.heads_k() : 0;
  return __builtin_mul_overflow(p.s_q(), group, &rows) ? Sizes::kNoLimit : rows;
}

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kRowCount{
    "row-count", "a kernel for decoding takes few query rows per K/V head", [](const Problem& p, const KernelT& k) {
      const std::int64_t rows = rows_per_kv_head(p);
      return unless_has(k.signature().rows_per_kv_head, rows, "s_q * h / h_k is", rows);
    }};

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kAccumulate{
    "accumulate", "sums are kept in a type the kernel accumulates in", [](const Problem& p, const KernelT& k) {
      return unless_has(k.signature().accumulate, p.accumulate(), "accumulation is in", name(p.accumulate()));
    }};

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kDeterminism{"determinism", "deterministic means the same bits in every run",
                                                     [](const Problem& p, const KernelT& k) -> Broken {
                                                       if (!p.deterministic() || k.signature().deterministic)
                                                         return std::nullopt;
                                                       return "the order of its sums may change from run to run";
                                                     }};

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kLengths{
    "lengths", "row numbers have a limit in a kernel", [](const Problem& p, const KernelT& k) -> Broken {
      const bool group = p.mode() == Mode::group;
      if (auto broken = unless_has(k.signature().lengths, group ? p.total_q() : p.s_q(),
                                   "q has rows:", group ? p.total_q() : p.s_q()))
        return broken;
      return unless_has(k.signature().lengths, group ? p.total_k() : p.s_k(),
                        "k has rows:", group ? p.total_k() : p.s_k());
    }};

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kTmaType{"tma-type", "a kernel that stores by TMA writes o in the type of q",
                                                 [](const Problem& p, const KernelT& k) -> Broken {
                                                   if (!k.signature().tma || p.output_type() == p.type())
                                                     return std::nullopt;
                                                   return fmt::format("q is {} and o is {}", name(p.type()),
                                                                      name(p.output_type()));
                                                 }};

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kTmaBase{"tma-base", "TMA needs all operands to begin at multiples of 16 bytes",
                                                 [](const Problem& p, const KernelT& k) -> Broken {
                                                   if (!k.signature().tma || p.aligned()) return std::nullopt;
                                                   return "one of them does not";
                                                 }};

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kTmaKeys{"tma-keys", "a tensor map cannot be empty",
                                                 [](const Problem& p, const KernelT& k) -> Broken {
                                                   if (!k.signature().tma) return std::nullopt;
                                                   const bool group = p.mode() == Mode::group;
                                                   if ((group ? p.total_k() : p.s_k()) > 0) return std::nullopt;
                                                   return "there are no keys";
                                                 }};

/// TMA steps over (sequence, head, batch): a step of 0 over heads or batch is one entry for all.
inline Broken tma_stride_broken(const Problem& p) {
  constexpr std::int64_t kBytes = 16, kMost = std::int64_t{1} << 40;
  for (const Operand operand : p.operands()) {
    const std::string_view letter = name(operand);
    Strides s = p.strides(operand);
    const bool by_columns = operand == Operand::v && s.dim != 1 && s.sequence == 1;
    if (by_columns) std::swap(s.dim, s.sequence);  // a matrix of d_v rows of keys
    const bool of_q = shape_of(operand) == Operand::q || shape_of(operand) == Operand::o;
    const std::int64_t rows = p.mode() == Mode::group ? (of_q ? p.total_q() : p.total_k()) : (of_q ? p.s_q() : p.s_k());
    if (s.dim != 1) return fmt::format("{}: elements of a row are {} apart", letter, s.dim);
    const std::array steps{std::pair{s.sequence, "rows"}, std::pair{s.head, "heads"}, std::pair{s.batch, "the batch"}};
    for (const auto& [step, what] : steps) {
      const std::int64_t bytes = step * bits(p.type()) / 8;
      if (bytes % kBytes != 0 || bytes < 0 || bytes >= kMost)
        return fmt::format("{}: the stride of {} is {} bytes", letter, what, bytes);
    }
    if (s.sequence == 0 && rows > 1) return fmt::format("{}: the stride of rows is 0", letter);
  }
  return std::nullopt;
}

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kTmaStride{
    "tma-stride", "TMA needs every stride but the innermost, which is 1, to be a multiple of 16 bytes",
    [](const Problem& p, const KernelT& k) { return k.signature().tma ? tma_stride_broken(p) : std::nullopt; }};

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kRoom{"room", "features share the registers with the tile",
                                              [](const Problem& p, const KernelT& k) -> Broken {
                                                std::string reason = k.too_much(p);
                                                if (reason.empty()) return std::nullopt;
                                                return reason;
                                              }};

template <class KernelT>
inline constexpr Rule<Problem, KernelT> kAlgorithm{
    "algorithm", "the knobs of an algorithm must fit together, and into a multiprocessor",
    [](const Problem& p, const KernelT& k) -> Broken {
      std::string reason = k.impossible(p);
      if (reason.empty()) return std::nullopt;
      return reason;
    }};

}  // namespace heed::dispatch::rules
