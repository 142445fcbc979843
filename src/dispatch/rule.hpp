#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace heed::dispatch {

/// One condition under which a kernel may compute a problem: a name, the sentence a person reads, and the check, which
/// returns what breaks it ("d is 260") or nothing when it holds.
///
///   constexpr Rule<Problem, CudaForward> kTmaStride{
///       "tma-stride", "TMA needs every stride but the innermost to be a multiple of 16 bytes",
///       [](const Problem& p, const CudaForward&) { return first_odd_stride(p, 16); }};
template <class ProblemT, class KernelT>
struct Rule {
  std::string_view name;
  std::string_view sentence;
  std::optional<std::string> (*broken_by)(const ProblemT& problem, const KernelT& kernel);
};

}  // namespace heed::dispatch
