/// heed kernels: lists what the registry holds.

#include "cuda/nvrtc.hpp"
#include "dispatch/glob.hpp"
#include "heed/arguments.hpp"
#include "heed/command.hpp"
#include "heed/engines.hpp"
#include "heed/parallel_compile.hpp"
#include "heed/terminal.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heed::command {
namespace {

/// What a multiprocessor gives to each CUDA kernel, as the compiler reports it.
int print_resources(const Arguments& arguments) {
  if (cuda::Nvrtc::get() == nullptr) throw UnsupportedError("--resources : " + cuda::Nvrtc::missing());
  const auto sm = static_cast<int>(arguments.integer("sm", 80, 999));
  std::vector<cuda::ListedKernel> list = cuda::one_source_of_each(sm);
  const std::string& filter = arguments.text("filter");
  std::erase_if(list, [&](const cuda::ListedKernel& each) {
    return !filter.empty() && !dispatch::glob_search(filter, each.kernel + " " + each.source.name);
  });
  cuda::Jit jit(cuda::JitOptions::from_environment());
  const auto outcomes = compile_all(jit, list, 0, "compiling");
  auto json = nlohmann::ordered_json::array();
  bool clean = true;
  const bool as_json = arguments.boolean("json");
  if (!as_json)
    fmt::print("{:<42} {:>9} {:>15} {:>8} {:>7} {:>10}   {}\n", "kernel", "registers", "shared + launch", "spilled",
               "local", "serialised", "compiled as");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const cuda::Resources& r = outcomes[i].resources;
    clean = clean && outcomes[i].clean();
    if (as_json) {
      json.push_back({{"kernel", list[i].kernel},
                      {"compiled_as", list[i].source.name},
                      {"arch", list[i].arch},
                      {"registers", r.registers},
                      {"shared_bytes", r.shared_bytes},
                      {"launch_shared_bytes", list[i].shared_bytes},
                      {"spill_bytes", r.spill_bytes},
                      {"local_bytes", r.local_bytes},
                      {"serialized_wgmma", r.serialized_wgmma},
                      {"failure", outcomes[i].failure}});
    } else if (!outcomes[i].failure.empty()) {
      fmt::print("{:<42} {}\n", list[i].kernel, outcomes[i].failure);
    } else {
      fmt::print("{:<42} {:>9} {:>15} {:>8} {:>7} {:>10}   {}\n", list[i].kernel, r.registers,
                 fmt::format("{} + {}", r.shared_bytes, list[i].shared_bytes), r.spill_bytes, r.local_bytes,
                 r.serialized_wgmma ? "yes" : "no", list[i].source.name);
    }
  }
  if (as_json) fmt::print("{}\n", json.dump(2));
  return clean ? kValid : kWrong;
}

}  // namespace

int run_kernels(const Words& words) {
  Arguments arguments("heed kernels", "Lists the kernels of every engine, with what each one computes and how.");
  arguments.group("Which");
  arguments.option("filter", "", "those whose name, signature or algorithm matches this glob: 'd128*causal*'");
  arguments.option("engine", "auto", "auto: of every engine; cpu or cuda: of this one", {"auto", "cpu", "cuda"});
  arguments.flag("here", "only those that this machine can run");
  arguments.group("Output");
  arguments.flag("json", "as JSON");
  arguments.flag("names", "names alone, one per line");
  arguments.flag("resources",
                 "compiles each CUDA kernel for one problem, and tells registers, shared memory and spills");
  arguments.option("sm", "90", "--resources: for which GPU, by compute capability");
  arguments.footer(R"(Examples
  heed kernels --filter='avx512*bf16'
  heed kernels --engine=cuda --here
  heed kernels --json
  heed kernels --resources --filter='*d128*'
)");
  arguments.parse(words);
  if (arguments.boolean("json") && arguments.boolean("names")) throw UsageError("--json --names : give one of them.");
  if (arguments.boolean("resources")) {
    for (const char* key : {"names", "here"})
      if (arguments.boolean(key))
        throw UsageError(fmt::format(
            "--resources --{} : give one of them; --resources compiles for the GPU that -sm names, here or not.", key));
    if (arguments.text("engine") == "cpu")
      bad_value("engine", "cpu", "--resources compiles CUDA kernels; leave one of them out.");
    return print_resources(arguments);
  }
  if (arguments.given("sm"))
    bad_value("sm", arguments.text("sm"), "says for which GPU --resources compiles; give both.");
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
