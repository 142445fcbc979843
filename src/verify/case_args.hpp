#pragma once

#include "verify/case.hpp"

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Cases as the -key=value arguments of `heed fwd` and `heed bwd`: the one place that knows their names, defaults and
/// texts.
namespace heed::verify {

struct CaseKey {
  std::string_view name;
  std::string_view preset;
  std::string_view help;
  std::string_view group;              ///< title under which the help lists it
  std::optional<Operation> only = {};  ///< nothing: of both operations
};

/// Every key that describes a case, in the order the help lists them. Those of capabilities that are not built yet are
/// among them: they are read, and refused as unsupported unless they ask for nothing.
std::vector<CaseKey> case_keys(Operation operation);

/// Keys that mean the same as another: {"scale", "scale_s"}.
std::span<const std::pair<std::string_view, std::string_view>> case_key_aliases();

/// Throws Error: invalid_argument with "-key=text : the rule, and what would work"; unsupported for what is not built
/// yet. Keys may be left out. The seed 0 is replaced by a random one.
Case case_from_args(const std::map<std::string, std::string>& args, Operation operation = Operation::forward);

/// The arguments that differ from the default, in the order of case_keys(). case_from_args reads them back to an equal
/// Case of the same operation.
std::vector<std::pair<std::string, std::string>> args_of(const Case& c);

}  // namespace heed::verify
