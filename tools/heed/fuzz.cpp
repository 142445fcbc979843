/// heed fuzz: random problems over the whole feature space, each one checked.

#include "verify/fuzz.hpp"
#include "heed/attention_arguments.hpp"
#include "heed/command.hpp"
#include "heed/engines.hpp"
#include "heed/prepared.hpp"
#include "heed/terminal.hpp"
#include "verify/buffers.hpp"
#include "verify/fenced_copies.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <unistd.h>

namespace heed::command {
namespace {

// A crash must leave its reproducing line, too: those of the cases that run now wait here for the handler.
constexpr int kMostJobs = 64;
struct Line {
  char text[4096];
  volatile std::sig_atomic_t size;
};
Line g_running[kMostJobs];

void remember(const std::string& line, int job) {
  Line& mine = g_running[job];
  mine.size = 0;
  const std::size_t size = std::min(line.size(), sizeof mine.text);
  std::memcpy(mine.text, line.data(), size);
  mine.size = static_cast<std::sig_atomic_t>(size);
}

extern "C" void report_crash(int) {
  constexpr char kText[] = "\nheed: crashed; this does it again:";
  bool written = write(STDERR_FILENO, kText, sizeof kText - 1) >= 0;
  for (const Line& line : g_running)
    if (line.size > 0)
      written = written && write(STDERR_FILENO, "\n  ", 3) >= 0 &&
                write(STDERR_FILENO, line.text, static_cast<std::size_t>(line.size)) >= 0;
  _exit(written && write(STDERR_FILENO, "\n", 1) >= 0 ? kWrong : kWrong + 127);
}

/// Where nobody else, such as a sanitizer, has a handler already.
void catch_crashes() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    struct sigaction action {};
    action.sa_handler = report_crash;
    sigaction(signal, &action, nullptr);
  }
}

// Who is interrupted still tells what was right until then. A second time it ends at once.
volatile std::sig_atomic_t g_interrupted = 0;
extern "C" void interrupt(int signal) { g_interrupted = signal; }
void catch_interrupts() {
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction action {};
    action.sa_handler = interrupt;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(signal, &action, nullptr);
  }
}

/// The same with every input at a page that nobody may touch, before it or behind it: a read outside of it crashes.
template <class Args>
auto with_fences(std::function<void(const verify::Buffers&, const Args&)> run) {
  return [run = std::move(run)](const verify::Buffers& buffers, const Args& args) {
    verify::FencedCopies copies(buffers.get_case().seed % 2 == 0 ? verify::Fence::before : verify::Fence::behind);
    run(buffers, copies.inputs(args));
  };
}

/// The other commands have no fences: what only those show is done again by this case of the fuzz.
std::string again_with_fences(const verify::FuzzOptions& options, std::int64_t number) {
  return fmt::format("\n  or, where that does not: heed fuzz -op={} -seed={} -kinds={} -first={} -cases=1",
                     options.operation == Operation::backward ? "bwd" : "fwd", options.seed, options.kinds, number);
}

}  // namespace

