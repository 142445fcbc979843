#include "heed/attention_arguments.hpp"

#include "cuda/hopper_backward_knobs.hpp"
#include "cuda/hopper_knobs.hpp"
#include "dispatch/arch.hpp"
#include "heed/engines.hpp"
#include "heed/problem_of.hpp"
#include "verify/case_args.hpp"

#include <fmt/format.h>

namespace heed::command {

Operation declare_operation(Arguments& arguments, const Words& words) {
  arguments.group("Which pass");
  arguments.option("op", "fwd", "fwd or bwd: whose arguments these are", {"fwd", "bwd"});
  return text_ahead(words, "op") == "bwd" ? Operation::backward : Operation::forward;
}

void declare_problem(Arguments& arguments, Operation operation) {
  for (const verify::CaseKey& key : verify::case_keys(operation)) {
    arguments.group(std::string(key.group));
    arguments.option(std::string(key.name), std::string(key.preset), std::string(key.help));
  }
  for (const auto& [alias, key] : verify::case_key_aliases()) arguments.alias(std::string(alias), std::string(key));
}

verify::Case read_problem(const Arguments& arguments, Operation operation) {
  std::map<std::string, std::string> given;
  for (const verify::CaseKey& key : verify::case_keys(operation)) {
    const std::string name(key.name);
    if (arguments.given(name)) given[name] = arguments.text(name);
  }
  try {
    return verify::case_from_args(given, operation);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    throw UnsupportedError(fmt::format("{}\n{}", error.what(), engines_without_it()));
  }
}

void declare_where(Arguments& arguments, KernelArgument kernel) {
  arguments.group("Where it runs");
  arguments.option("engine", "auto", "auto, cpu or cuda", {"auto", "cpu", "cuda"});
  arguments.option("threads", "0", "threads of the CPU engine; 0: as many as this process may use");
  arguments.option("isa", "auto", "highest level of the CPU engine: baseline, avx2, avx512, avx512bf16, amx",
                   {"auto", "baseline", "avx2", "avx512", "avx512bf16", "amx"});
  arguments.option("algo", "",
                   "knobs of the CUDA engine's Hopper kernels: stages:3,tile_k:128, backward tile_q:64,section:1056; "
                   "'heed sweep --help' has them");
  if (kernel == KernelArgument::taken)
    arguments.option("kernel", "", "exactly this kernel of 'heed kernels', or fail with the rule that excludes it");
}

Where read_where(const Arguments& arguments, Operation operation) {
  Where where;
  where.operation = operation;
  const std::string& engine = arguments.text("engine");
  if (engine == "cpu") where.engine = EngineChoice::cpu;
  if (engine == "cuda") where.engine = EngineChoice::cuda;
  where.threads = static_cast<int>(arguments.integer("threads", 0, ThreadPool::kMaxThreads));
  if (arguments.text("isa") != "auto") {
    where.isa = arguments.text("isa");
    require_isa(where.isa);
  }
  where.algo = arguments.text("algo");
  if (!where.algo.empty()) {
    if (operation == Operation::forward) {
      cuda::HopperAlgo::parse(where.algo);
    } else {
      cuda::HopperBackwardAlgo::parse(where.algo);
    }
    if (where.engine == EngineChoice::cpu)
      bad_value("algo", where.algo, "the CPU engine has no such knobs; leave -engine=cpu out.");
    where.engine = EngineChoice::cuda;
  }
  if (arguments.has("kernel")) where.kernel = arguments.text("kernel");
  return where;
}

std::string Where::to_words() const {
  std::string words;
  if (engine != EngineChoice::automatic) words += engine == EngineChoice::cpu ? " -engine=cpu" : " -engine=cuda";
  if (threads != 0) words += fmt::format(" -threads={}", threads);
  if (!isa.empty()) words += " -isa=" + isa;
  if (!algo.empty()) words += " -algo=" + algo;
  if (!kernel.empty()) words += " -kernel=" + kernel;
  return words;
}

std::unique_ptr<Context> make_context(const Where& where) {
  Context::Options options{.threads = where.threads, .max_cpu_isa = where.isa};
  (where.operation == Operation::forward ? options.cuda_algo : options.cuda_backward_algo) = where.algo;
  auto context = std::make_unique<Context>(options);
  if (where.engine != EngineChoice::automatic) {
    const char* const wish = where.engine == EngineChoice::cpu ? "cpu" : "cuda";
    for (const EngineState& engine : engines(*context))
      if (engine.name == wish && !engine.present)
        throw UnsupportedError(fmt::format("not supported: -engine={} : that engine is not here.\n  {:<5} {}", wish,
                                           engine.name, engine.text));
  }
  return context;
}

PlanOptions plan_options(const Where& where) {
  return {.engine = where.engine, .threads = where.threads, .kernel = where.kernel};
}

EngineChoice engine_for(Context& context, const Where& where) {
  if (where.engine != EngineChoice::automatic) return where.engine;
  if (!where.kernel.empty()) return where.kernel.starts_with("cuda/") ? EngineChoice::cuda : EngineChoice::cpu;
  if (!where.isa.empty()) return EngineChoice::cpu;
  for (const EngineState& engine : engines(context))
    if (engine.name == "cuda" && engine.present) return EngineChoice::cuda;
  return EngineChoice::cpu;
}

EngineChoice engine_for(Context& context, const Where& where, const verify::Case& problem) {
  const EngineChoice engine = engine_for(context, where);
  const bool asked_for = where.engine != EngineChoice::automatic || !where.kernel.empty();
  if (engine != EngineChoice::cuda || asked_for) return engine;
  const auto explanation = context.explain(problem_of(problem, Memory::gpu), {.engine = engine});
  return explanation.chosen() != nullptr ? engine : EngineChoice::cpu;
}

Memory memory_of(EngineChoice engine) { return engine == EngineChoice::cuda ? Memory::gpu : Memory::host; }

}  // namespace heed::command
