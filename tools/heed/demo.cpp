/// heed demo: what `make demo` shows: a few problems computed on the best engine here, checked and timed.

#include "heed/engines.hpp"
#include "heed/machine.hpp"
#include "heed/peak.hpp"
#include "heed/prepared.hpp"
#include "heed/terminal.hpp"
#include "heed/text.hpp"
#include "verify/case_args.hpp"

#include <heed/version.h>

#include <fmt/format.h>

namespace heed::command {
namespace {

struct Scene {
  const char* title;
  const char* arguments;
};

constexpr Scene kScenes[] = {
    {"Prefill of a Llama-3-8B layer: causal, 32 query heads on 8 key/value heads, bf16",
     "-b=1 -h=32 -h_k=8 -s=2048 -d=128 -mask=b -prec=bf16 -layout=bshd -operm=0"},
    {"Sliding window of 512 keys with 4 sink keys, LSE written out, fp16",
     "-b=1 -h=16 -h_k=4 -s=4096 -d=64 -mask=b:511,0,4 -lse=1 -prec=fp16"},
    {"Five sequences of their own lengths in one call, one of them empty, fp32",
     "-mode=1 -b=5 -h=8 -s=700,2048,1,0,333 -d=80 -mask=b -prec=fp32"},
    {"Decode: one new token for each of 8 sequences against 4096 cached keys, bf16",
     "-b=8 -h=32 -h_k=8 -s=1 -s_k=4096 -d=128 -prec=bf16"},
};

verify::Case case_of(const char* arguments) {
  std::map<std::string, std::string> map;
  for (const std::string& word : split_words(arguments)) {
    const std::size_t equals = word.find('=');
    map[word.substr(1, equals - 1)] = word.substr(equals + 1);
  }
  return verify::case_from_args(map);
}

}  // namespace

int run_demo(const Words& words) {
  Arguments arguments("heed demo",
                      "Computes, checks and times a few problems on the best engine here, in some seconds.");
  declare_where(arguments);
  arguments.parse(words);
  const Where where = read_where(arguments);
  const auto context = make_context(where);
  const Style style(stdout);
  const Machine machine = this_machine();
  const std::string isa = isa_in_use(where.isa);
  const int threads = context->executor().concurrency();

  fmt::print("{}  fused multi-head attention\n\n", style.bold("heed " HEED_VERSION_STRING));
  fmt::print("  machine   {}\n", machine.cpu);
  for (const EngineState& engine : engines(*context))
    fmt::print("  {:<10}{}\n", engine.name, engine.present ? engine.text : style.dim("not here: " + engine.text));
  if (engine_for(*context, where) == EngineChoice::cpu)
    fmt::print("  peak      {} TFlops of f32 multiply-adds with {}, {} thread{}\n",
               figure(fma_peak(isa, threads, 20) * 1e-12), isa, threads, threads == 1 ? "" : "s");

  bool all_valid = true;
  for (const Scene& scene : kScenes) {
    fmt::print("\n{}\n  {}\n", style.bold(scene.title),
               style.dim(fmt::format("heed fwd {}{}", scene.arguments, where.to_words())));
    std::fflush(stdout);
    const Prepared prepared(*context, where, case_of(scene.arguments));
    Run run;
    run.warmup = 2;
    const Times times = time_runs(prepared, run, 0.8);
    const verify::Verdict verdict = prepared.check(kCheckQuickly);
    const Work work = prepared.work();
    all_valid = all_valid && verdict.valid();
    fmt::print("  kernel    {}\n", prepared.plan().kernel());
    fmt::print("  time      {} ms, {} TFlops, {} GB/s\n", style.bold(figure(times.best() * 1e3)),
               figure(work.flops / times.best() * 1e-12), figure(work.bytes / times.best() * 1e-9));
    fmt::print("  checked   {}  {}\n", verdict.valid() ? style.green("valid") : style.red("WRONG"),
               verdict.to_string());
  }
  fmt::print("\n{}\n", all_valid ? style.green("All results agree with the fp64 oracle.")
                                 : style.red("Some results are wrong: please report the commands above."));
  return all_valid ? kValid : kWrong;
}

}  // namespace heed::command
