#pragma once

#include "dispatch/registry.hpp"
#include "dispatch/rule.hpp"
#include "dispatch/selection.hpp"

#include <concepts>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace heed::dispatch {

/// A kind of problem that has a one-line text, and a kind of kernel that says how long it expects to take for one.
template <class ProblemT, class KernelT>
concept ProblemAndKernel = std::derived_from<KernelT, Kernel> && requires(const ProblemT& p, const KernelT& k) {
  { p.to_string() } -> std::convertible_to<std::string>;
  { k.expected_seconds(p) } -> std::convertible_to<double>;
};

/// Kernels that compute the same kind of problem, and the rules that say which of them can compute a given one.
///
/// A new family is a problem type, a class derived from Kernel, and one of these with its rules; nothing here changes
/// (tests/dispatch/family_test.cpp makes one). Its kernels live in the same Registry as all others and are recognised
/// by their class.
template <class ProblemT, class KernelT>
  requires ProblemAndKernel<ProblemT, KernelT>
struct Family {
  std::string_view name;
  std::span<const Rule<ProblemT, KernelT>> rules;

  /// Every kernel of this family with its verdict, the chosen one first. What select() takes and explain() tells both
  /// come from here, so that they cannot disagree.
  std::vector<Verdict> judge(const Registry& registry, const ProblemT& problem, const Wishes& wishes) const {
    check_wishes(registry, wishes, name);
    std::vector<Verdict> verdicts;
    for (const Registry::Entry& entry : registry.entries()) {
      if (const auto* kernel = dynamic_cast<const KernelT*>(entry.kernel.get()))
        verdicts.push_back(judge_one(entry, *kernel, problem, wishes));
    }
    rank(verdicts);
    return verdicts;
  }

  /// Throws Error (unsupported) when no kernel can.
  std::shared_ptr<const KernelT> select(const Registry& registry, const ProblemT& problem, const Wishes& wishes) const {
    const auto verdicts = judge(registry, problem, wishes);
    if (verdicts.empty() || !verdicts.front().can())
      throw_unsupported(explanation_of(registry, problem.to_string(), wishes, verdicts), wishes);
    return std::static_pointer_cast<const KernelT>(verdicts.front().entry->kernel);
  }

  Explanation explain(const Registry& registry, const ProblemT& problem, const Wishes& wishes) const {
    return explanation_of(registry, problem.to_string(), wishes, judge(registry, problem, wishes));
  }

 private:
  Verdict judge_one(const Registry::Entry& entry, const KernelT& kernel, const ProblemT& problem,
                    const Wishes& wishes) const {
    if (auto broken = broken_general_rule(entry, wishes)) return *std::move(broken);
    for (const auto& rule : rules) {
      if (const auto detail = rule.broken_by(problem, kernel))
        return {&entry, std::string(rule.name), reason_text(*detail, rule.sentence)};
    }
    return {.entry = &entry, .seconds = kernel.expected_seconds(problem)};
  }
};

}  // namespace heed::dispatch
