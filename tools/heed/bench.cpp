/// heed bench: measures suites of problems against the peak of this machine.

#include "dispatch/glob.hpp"
#include "heed/bench_host.hpp"
#include "heed/bench_run.hpp"
#include "heed/bench_suites.hpp"
#include "heed/command.hpp"
#include "heed/engines.hpp"
#include "heed/machine.hpp"
#include "heed/result_line.hpp"
#include "heed/text.hpp"
#include "verify/case_args.hpp"

#include <heed/error.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <optional>

namespace heed::command {
namespace {

using Overrides = std::map<std::string, std::string>;
constexpr std::string_view kHostCost = "host";

std::string suite_list() {
  std::string text = "Suites\n";
  for (const Suite& suite : suites()) text += fmt::format("  {:<17}{}\n", suite.name, suite.summary);
  text +=
      fmt::format("  {:<17}{}\n", kHostCost, "what a call costs the host, on a GPU; takes -engine, -algo and -json");
  text += fmt::format("\nSweeps of one size, from {}\n", kSweepProblem);
  for (const Sweep& sweep : sweeps()) text += fmt::format("  {:<17}{}\n", sweep.name, sweep.summary);
  return text;
}

/// The arguments of a row, with those that the caller gave in their place. Nothing where it is of the other pass alone.
std::optional<verify::Case> case_of(const std::string& arguments, const Overrides& overrides, Operation operation) {
  Overrides all;
  const auto keys = verify::case_keys(operation);
  for (const std::string& word : split_words(arguments)) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(1, equals - 1);
    if (std::none_of(keys.begin(), keys.end(), [&](const verify::CaseKey& key) { return key.name == name; }))
      return std::nullopt;
    all[name] = word.substr(equals + 1);
  }
  for (const auto& [key, text] : overrides) all[key] = text;
  return verify::case_from_args(all, operation);
}

bool matches(const std::string& filter, std::string_view label, const verify::Case& problem) {
  return filter.empty() || dispatch::glob_search(filter, fmt::format("{} {}", label, problem_words(problem)));
}

/// A row of a suite, where the filter has it.
std::optional<verify::Case> filtered_case(const SuiteRow& row, const Overrides& overrides, Operation operation,
                                          const std::string& filter) {
  try {
    auto problem = case_of(row.arguments, overrides, operation);
    if (problem && !matches(filter, row.label, *problem)) problem.reset();
    return problem;
  } catch (const Error&) {
    // What the caller gave does not go with this row: that matters where the row is asked for.
    if (const auto as_it_is = case_of(row.arguments, {}, operation); as_it_is && !matches(filter, row.label, *as_it_is))
      return std::nullopt;
    throw;
  }
}

std::vector<BenchProblem> problems_of(const std::string& name, const Overrides& overrides, Operation operation,
                                      const std::string& filter, bool& reads_memory) {
  std::vector<BenchProblem> problems;
  for (const Suite& suite : suites()) {
    if (suite.name != name) continue;
    reads_memory = suite.reads_memory;
    for (const SuiteRow& row : suite.rows())
      if (const auto problem = filtered_case(row, overrides, operation, filter))
        problems.push_back({row.label, row.against, *problem});
    return problems;
  }
  std::vector<std::string> names{std::string(kHostCost)};
  for (const Suite& suite : suites()) names.emplace_back(suite.name);
  for (const Sweep& sweep : sweeps()) {
    names.emplace_back(sweep.name);
    if (sweep.name != name) continue;
    if (const auto given = overrides.find(std::string(sweep.key)); given != overrides.end())
      bad_value(given->first, given->second, fmt::format("heed bench {} changes it itself; leave it out.", name));
    for (const int value : sweep.values) {
      Overrides all = overrides;
      all[std::string(sweep.key)] = std::to_string(value);
      BenchProblem problem{fmt::format("{} = {}", sweep.key, value), "",
                           *case_of(std::string(kSweepProblem), all, operation)};
      if (matches(filter, problem.label, problem.problem)) problems.push_back(std::move(problem));
    }
    return problems;
  }
  throw UsageError(fmt::format("'{}' : no such suite{}; there are {}.", name, did_you_mean(name, names, ""),
                               fmt::join(names, ", ")));
}

/// The same problem, small: every length at most 128, two batch entries, one K/V head.
void shrink(verify::Case& c) {
  const auto cap = [](std::vector<std::int64_t>& lengths, std::int64_t most) {
    for (std::int64_t& each : lengths) each = std::min(each, most);
  };
  cap(c.s_q, 128);
  cap(c.s_k, 128);
  for (auto* lengths : {&c.s_qpad, &c.s_kpad, &c.q_eff_lens, &c.kv_eff_lens}) cap(*lengths, 128);
  c.h = c.h_k > 0 ? c.h / c.h_k : c.h;
  c.h_k = std::min<std::int64_t>(c.h_k, 1);
  if (c.group()) return;
  c.b = std::min<std::int64_t>(c.b, 2);
  for (auto* lengths : {&c.q_eff_lens, &c.kv_eff_lens})
    if (!lengths->empty()) lengths->resize(static_cast<std::size_t>(c.b));
}

/// heed bench host: one problem of its own, with nothing to choose but the knobs.
int bench_host(const Arguments& arguments, const Where& where) {
  for (const std::string& key : arguments.keys())
    if (arguments.given(key) && key != "engine" && key != "algo" && key != "json")
      throw UsageError(fmt::format("-{} : bench host does not take it; it takes -engine, -algo and -json.", key));
  if (where.engine == EngineChoice::cpu)
    bad_value("engine", arguments.text("engine"), "what is measured is a call on a GPU; leave it out.");
  if (arguments.given("json")) require_writable(arguments.text("json"));
  const HostCost cost = measure_host_cost(*make_context(where));
  fmt::print("{}", to_text(cost));
  if (arguments.given("json"))
    write_file(arguments.text("json"),
               to_json(cost, fmt::format("heed bench {} {}", kHostCost, fmt::join(arguments.given_words(), " "))));
  return kValid;
}

}  // namespace

