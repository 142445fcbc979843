#include "dispatch/registry.hpp"

#include <heed/error.hpp>

#include "dispatch/glob.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace heed::dispatch {
namespace {

bool name_before(const Registry::Entry& entry, std::string_view name) { return entry.kernel->name() < name; }

}  // namespace

KernelInfo Registry::Entry::info() const {
  return {.name = kernel->name(),
          .engine = std::string(name(kernel->arch().engine())),
          .family = std::string(kernel->family()),
          .arch = kernel->arch().to_string(),
          .signature = kernel->signature_text(),
          .algorithm = kernel->algorithm_text(),
          .lacks = lacks};
}

void Registry::add(std::shared_ptr<const Kernel> kernel, std::string lacks) {
  const auto place = std::lower_bound(entries_.begin(), entries_.end(), std::string_view(kernel->name()), name_before);
  if (place != entries_.end() && place->kernel->name() == kernel->name())
    throw Error(ErrorCode::internal, fmt::format("two kernels are called {}.", kernel->name()));
  entries_.insert(place, {std::move(kernel), std::move(lacks)});
}

void Registry::add_missing(EngineKind engine, std::string reason) { missing_.push_back({engine, std::move(reason)}); }

const Registry::Entry* Registry::find(std::string_view name) const {
  const auto place = std::lower_bound(entries_.begin(), entries_.end(), name, name_before);
  return place != entries_.end() && place->kernel->name() == name ? &*place : nullptr;
}

std::vector<const Registry::Entry*> Registry::filter(std::string_view pattern) const {
  std::vector<const Entry*> found;
  for (const Entry& entry : entries_) {
    const auto texts = pattern.empty() ? std::vector<std::string>{} : entry.kernel->search_texts(pattern);
    const auto matches = [&](const std::string& text) { return glob_search(pattern, text); };
    if (pattern.empty() || std::any_of(texts.begin(), texts.end(), matches)) found.push_back(&entry);
  }
  return found;
}

std::vector<const Registry::Entry*> Registry::runnable_on(const Arch& arch) const {
  std::vector<const Entry*> found;
  for (const Entry& entry : entries_)
    if (dispatch::lacks(entry.kernel->arch(), arch).empty()) found.push_back(&entry);
  return found;
}

nlohmann::ordered_json Registry::to_json(std::string_view pattern) const {
  auto kernels = nlohmann::ordered_json::array();
  for (const Entry* entry : filter(pattern)) {
    const Kernel& kernel = *entry->kernel;
    nlohmann::ordered_json json{{"name", kernel.name()},
                                {"engine", name(kernel.arch().engine())},
                                {"family", kernel.family()},
                                {"arch", kernel.arch().to_string()},
                                {"runs_here", entry->lacks.empty()},
                                {"signature", kernel.signature_json()},
                                {"algorithm", kernel.algorithm_json()}};
    if (!entry->lacks.empty()) json["lacks"] = entry->lacks;
    kernels.push_back(std::move(json));
  }
  auto missing = nlohmann::ordered_json::array();
  for (const MissingEngine& engine : missing_)
    missing.push_back({{"engine", name(engine.engine)}, {"reason", engine.reason}});
  return {{"kernels", std::move(kernels)}, {"missing_engines", std::move(missing)}};
}

}  // namespace heed::dispatch
