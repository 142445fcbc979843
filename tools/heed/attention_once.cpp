#include "heed/attention_once.hpp"

#include "heed/engines.hpp"
#include "heed/machine.hpp"
#include "heed/result_line.hpp"
#include "heed/text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heed::command {
namespace {

/// Where nobody asked for a number of runs, timing takes no longer.
constexpr double kTimingSeconds = 8;

constexpr const char* kForwardFooter =
    R"(Arguments are written -key=value or --key=value; a value above is the default. -scale means -scale_s.

Examples
  heed fwd                                                                  all defaults: fp16, 2 x 8 heads, 3328 x 3328, d 128
  heed fwd -b=1 -h=32 -h_k=8 -s=4096 -d=128 -mask=b -prec=bf16              causal prefill with grouped heads
  heed fwd -mode=1 -b=4 -s=700,2048,1,333 -d=64 -mask=b                     sequences of their own lengths
  heed fwd -b=8 -h=32 -h_k=8 -s=1 -s_k=8192 -prec=bf16                      one new token against a long cache
  heed fwd -s=1024 -mask=b:255,0,4 -logits_soft_cap=30 -bias=a -lse=1       window, sink keys, soft cap, ALiBi, LSE
  heed fwd -s=512 -isa=avx2 -threads=1 -json=1 -jsonfile=run.json           one level, one thread, with a record

Exit codes: 0 valid, 1 wrong result, 2 bad usage, 3 not supported (with the reason per engine).
)";

constexpr const char* kBackwardFooter =
    R"(Arguments are written -key=value or --key=value; a value above is the default. -scale means -scale_s. o and the LSE come
from the CPU engine's forward pass; the gradients follow from them.

Examples
  heed bwd -b=1 -h=8 -s=1024 -d=64 -mask=b -prec=fp32                       causal, f32
  heed bwd -b=1 -h=32 -h_k=8 -s=4096 -d=128 -prec=bf16 -deterministic=1     grouped heads: dK and dV have 8
  heed bwd -mode=1 -b=4 -s=700,2048,1,333 -d=64 -mask=b                     sequences of their own lengths
  heed bwd -b=2 -h=4 -s=256 -bias=e:1 -dbias=1 -p_drop=0.1                  dBias, with dropout replayed
  heed bwd -b=1 -h=8 -s=512 -sink_grad=1 -init_sink=2 -dlse=1               dSink, and a gradient of the LSE
  heed bwd -s=4096 -d=64 -mask=b -algo=tile_q:64,pipeline:ahead,section:1056  exactly so, on a GPU of sm_90

Exit codes: 0 valid, 1 wrong result, 2 bad usage, 3 not supported (with the reason per engine).
)";

void print_result(const Result& result, const Run& run) {
  std::string line = problem_line(result.problem_case);
  if (run.kernel_name) line += ", " + result.kernel;
  if (result.problem_case.backward())
    line += ", workspace:" +
            (result.workspace_bytes == 0 ? "0 B" : bytes_text(static_cast<double>(result.workspace_bytes)));
  line += ", " + rates(result.times.median(), result.work.flops, result.work.bytes);
  if (result.verdict) {
    line += result.verdict->valid() ? ", valid:y" : ", valid:n";
    if (const auto& names = result.verdict->not_compared; !names.empty())
      line += fmt::format(", not_compared:{}", fmt::join(names, "+"));
  }
  fmt::print("{}\n", line);

  if (result.verdict) {
    std::string text = result.verdict->to_string();
    if (!result.verdict->all_rows()) {
      // The first line says how many rows were compared; this says which.
      const std::size_t end = text.find('\n');
      text.insert(end == text.npos ? text.size() : end,
                  " (those at boundaries and a seeded sample; -v=full checks all)");
    }
    fmt::print("  {}\n", text);
  }
  const auto runs = static_cast<int>(result.times.count());
  fmt::print(
      "  {} run{}{}{}: best {} ms, median {} ms, worst {} ms\n", runs, runs == 1 ? "" : "s",
      result.times.together > 1 ? fmt::format(", each the mean of {} in a row", result.times.together) : "",
      runs < run.repeat ? fmt::format(" of {}, which would have taken over {:.0f} s", run.repeat, kTimingSeconds) : "",
      figure(result.times.best() * 1e3), figure(result.times.median() * 1e3), figure(result.times.worst() * 1e3));
}

}  // namespace

Outcome attention_once(const Words& words, Operation operation) {
  const bool backward = operation == Operation::backward;
  Arguments arguments(backward ? "heed bwd" : "heed fwd",
                      backward
                          ? "Computes the gradients of attention, checks each against the fp64 oracle and times them."
                          : "Computes forward attention, checks it against the fp64 oracle and times it.");
  declare_problem(arguments, operation);
  declare_where(arguments);
  declare_run(arguments, JsonMeans::write_file, backward ? "fmha_bwd.json" : "fmha_fwd.json");
  arguments.footer(backward ? kBackwardFooter : kForwardFooter);
  arguments.parse(words);
  const verify::Case problem = read_problem(arguments, operation);
  const Run run = read_run(arguments);
  const Where where = read_where(arguments, operation);
  if (run.json) require_writable(run.json_file);

  const auto context = make_context(where);
  const Prepared prepared(*context, where, problem);
  Outcome outcome;
  Result& result = outcome.result;
  result.words = arguments.given_words();
  // A seed that was drawn is part of what must be repeated.
  for (std::string& word : result.words)
    if (word.rfind("-seed=", 0) == 0) word = fmt::format("-seed={}", problem.seed);
  result.kernel = prepared.plan().kernel();
  result.engine = result.kernel.substr(0, result.kernel.find('/'));
  const bool on_gpu = prepared.plan().memory() == Memory::gpu;
  result.isa = device_in_use(on_gpu ? EngineChoice::cuda : EngineChoice::cpu, where.isa);
  result.threads = prepared.plan().threads();
  result.problem = prepared.plan().problem();
  result.problem_case = problem;
  result.work = prepared.work();
  result.workspace_bytes = prepared.plan().workspace_bytes();
  result.times = time_runs(prepared, run, kTimingSeconds);
  if (run.check != Check::none)
    result.verdict = prepared.check(run.check == Check::full ? kCheckAll : kCheckSeconds, run.spoil);

  print_result(result, run);
  if (run.json) write_file(run.json_file, json_text(record_of(result)));
  if (result.verdict && !result.verdict->valid()) {
    fmt::print("  again: {}{}\n", problem.to_command(), where.to_words());
    outcome.exit_code = kWrong;
  }
  return outcome;
}

}  // namespace heed::command
