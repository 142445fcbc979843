#include "dispatch/forward_family.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace heed::dispatch {
namespace {

using Broken = std::optional<std::string>;

/// What to say when a set or a range does not hold what the problem has.
template <class Allowed, class Value, class Text>
Broken unless_has(const Allowed& allowed, const Value& value, std::string_view what, const Text& text) {
  if (allowed.has(value)) return std::nullopt;
  return fmt::format("{} {}, this kernel takes {}", what, text, allowed.to_string());
}

std::string_view operation_text(Operation operation) {
  return operation == Operation::forward ? "forward" : "backward";
}

constexpr ForwardRule kOperation{"operation", "this family computes the forward pass",
                                 [](const Problem& p, const ForwardKernel&) -> Broken {
                                   if (p.operation() == Operation::forward) return std::nullopt;
                                   return fmt::format("the operation is {}", operation_text(p.operation()));
                                 }};

constexpr ForwardRule kTypes{"types", "a kernel reads the types it was written for",
                             [](const Problem& p, const ForwardKernel& k) {
                               return unless_has(k.signature().types, p.type(), "q, k and v are", name(p.type()));
                             }};

constexpr ForwardRule kOutputTypes{
    "output-types", "a kernel writes the types it was written for", [](const Problem& p, const ForwardKernel& k) {
      return unless_has(k.signature().output_types, p.output_type(), "o is", name(p.output_type()));
    }};

constexpr ForwardRule kHeadDim{
    "head-dim", "a kernel holds rows of q and k of certain lengths",
    [](const Problem& p, const ForwardKernel& k) { return unless_has(k.signature().d, p.d(), "d is", p.d()); }};

constexpr ForwardRule kHeadDimV{
    "head-dim-v", "a kernel holds rows of v and o of certain lengths",
    [](const Problem& p, const ForwardKernel& k) { return unless_has(k.signature().d_v, p.d_v(), "d_v is", p.d_v()); }};

constexpr ForwardRule kMath{"math", "accurate math wants every product in f32",
                            [](const Problem& p, const ForwardKernel& k) {
                              return unless_has(k.signature().math, p.math(), "math is", enum_text(p.math()));
                            }};

constexpr ForwardRule kMode{"mode", "packed sequences (group mode) need a kernel that finds their rows",
                            [](const Problem& p, const ForwardKernel& k) {
                              return unless_has(k.signature().modes, p.mode(), "the mode is", enum_text(p.mode()));
                            }};

constexpr ForwardRule kMask{
    "mask", "a kernel knows certain kinds of mask", [](const Problem& p, const ForwardKernel& k) {
      return unless_has(k.signature().masks, mask_class(p.mask()), "the mask is",
                        fmt::format("{} ({})", p.mask().to_string(), name(mask_class(p.mask()))));
    }};

constexpr ForwardRule kFeatures{"features", "every feature asked for must be in the kernel",
                                [](const Problem& p, const ForwardKernel& k) -> Broken {
                                  const auto absent = features_of(p).without(k.signature().features);
                                  if (absent.empty()) return std::nullopt;
                                  return fmt::format("it has no {}", absent.to_string());
                                }};

/// Saturates: s_q and h may each be near 2^63 in a problem that nobody can hold in memory but may ask about.
std::int64_t rows_per_kv_head(const Problem& p) {
  std::int64_t rows = 0;
  const std::int64_t group = p.heads_k() > 0 ? p.heads_q() / p.heads_k() : 0;
  return __builtin_mul_overflow(p.s_q(), group, &rows) ? Sizes::kNoLimit : rows;
}

constexpr ForwardRule kRowCount{"row-count", "a kernel for decoding takes few query rows per K/V head",
                                [](const Problem& p, const ForwardKernel& k) {
                                  const std::int64_t rows = rows_per_kv_head(p);
                                  return unless_has(k.signature().rows_per_kv_head, rows, "s_q * h / h_k is", rows);
                                }};

constexpr ForwardRule kAccumulate{
    "accumulate", "sums are kept in a type the kernel accumulates in", [](const Problem& p, const ForwardKernel& k) {
      return unless_has(k.signature().accumulate, p.accumulate(), "accumulation is in", name(p.accumulate()));
    }};

constexpr ForwardRule kDeterminism{"determinism", "deterministic means the same bits in every run",
                                   [](const Problem& p, const ForwardKernel& k) -> Broken {
                                     if (!p.deterministic() || k.signature().deterministic) return std::nullopt;
                                     return "the order of its sums may change from run to run";
                                   }};

constexpr ForwardRule kLengths{"lengths", "row numbers have a limit in a kernel",
                               [](const Problem& p, const ForwardKernel& k) -> Broken {
                                 const bool group = p.mode() == Mode::group;
                                 if (auto broken = unless_has(k.signature().lengths, group ? p.total_q() : p.s_q(),
                                                              "q has rows:", group ? p.total_q() : p.s_q()))
                                   return broken;
                                 return unless_has(k.signature().lengths, group ? p.total_k() : p.s_k(),
                                                   "k has rows:", group ? p.total_k() : p.s_k());
                               }};

constexpr ForwardRule kTmaType{"tma-type", "a kernel that stores by TMA writes o in the type of q",
                               [](const Problem& p, const ForwardKernel& k) -> Broken {
                                 if (!k.signature().tma || p.output_type() == p.type()) return std::nullopt;
                                 return fmt::format("q is {} and o is {}", name(p.type()), name(p.output_type()));
                               }};

constexpr ForwardRule kTmaBase{"tma-base", "TMA needs q, k, v and o to begin at multiples of 16 bytes",
                               [](const Problem& p, const ForwardKernel& k) -> Broken {
                                 if (!k.signature().tma || p.aligned()) return std::nullopt;
                                 return "one of them does not";
                               }};

constexpr ForwardRule kTmaKeys{"tma-keys", "a tensor map cannot be empty",
                               [](const Problem& p, const ForwardKernel& k) -> Broken {
                                 if (!k.signature().tma) return std::nullopt;
                                 const bool group = p.mode() == Mode::group;
                                 if ((group ? p.total_k() : p.s_k()) > 0) return std::nullopt;
                                 return "there are no keys";
                               }};

/// TMA steps over (sequence, head, batch): a step of 0 over heads or batch is one entry for all.
Broken tma_stride_broken(const Problem& p) {
  constexpr std::int64_t kBytes = 16, kMost = std::int64_t{1} << 40;
  constexpr std::array kOperands{std::pair{Operand::q, "q"}, std::pair{Operand::k, "k"}, std::pair{Operand::v, "v"},
                                 std::pair{Operand::o, "o"}};
  for (const auto& [operand, letter] : kOperands) {
    Strides s = p.strides(operand);
    const bool by_columns = operand == Operand::v && s.dim != 1 && s.sequence == 1;
    if (by_columns) std::swap(s.dim, s.sequence);  // a matrix of d_v rows of keys
    const bool of_q = operand == Operand::q || operand == Operand::o;
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

constexpr ForwardRule kTmaStride{
    "tma-stride", "TMA needs every stride but the innermost, which is 1, to be a multiple of 16 bytes",
    [](const Problem& p, const ForwardKernel& k) { return k.signature().tma ? tma_stride_broken(p) : std::nullopt; }};

constexpr ForwardRule kRoom{"room", "features share the registers with the tile",
                            [](const Problem& p, const ForwardKernel& k) -> Broken {
                              std::string reason = k.too_much(p);
                              if (reason.empty()) return std::nullopt;
                              return reason;
                            }};

constexpr ForwardRule kAlgorithm{"algorithm", "the knobs of an algorithm must fit together, and into a multiprocessor",
                                 [](const Problem& p, const ForwardKernel& k) -> Broken {
                                   std::string reason = k.impossible(p);
                                   if (reason.empty()) return std::nullopt;
                                   return reason;
                                 }};

constexpr std::array kRules{kOperation, kTypes,    kOutputTypes, kHeadDim,    kHeadDimV,    kMath,    kMode,
                            kMask,      kFeatures, kRowCount,    kAccumulate, kDeterminism, kLengths, kTmaType,
                            kTmaBase,   kTmaKeys,  kTmaStride,   kRoom,       kAlgorithm};

}  // namespace

constinit const Family<Problem, ForwardKernel> kForwardFamily{"forward", kRules};

}  // namespace heed::dispatch
