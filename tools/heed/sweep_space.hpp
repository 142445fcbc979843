#pragma once

#include "cuda/engine_state.hpp"
#include "dispatch/attention_kernel.hpp"
#include "verify/case.hpp"

#include <heed/problem.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace heed::command {

/// What a sweep finds the best algorithm for: one pass, one tile of head dims, with a causal mask or none.
struct SweepClass {
  Operation operation = Operation::forward;
  int d = 128, d_v = 128;
  bool causal = false;
  DataType type = DataType::f16;

  std::string to_string() const;  ///< "d128 causal f16", "bwd d128 causal f16"
  /// A problem of it: as many heads as make 2048 columns, as many batch entries as make 16384 rows.
  verify::Case problem(std::int64_t s) const;
  /// A small one with partial tiles, to check results with.
  verify::Case small_problem() const;
};

/// One combination of knobs, and the kernel that computes so. What compiling, checking and timing need of it is what
/// any kernel of the CUDA engine has, whichever its pass; only the enumeration knows whose knobs they are.
struct SweepCandidate {
  std::string algo;  ///< all its knobs
  bool inaccurate;   ///< its errors are told, and it is never chosen
  std::shared_ptr<const dispatch::AttentionKernel> kernel;
};

/// Which knobs vary, over which values.
using SweepSpace = std::map<std::string, std::vector<int>>;
/// `over`: names of knobs of the pass, or "all"; empty: those that decide most. Throws Error for a name that is none.
SweepSpace sweep_space(Operation operation, const std::string& over);

/// Throws Error when the pass has no tile of these head dims.
void check_tile(const SweepClass& of);

struct SweepCandidates {
  std::vector<SweepCandidate> valid;
  std::map<std::string, int> broken;  ///< how many break which rule
};
/// Every combination that can be compiled; the others by the rule that they break. `quick`: tiles with the deepest
/// rings that fit, and every other knob by itself.
SweepCandidates sweep_candidates(const SweepClass& of, const SweepSpace& space, bool quick,
                                 const std::shared_ptr<cuda::EngineState>& state);

}  // namespace heed::command
