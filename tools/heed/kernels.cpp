/// heed kernels: lists what the registry holds.

#include "heed/arguments.hpp"
#include "heed/command.hpp"
#include "heed/engines.hpp"
#include "heed/terminal.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heed::command {

int run_kernels(const Words& words) {
  Arguments arguments("heed kernels", "Lists the kernels of every engine, with what each one computes and how.");
  arguments.group("Which");
  arguments.option("filter", "", "those whose name, signature or algorithm matches this glob: 'd128*causal*'");
  arguments.option("engine", "auto", "auto: of every engine; cpu or cuda: of this one", {"auto", "cpu", "cuda"});
  arguments.flag("here", "only those that this machine can run");
  arguments.group("Output");
  arguments.flag("json", "as JSON");
  arguments.flag("names", "names alone, one per line");
  arguments.footer(R"(Examples
  heed kernels --filter='avx512*bf16'
  heed kernels --engine=cuda --here
  heed kernels --json
)");
  arguments.parse(words);
  if (arguments.boolean("json") && arguments.boolean("names")) throw UsageError("--json --names : give one of them.");
  const std::string& filter = arguments.text("filter");
  const std::string& wanted = arguments.text("engine");
  const bool here = arguments.boolean("here");

  Context context;
  if (arguments.boolean("json")) {
    auto json = nlohmann::ordered_json::parse(context.kernels_json(filter));
    auto& list = json.at("kernels");
    for (std::size_t i = list.size(); here && i-- > 0;)
      if (!list[i].at("runs_here").get<bool>()) list.erase(i);
    for (std::size_t i = list.size(); wanted != "auto" && i-- > 0;)
      if (list[i].at("engine") != wanted) list.erase(i);
    fmt::print("{}\n", json.dump(2));
    return kValid;
  }

  auto kernels = context.kernels(filter);
  if (here) std::erase_if(kernels, [](const KernelInfo& kernel) { return !kernel.lacks.empty(); });
  if (wanted != "auto") std::erase_if(kernels, [&](const KernelInfo& kernel) { return kernel.engine != wanted; });
  if (arguments.boolean("names")) {
    for (const KernelInfo& kernel : kernels) fmt::print("{}\n", kernel.name);
    return kValid;
  }
  const Style style(stdout);
  for (const KernelInfo& kernel : kernels) {
    fmt::print("{}{}\n", style.bold(kernel.name),
               kernel.lacks.empty() ? "" : style.dim("   not here: " + kernel.lacks));
    fmt::print("  {:<10}{}\n  {:<10}{}\n", "computes", kernel.signature, "how", kernel.algorithm);
  }
  fmt::print("{}{} of {} kernels\n", kernels.empty() ? "" : "\n", kernels.size(), context.kernels().size());
  for (const EngineState& engine : engines(context))
    if (!engine.present)
      fmt::print("{}\n", style.dim(fmt::format("engine {} is not here: {}", engine.name, engine.text)));
  return kValid;
}

}  // namespace heed::command
