#include <heed/plan.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace heed {

const Explanation::Candidate* Explanation::chosen() const {
  const auto it = std::find_if(candidates.begin(), candidates.end(), [](const Candidate& c) { return c.chosen; });
  return it == candidates.end() ? nullptr : &*it;
}

std::string Explanation::to_string() const {
  std::string text = fmt::format("problem     {}\n", problem);
  if (const Candidate* best = chosen()) {
    text += fmt::format("kernel      {}\nwhy         {}\nalgorithm   {}\ncomputes    {}\n", best->kernel.name,
                        best->reason, best->kernel.algorithm, best->kernel.signature);
  } else {
    text += "kernel      none can compute it\n";
  }
  std::size_t name_width = 0, rule_width = 0;
  for (const Candidate& candidate : candidates) {
    if (candidate.chosen) continue;
    name_width = std::max(name_width, candidate.kernel.name.size());
    rule_width = std::max(rule_width, candidate.rule.size());
  }
  if (name_width > 0) text += "not chosen\n";
  for (const Candidate& candidate : candidates) {
    if (candidate.chosen) continue;
    text += fmt::format("  {:<{}}   {:<{}}   {}\n", candidate.kernel.name, name_width, candidate.rule, rule_width,
                        candidate.reason);
  }
  if (!missing_engines.empty()) text += "engines that are not here\n";
  for (const auto& [engine, reason] : missing_engines) text += fmt::format("  {}   {}\n", engine, reason);
  return text;
}

std::string Explanation::to_json() const {
  const auto kernel_json = [](const KernelInfo& kernel) {
    return nlohmann::ordered_json{{"name", kernel.name},           {"engine", kernel.engine},
                                  {"family", kernel.family},       {"arch", kernel.arch},
                                  {"signature", kernel.signature}, {"algorithm", kernel.algorithm}};
  };
  nlohmann::ordered_json json{{"problem", problem}, {"chosen", nullptr}, {"why", nullptr}};
  auto others = nlohmann::ordered_json::array();
  for (const Candidate& candidate : candidates) {
    if (candidate.chosen) {
      json["chosen"] = kernel_json(candidate.kernel);
      json["why"] = candidate.reason;
    } else {
      others.push_back(
          {{"kernel", kernel_json(candidate.kernel)}, {"rule", candidate.rule}, {"reason", candidate.reason}});
    }
  }
  json["others"] = std::move(others);
  auto missing = nlohmann::ordered_json::array();
  for (const auto& [engine, reason] : missing_engines) missing.push_back({{"engine", engine}, {"reason", reason}});
  json["missing_engines"] = std::move(missing);
  return json.dump(2);
}

}  // namespace heed
