#pragma once

#include <heed/plan.hpp>

#include "dispatch/registry.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The part of choosing a kernel that does not depend on the family. See family.hpp.
namespace heed::dispatch {

/// What the caller allows, whatever the problem.
struct Wishes {
  EngineChoice engine = EngineChoice::automatic;
  std::string_view kernel = {};  ///< only the kernel of this name
};

/// What was found about one kernel for one problem.
struct Verdict {
  const Registry::Entry* entry;
  std::string rule = {};    ///< the first rule that excludes it; empty: it can compute the problem
  std::string reason = {};  ///< what broke the rule, and its sentence
  double seconds = 0;       ///< what the cost model expects of a kernel that can

  bool can() const { return rule.empty(); }
  const std::string& name() const { return entry->kernel->name(); }
};

/// The rules that hold in every family. Nothing when the kernel may be considered.
std::optional<Verdict> broken_general_rule(const Registry::Entry& entry, const Wishes& wishes);

/// Throws Error when the wished kernel does not exist or is of another family.
void check_wishes(const Registry& registry, const Wishes& wishes, std::string_view family);

/// "d is 260; a kernel has a largest head dim"
std::string reason_text(std::string_view detail, std::string_view sentence);

/// The fastest of those that can first, then the others that can, then those that cannot. By name where equal.
void rank(std::vector<Verdict>& verdicts);

/// For verdicts as rank() leaves them.
Explanation explanation_of(const Registry& registry, std::string problem, const Wishes& wishes,
                           const std::vector<Verdict>& verdicts);

/// The Error (unsupported) that names every kernel tried and the rule it failed.
[[noreturn]] void throw_unsupported(const Explanation& explanation, const Wishes& wishes);

}  // namespace heed::dispatch
