/// heed info: this machine, its engines, the versions.

#include "heed/arguments.hpp"
#include "heed/command.hpp"
#include "heed/engines.hpp"
#include "heed/machine.hpp"
#include "heed/terminal.hpp"

#include <heed/version.h>

#include <CLI/Version.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heed::command {
namespace {

nlohmann::ordered_json versions() {
  return {{"heed", HEED_VERSION_STRING},
          {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
          {"nlohmann_json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                                        NLOHMANN_JSON_VERSION_PATCH)},
          {"CLI11", CLI11_VERSION}};
}

nlohmann::ordered_json info_json(Context& context) {
  nlohmann::ordered_json json{{"version", HEED_VERSION_STRING}, {"machine", to_json(this_machine())}};
  for (const auto& [level, present] : isa_levels()) json["isa_levels"][level] = present;
  json["isa_in_use"] = isa_in_use("");
  for (const EngineState& engine : engines(context))
    json["engines"].push_back({{"engine", engine.name}, {"present", engine.present}, {"text", engine.text}});
  json["kernels"] = context.kernels().size();
  json["versions"] = versions();
  return json;
}

void print_info(Context& context) {
  const Style style(stdout);
  const Machine machine = this_machine();
  const auto line = [](const char* title, const std::string& text) { fmt::print("  {:<12}{}\n", title, text); };

  fmt::print("{}\n", style.bold("Machine"));
  line("processor", machine.cpu);
  line("caches", fmt::format("L1d {}, L2 {}, L3 {}", bytes_text(static_cast<double>(machine.l1d_bytes)),
                             bytes_text(static_cast<double>(machine.l2_bytes)),
                             bytes_text(static_cast<double>(machine.l3_bytes))));
  line("memory", bytes_text(static_cast<double>(machine.memory_bytes)));
  line("system", machine.system);
  line("threads",
       fmt::format("{}: {} processors, {} in the affinity mask, {}", machine.threads, machine.processors,
                   machine.affinity, machine.quota ? fmt::format("a quota of {}", *machine.quota) : "no cgroup quota"));

  fmt::print("\n{}\n", style.bold("ISA levels of the CPU engine"));
  for (const auto& [level, present] : isa_levels())
    line(level.c_str(), (present ? style.green("yes") : "no") + (level == isa_in_use("") ? "   in use" : ""));

  fmt::print("\n{}\n", style.bold("Engines"));
  for (const EngineState& engine : engines(context))
    line(engine.name.c_str(), (engine.present ? style.green("yes") : "no") + "   " + engine.text);
  std::size_t here = 0;
  const auto kernels = context.kernels();
  for (const KernelInfo& kernel : kernels) here += kernel.lacks.empty();
  line("kernels", fmt::format("{}, of which this machine runs {}", kernels.size(), here));

  fmt::print("\n{}\n", style.bold("Versions"));
  const nlohmann::ordered_json list = versions();
  for (const auto& [library, version] : list.items()) line(library.c_str(), "  " + version.get<std::string>());
  line("compiler", "  " + machine.compiler);
}

}  // namespace

int run_info(const Words& words) {
  Arguments arguments("heed info", "This machine, its ISA levels, the engines and why one is missing, the versions.");
  arguments.group("Output");
  arguments.flag("json", "as JSON");
  arguments.parse(words);
  Context context;
  if (arguments.boolean("json")) {
    fmt::print("{}\n", info_json(context).dump(2));
  } else {
    print_info(context);
  }
  return kValid;
}

}  // namespace heed::command
