#pragma once

#include "heed/arguments.hpp"
#include "verify/case.hpp"

#include <heed/executor.hpp>
#include <heed/plan.hpp>

#include <memory>
#include <string>

namespace heed::command {

/// Declares -op and says which pass the words ask for: which arguments there are depends on it, so it is found before
/// they are read.
Operation declare_operation(Arguments& arguments, const Words& words);

/// Declares every argument that describes a problem, as the library's verify/case_args.hpp lists them.
void declare_problem(Arguments& arguments, Operation operation = Operation::forward);
/// The problem they describe. Throws Error: invalid, or not built yet.
verify::Case read_problem(const Arguments& arguments, Operation operation = Operation::forward);

/// Where and with what a problem runs.
struct Where {
  EngineChoice engine = EngineChoice::automatic;
  int threads = 0;   ///< 0: as many as this process may use
  std::string isa;   ///< the highest ISA level the CPU engine may use; empty: the best here
  std::string algo;  ///< knobs that the CUDA engine's kernels of `operation` are forced to; empty: heed chooses
  Operation operation = Operation::forward;
  std::string kernel;

  /// The arguments that say the same, each with a blank in front: " -threads=1".
  std::string to_words() const;
};

enum class KernelArgument { taken, not_taken };
void declare_where(Arguments& arguments, KernelArgument kernel = KernelArgument::taken);
/// `operation`: whose knobs -algo turns. Throws UsageError, or UnsupportedError when this machine has not the ISA level
/// that was asked for.
Where read_where(const Arguments& arguments, Operation operation = Operation::forward);

/// Throws UnsupportedError when the engine that was asked for is not here.
std::unique_ptr<Context> make_context(const Where& where);
PlanOptions plan_options(const Where& where);

/// The engine for whatever comes: the one that was asked for, by name, by kernel or by ISA level; else the one on a GPU
/// where there is one.
EngineChoice engine_for(Context& context, const Where& where);
/// Likewise for one problem: the CPU engine, too, where nothing was asked for and the other cannot compute it.
EngineChoice engine_for(Context& context, const Where& where, const verify::Case& problem);
/// Where an engine has its tensors.
Memory memory_of(EngineChoice engine);

}  // namespace heed::command