int run_bench(const Words& words) {
  Arguments arguments("heed bench",
                      "Measures problems in rounds: best, median and spread (how far the median is above the best), "
                      "against the f32 FMA peak\nand, where memory is the limit, the read bandwidth, both measured "
                      "between the runs in the same process. On a GPU\nruns are replayed from a graph and timed by "
                      "its own clock.");
  arguments.positional("<suite>", 1, 1);
  arguments.group("How");
  arguments.option("rounds", "7", "every row is timed once in each");
  arguments.option("seconds", "10", "a row that has taken this long is not timed again (but at least twice)");
  arguments.option("filter", "", "only the rows that match this glob, for example 'causal*d128'");
  arguments.option("v", "1", "1: check every row against the oracle first, 0: not", {"0", "1"});
  arguments.flag("quick", "small sizes and two rounds: shows that everything runs, measures nothing");
  declare_where(arguments);
  arguments.group("Output");
  arguments.option("json", "", "write a JSON report here");
  arguments.option("md", "", "write a Markdown report here");
  const Operation operation = declare_operation(arguments, words);
  declare_problem(arguments, operation);
  arguments.footer(suite_list() + R"(
Arguments of 'heed fwd' (with -op=bwd, of 'heed bwd') that describe a problem replace those of every row; sweeps take them as their starting point.

Examples
  heed bench cpu -threads=1
  heed bench decode --md=decode.md --json=decode.json
  heed bench seqlen -prec=bf16 -d=64 -mask=b
  heed bench cpu -op=bwd
  heed bench features --filter='*fp32*'
)");
  arguments.parse(words);

  BenchOptions options;
  options.where = read_where(arguments, operation);
  options.quick = arguments.boolean("quick");
  options.rounds = options.quick ? 2 : 7;
  if (arguments.given("rounds")) options.rounds = static_cast<int>(arguments.integer("rounds", 1, 10000));
  options.seconds = arguments.number("seconds", 0, 1e6);
  options.check = arguments.text("v") == "1";

  if (arguments.positionals().front() == kHostCost) return bench_host(arguments, options.where);
  Overrides overrides;
  for (const verify::CaseKey& key : verify::case_keys(operation))
    if (const std::string name(key.name); arguments.given(name)) overrides[name] = arguments.text(name);
  BenchReport report;
  report.suite = arguments.positionals().front();
  const std::string& filter = arguments.text("filter");
  auto problems = problems_of(report.suite, overrides, operation, filter, options.bandwidth);
  if (problems.empty()) bad_value("filter", filter, fmt::format("no row of '{}' matches.", report.suite));
  if (options.quick)
    for (BenchProblem& each : problems) shrink(each.problem);

  for (const char* key : {"json", "md"})
    if (arguments.given(key)) require_writable(arguments.text(key));
  const auto context = make_context(options.where);
  options.where.engine = engine_for(*context, options.where);
  report.engine = options.where.engine == EngineChoice::cuda ? "cuda" : "cpu";
  report.command = fmt::format("heed bench {} {}", report.suite, fmt::join(arguments.given_words(), " "));
  report.isa = device_in_use(options.where.engine, options.where.isa);
  report.threads = context->executor().concurrency();
  report.rounds = options.rounds;
  report.load = load_average();
  if (const int processors = this_machine().processors; !options.quick && report.load > 0.75 * processors)
    fmt::print(stderr, "heed: the machine is busy (load {:.1f} on {} processors): the figures will say little.\n",
               report.load, processors);
  report.rows = measure(*context, problems, options);
  if (report.rows.empty())
    throw UnsupportedError(fmt::format("not supported: no row of '{}' runs here.", report.suite));
  compare_rows(report);
  fmt::print("{}", to_table(report));
  if (arguments.given("json")) write_file(arguments.text("json"), to_json(report));
  if (arguments.given("md")) write_file(arguments.text("md"), to_markdown(report));
  return report.all_valid() ? kValid : kWrong;
}

}  // namespace heed::command