int run_fuzz(const Words& words) {
  Arguments arguments(
      "heed fuzz",
      "Random problems over the whole feature space, each compared with the oracle. A failure is shrunk\n"
      "to a small problem and printed as the 'heed fwd' or 'heed bwd' line that reproduces it. Inputs of\n"
      "the CPU engine lie at pages that nobody may touch: a read outside of them is a crash.");
  arguments.group("What to run");
  arguments.option("op", "fwd", "fwd, or bwd: their gradients", {"fwd", "bwd"});
  arguments.option("seed", "1", "which stream of problems");
  arguments.option("cases", "1000", "how many; with -minutes alone: no limit");
  arguments.option("minutes", "0", "stop after this long; 0: after the last case");
  arguments.option("first", "0", "number of the first case, to begin in the middle");
  arguments.option("kinds", "0",
                   "so many kinds of problems that share kernels, each in many sizes; 0: no two share any");
  arguments.option("failures", "1", "stop after so many");
  arguments.option("jobs", "0", "cases at once; 0: as many as -threads with a GPU, which else would wait, 1 without");
  arguments.flag("spoil", "make one element of every result wrong, to see that it is found, shrunk and reported");
  declare_where(arguments, KernelArgument::not_taken);
  arguments.footer(R"(Examples
  heed fuzz --cases=2000
  heed fuzz --engine=cuda --cases=20000 --kinds=200
  heed fuzz --op=bwd --cases=2000
  heed fuzz --engine=cpu --isa=avx2 --threads=1 --minutes=5 --seed=7
)");
  arguments.parse(words);

  verify::FuzzOptions options;
  constexpr std::int64_t kMost = 1'000'000'000'000;
  if (arguments.text("op") == "bwd") options.operation = Operation::backward;
  options.seed = static_cast<std::uint64_t>(arguments.integer("seed", 0, std::numeric_limits<std::int64_t>::max()));
  options.first = arguments.integer("first", 0, kMost);
  options.kinds = arguments.integer("kinds", 0, kMost);
  options.cases = arguments.integer("cases", 0, kMost);
  options.seconds = 60 * arguments.number("minutes", 0, 1e6);
  if (options.seconds > 0 && !arguments.given("cases")) options.cases = kMost;
  options.most_failures = static_cast<int>(arguments.integer("failures", 1, 1000));
  const Where where = read_where(arguments, options.operation);
  options.may_refuse = !where.algo.empty();
  const auto context = make_context(where);
  const EngineChoice engine = engine_for(*context, where);
  auto target = verify::Target::of(*context, engine);
  options.jobs = static_cast<int>(arguments.integer("jobs", 0, kMostJobs));
  if (options.jobs == 0)
    options.jobs = engine == EngineChoice::cuda ? std::min(context->executor().concurrency(), kMostJobs) : 1;
  const bool fenced = engine == EngineChoice::cpu;
  if (fenced) {
    target.forward = with_fences(target.forward);
    target.backward = with_fences(target.backward);
  }
  if (arguments.boolean("spoil")) {
    target.forward = [right = target.forward](const verify::Buffers& buffers, const ForwardArgs& args) {
      right(buffers, args);
      spoil(args.o);
    };
    target.backward = [right = target.backward](const verify::Buffers& buffers, const BackwardArgs& args) {
      right(buffers, args);
      spoil(args.dq);
    };
  }

  const std::string place = where.to_words();
  Progress progress(
      "fuzz", options.seconds > 0 && !arguments.given("cases") ? options.seconds : static_cast<double>(options.cases));
  const auto begin = std::chrono::steady_clock::now();
  options.on_case = [&](std::int64_t number, const verify::Case& c, int job) {
    remember(c.to_command() + place + (fenced ? again_with_fences(options, number) + place : ""), job);
    const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const bool by_time = options.seconds > 0 && !arguments.given("cases");
    const std::int64_t done = number - options.first;
    progress.show(by_time ? spent : static_cast<double>(done),
                  fmt::format("{} cases, {:.0f} per second", done, spent > 0 ? static_cast<double>(done) / spent : 0));
  };
  catch_crashes();
  catch_interrupts();
  options.stop = [] { return g_interrupted != 0; };
  const verify::FuzzResult result = verify::fuzz(target, options);
  progress.clear();

  for (const verify::FuzzFailure& failure : result.failures) {
    fmt::print("case {} of seed {}: {}\n", failure.number, options.seed, failure.verdict.to_string());
    fmt::print("  {}{}\n", failure.shrunk.to_command(), place);
    fmt::print("  as found: {}{}\n", failure.found.to_command(), place);
  }
  if (result.target_lost)
    fmt::print(
        "  The device is lost to this process, so nothing was shrunk. One of these cases has done it: run each.\n");
  if (result.refused > 0)
    fmt::print("  {} of {} cases cannot be computed with -algo={}\n", result.refused, result.cases, where.algo);
  fmt::print("fuzz: {} cases of seed {} on {} ({}, {} thread{}) in {:.1f} s, {:.0f} per second: {}{}\n", result.cases,
             options.seed, target.name, device_in_use(engine, where.isa), context->executor().concurrency(),
             context->executor().concurrency() == 1 ? "" : "s", result.seconds,
             result.seconds > 0 ? static_cast<double>(result.cases) / result.seconds : 0,
             result.failures.empty() ? result.refused == 0 ? "all valid" : "all others valid"
                                     : fmt::format("{} FAILED", result.failures.size()),
             g_interrupted != 0 ? "; interrupted" : "");
  if (g_interrupted != 0) {  // as its caller would see it without all this
    std::fflush(stdout);
    std::signal(g_interrupted, SIG_DFL);
    std::raise(g_interrupted);
  }
  return result.failures.empty() ? kValid : kWrong;
}

}  // namespace heed::command
