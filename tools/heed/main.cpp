/// The front door of the command: finds the subcommand, and turns whatever it throws into a text and an exit code.

#include "heed/arguments.hpp"
#include "heed/command.hpp"
#include "heed/terminal.hpp"

#include <heed/error.hpp>
#include <heed/version.h>

#include <array>
#include <cstdio>
#include <fmt/format.h>
#include <new>

namespace heed::command {
namespace {

struct Subcommand {
  const char* name;
  const char* group;
  const char* summary;
  int (*run)(const Words&);
};

constexpr std::array kSubcommands{
    Subcommand{"fwd", "Compute", "compute forward attention, check it against the oracle, time it", run_fwd},
    Subcommand{"bwd", "Compute", "compute its gradients, check them against the oracle, time them", run_bwd},
    Subcommand{"bench", "Compute", "measure suites of problems against the peak of this machine", run_bench},
    Subcommand{"sweep", "Compute", "find the fastest algorithm of the CUDA kernels, and record it for selection",
               run_sweep},
    Subcommand{"fuzz", "Compute", "random problems over the whole feature space, each checked", run_fuzz},
    Subcommand{"replay", "Compute", "run the JSON record of an earlier run again", run_replay},
    Subcommand{"demo", "Compute", "a short tour: a few problems computed, checked and timed", run_demo},
    Subcommand{"explain", "Look", "which kernel would run, why, and why not the others", run_explain},
    Subcommand{"kernels", "Look", "list the kernels there are", run_kernels},
    Subcommand{"mask", "Look", "draw a mask", run_mask},
    Subcommand{"cache", "Look", "the compiled CUDA kernels on disk: list, clear, compile ahead, pack", run_cache},
    Subcommand{"info", "Look", "this machine, its engines, the versions", run_info},
};

void print_help() {
  fmt::print("heed {}: fused multi-head attention\n\nusage: heed <subcommand> [-key=value ...]\n", HEED_VERSION_STRING);
  std::string_view group;
  for (const Subcommand& each : kSubcommands) {
    if (group != each.group) {
      group = each.group;
      fmt::print("\n{}\n", Style(stdout).bold(group));
    }
    fmt::print("  {:<9}{}\n", each.name, each.summary);
  }
  fmt::print(R"(
{}
  heed demo
  heed fwd -b=1 -h=32 -h_k=8 -s=4096 -d=128 -mask=b -prec=bf16
  heed explain -h=16 -s=1 -s_k=8192 -prec=bf16
  heed mask b:2,0 -s=5 -s_k=8

'heed <subcommand> --help' lists the arguments of each. Exit codes: 0 valid, 1 wrong result, 2 bad usage, 3 not supported.
)",
             Style(stdout).bold("Examples"));
}

int dispatch(Words words) {
  if (words.empty()) {
    print_help();
    return kUsage;
  }
  std::string name = words.front();
  words.erase(words.begin());
  if (name == "--version" || name == "-version" || name == "version") {
    fmt::print("heed {}\n", HEED_VERSION_STRING);
    return kValid;
  }
  if (name == "help" && !words.empty()) {
    name = words.front();
    words = {"--help"};
  }
  if (is_help(name) || name == "help") {
    print_help();
    return kValid;
  }
  std::vector<std::string> names;
  for (const Subcommand& each : kSubcommands) {
    if (name == each.name) return each.run(words);
    names.emplace_back(each.name);
  }
  throw UsageError(fmt::format("'{}' : no such subcommand{}; there are {}.", name, did_you_mean(name, names, ""),
                               fmt::join(names, ", ")));
}

/// Errors of the library and of the command look alike: "heed: ...".
int report(const std::string& text, int code) {
  std::fflush(stdout);
  fmt::print(stderr, "heed: {}\n", text);
  return code;
}

int guarded(const Words& words) {
  try {
    return dispatch(words);
  } catch (const HelpShown&) {
    return kValid;
  } catch (const UsageError& error) {
    return report(error.what(), kUsage);
  } catch (const UnsupportedError& error) {
    return report(error.what(), kUnsupported);
  } catch (const Error& error) {
    switch (error.code()) {
      case ErrorCode::invalid_argument:
        return report(error.what(), kUsage);
      case ErrorCode::unsupported:
      case ErrorCode::out_of_memory:
        return report(error.what(), kUnsupported);
      case ErrorCode::internal:
      case ErrorCode::device_failed:
        break;
    }
    return report(error.what(), kWrong);
  } catch (const std::bad_alloc&) {
    return report("this problem needs more memory than there is.", kUnsupported);
  } catch (const std::exception& error) {
    return report(error.what(), kWrong);
  }
}

}  // namespace
}  // namespace heed::command

int main(int argc, char** argv) {
  return heed::command::guarded(heed::command::Words(argv + (argc > 0 ? 1 : 0), argv + argc));
}
