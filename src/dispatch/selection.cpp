#include "dispatch/selection.hpp"

#include <heed/error.hpp>

#include "dispatch/duration_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

namespace heed::dispatch {
namespace {

/// A rule about a kernel that needs no problem.
struct GeneralRule {
  std::string_view name;
  std::string_view sentence;
  std::optional<std::string> (*broken_by)(const Registry::Entry& entry, const Wishes& wishes);
};

bool is_choice(EngineChoice choice, EngineKind kind) {
  switch (choice) {
    case EngineChoice::automatic:
      return true;
    case EngineChoice::cpu:
      return kind == EngineKind::cpu;
    case EngineChoice::cuda:
      return kind == EngineKind::cuda;
  }
  return false;
}

constexpr GeneralRule kNamed{"kernel-name", "the caller named the kernel to run",
                             [](const Registry::Entry& entry, const Wishes& wishes) -> std::optional<std::string> {
                               if (wishes.kernel.empty() || wishes.kernel == entry.kernel->name()) return std::nullopt;
                               return fmt::format("{} was asked for", wishes.kernel);
                             }};

constexpr GeneralRule kEngineChosen{
    "engine", "the caller chose the engine",
    [](const Registry::Entry& entry, const Wishes& wishes) -> std::optional<std::string> {
      const EngineKind kind = entry.kernel->arch().engine();
      if (is_choice(wishes.engine, kind)) return std::nullopt;
      return fmt::format("it runs on {}", name(kind));
    }};

constexpr GeneralRule kArch{"arch", "the machine must have what the kernel is written for",
                            [](const Registry::Entry& entry, const Wishes&) -> std::optional<std::string> {
                              if (entry.lacks.empty()) return std::nullopt;
                              return entry.lacks;
                            }};

constexpr std::array kGeneralRules{kNamed, kEngineChosen, kArch};

/// Excluded by the caller's own wish: nothing he does not know.
bool not_wished(std::string_view rule) { return rule == kNamed.name || rule == kEngineChosen.name; }

std::string why_it_won(const std::vector<Verdict>& verdicts, const Wishes& wishes) {
  const Verdict& first = verdicts.front();
  if (!wishes.kernel.empty()) return fmt::format("the caller named it; expected {}", duration_text(first.seconds));
  if (verdicts.size() < 2 || !verdicts[1].can())
    return fmt::format("the only kernel that can; expected {}", duration_text(first.seconds));
  return fmt::format("the fastest of those that can: expected {}, {} {}", duration_text(first.seconds),
                     verdicts[1].name(), duration_text(verdicts[1].seconds));
}

std::string why_outranked(const Verdict& verdict, const Verdict& chosen) {
  if (verdict.seconds == chosen.seconds)
    return fmt::format("expected {} like {}, which comes first by name", duration_text(verdict.seconds), chosen.name());
  return fmt::format("expected {}, {} {}", duration_text(verdict.seconds), chosen.name(),
                     duration_text(chosen.seconds));
}

}  // namespace

std::optional<Verdict> broken_general_rule(const Registry::Entry& entry, const Wishes& wishes) {
  for (const GeneralRule& rule : kGeneralRules) {
    if (const auto detail = rule.broken_by(entry, wishes))
      return Verdict{&entry, std::string(rule.name), reason_text(*detail, rule.sentence)};
  }
  return std::nullopt;
}

void check_wishes(const Registry& registry, const Wishes& wishes, std::string_view family) {
  if (wishes.kernel.empty()) return;
  const Registry::Entry* entry = registry.find(wishes.kernel);
  if (entry == nullptr) {
    for (const auto& missing : registry.missing_engines())
      if (wishes.kernel.starts_with(fmt::format("{}/", name(missing.engine))))
        throw Error(ErrorCode::unsupported,
                    fmt::format("not supported: {} : its engine is not here.\n  {}   missing   {}", wishes.kernel,
                                name(missing.engine), missing.reason));
    throw Error(ErrorCode::invalid_argument,
                fmt::format("no kernel is called '{}'; 'heed kernels' lists the names.", wishes.kernel));
  }
  if (entry->kernel->family() != family)
    throw Error(ErrorCode::invalid_argument, fmt::format("{} is a kernel of the family {}, the problem is one for {}.",
                                                         wishes.kernel, entry->kernel->family(), family));
}

std::string reason_text(std::string_view detail, std::string_view sentence) {
  return fmt::format("{}; {}", detail, sentence);
}

void rank(std::vector<Verdict>& verdicts) {
  for (const Verdict& verdict : verdicts) {
    // A cost that cannot be compared would leave the choice to chance.
    if (verdict.can() && !(std::isfinite(verdict.seconds) && verdict.seconds > 0))
      throw Error(ErrorCode::internal, fmt::format("{} expects to take {} s: a cost must be finite and positive.",
                                                   verdict.name(), verdict.seconds));
  }
  const auto key = [](const Verdict& v) {
    return std::tuple<bool, double, const std::string&>(!v.can(), v.seconds, v.name());
  };
  std::sort(verdicts.begin(), verdicts.end(), [&](const Verdict& a, const Verdict& b) { return key(a) < key(b); });
}

Explanation explanation_of(const Registry& registry, std::string problem, const Wishes& wishes,
                           const std::vector<Verdict>& verdicts) {
  Explanation explanation{.problem = std::move(problem), .candidates = {}, .missing_engines = {}};
  for (const Verdict& verdict : verdicts) {
    Explanation::Candidate candidate{verdict.entry->info(), false, verdict.rule, verdict.reason};
    if (verdict.can() && &verdict == &verdicts.front()) {
      candidate.chosen = true;
      candidate.reason = why_it_won(verdicts, wishes);
    } else if (verdict.can()) {
      candidate.rule = "outranked";
      candidate.reason = why_outranked(verdict, verdicts.front());
    }
    explanation.candidates.push_back(std::move(candidate));
  }
  for (const auto& missing : registry.missing_engines())
    explanation.missing_engines.emplace_back(name(missing.engine), missing.reason);
  return explanation;
}

void throw_unsupported(const Explanation& explanation, const Wishes& wishes) {
  struct Line {
    std::string_view who, rule, reason;
  };
  std::vector<Line> lines;
  for (const auto& candidate : explanation.candidates)
    if (!not_wished(candidate.rule)) lines.push_back({candidate.kernel.name, candidate.rule, candidate.reason});
  for (const auto& [engine, reason] : explanation.missing_engines) {
    const EngineKind kind = engine == name(EngineKind::cuda) ? EngineKind::cuda : EngineKind::cpu;
    if (wishes.kernel.empty() && is_choice(wishes.engine, kind)) lines.push_back({engine, "missing", reason});
  }
  if (lines.empty()) lines.push_back({"heed", "missing", "no kernel of this family on the engine that was asked for"});

  std::size_t who_width = 0, rule_width = 0;
  for (const Line& line : lines) {
    who_width = std::max(who_width, line.who.size());
    rule_width = std::max(rule_width, line.rule.size());
  }
  std::string text = fmt::format("not supported: {}.", explanation.problem);
  for (const Line& line : lines)
    text += fmt::format("\n  {:<{}}   {:<{}}   {}", line.who, who_width, line.rule, rule_width, line.reason);
  throw Error(ErrorCode::unsupported, text);
}

}  // namespace heed::dispatch
