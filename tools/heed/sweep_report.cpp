#include "heed/sweep_report.hpp"

#include "heed/machine.hpp"
#include "heed/problem_of.hpp"
#include "heed/text.hpp"

#include <heed/work.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace heed::command {
namespace {

double tflops(const SweepClass& of, std::int64_t s, double seconds) {
  return work_of(problem_of(of.problem(s), Memory::gpu)).flops / seconds * 1e-12;
}

std::string pass_name(const SweepReport& report) {
  return report.operation == Operation::forward ? "forward" : "backward";
}

std::string resources_text(const SweepRow& row) {
  return fmt::format("{:>3} registers, {:>5.1f} KB", row.compiled.resources.registers, row.shared_bytes / 1024.0);
}

std::string broken_text(const SweepResult& result) {
  std::string text;
  for (const auto& [rule, count] : result.broken) text += fmt::format("  {:>6} cannot be: {}\n", count, rule);
  return text;
}

}  // namespace

std::string to_table(const SweepReport& report, int most) {
  std::string text;
  for (const SweepResult& result : report.results) {
    const auto clean =
        std::count_if(result.rows.begin(), result.rows.end(), [](const SweepRow& row) { return row.may_be_chosen(); });
    text += fmt::format("{}: {} combinations, {} of them clean\n{}", result.of.to_string(), result.rows.size(), clean,
                        broken_text(result));
    if (report.lengths.empty())
      for (const SweepRow& row : result.rows)
        text += fmt::format("  {}   {:<16} {}\n", resources_text(row), row.status(), row.candidate.algo);
    for (const std::int64_t s : report.lengths) {
      text += fmt::format("  s = {}\n", s);
      const auto ranking = result.ranking(s);
      for (std::size_t place = 0; place < std::min(ranking.size(), static_cast<std::size_t>(most)); ++place) {
        const SweepRow& row = result.rows[ranking[place]];
        text += fmt::format("  {:>4} {:>7.1f} TFLOP/s  {}   {}\n", place + 1,
                            tflops(result.of, s, row.times.at(s).median()), resources_text(row), row.candidate.algo);
      }
    }
    for (const SweepRow& row : result.rows)
      if (row.failed() || (row.candidate.inaccurate && row.wrong))
        text += fmt::format("  {}   {}\n", row.candidate.algo, row.status());
  }
  return text;
}

std::string to_json(const SweepReport& report) {
  using nlohmann::ordered_json;
  ordered_json json{{"command", report.command}, {"date", report.date}, {"machine", to_json(this_machine())}};
  json["classes"] = ordered_json::array();
  for (const SweepResult& result : report.results) {
    ordered_json of{{"op", result.of.operation == Operation::forward ? "fwd" : "bwd"},
                    {"d", result.of.d},
                    {"d_v", result.of.d_v},
                    {"mask", result.of.causal ? "causal" : "none"},
                    {"type", name(result.of.type)}};
    of["cannot_be"] = result.broken;
    of["candidates"] = ordered_json::array();
    for (const SweepRow& row : result.rows) {
      ordered_json each{{"algo", row.candidate.algo},
                        {"status", row.status()},
                        {"registers", row.compiled.resources.registers},
                        {"shared_bytes", row.shared_bytes},
                        {"spill_bytes", row.compiled.resources.spill_bytes},
                        {"serialized_wgmma", row.compiled.resources.serialized_wgmma}};
      for (const auto& [s, times] : row.times)
        each["times"].push_back({{"s", s},
                                 {"median_us", times.median() * 1e6},
                                 {"best_us", times.best() * 1e6},
                                 {"timings", times.count()},
                                 {"tflops", tflops(result.of, s, times.median())}});
      of["candidates"].push_back(std::move(each));
    }
    json["classes"].push_back(std::move(of));
  }
  return json_text(json, 1);
}

std::string to_markdown(const SweepReport& report) {
  constexpr std::size_t kShown = 10;
  const Machine machine = this_machine();
  std::string text = fmt::format("# Sweep of the CUDA {} kernels\n\n`{}`, {}\n\n{}, driver {}, NVRTC {}\n",
                                 pass_name(report), report.command, report.date,
                                 machine.gpu.empty() ? "no GPU" : machine.gpu, machine.driver, machine.nvrtc);
  for (const SweepResult& result : report.results) {
    text += fmt::format("\n## {}\n\n{} combinations of knobs.\n", result.of.to_string(), result.rows.size());
    for (const auto& [rule, count] : result.broken) text += fmt::format("- {} cannot be: {}\n", count, rule);
    for (const std::int64_t s : report.lengths) {
      text += fmt::format(
          "\n### s = {}\n\n| place | TFLOP/s | timings | registers | shared KB | knobs |\n|---|---|---|---|---|---|\n",
          s);
      const auto ranking = result.ranking(s);
      for (std::size_t place = 0; place < std::min(ranking.size(), kShown); ++place) {
        const SweepRow& row = result.rows[ranking[place]];
        text += fmt::format("| {} | {:.1f} | {} | {} | {:.1f} | `{}` |\n", place + 1,
                            tflops(result.of, s, row.times.at(s).median()), row.times.at(s).count(),
                            row.compiled.resources.registers, row.shared_bytes / 1024.0, row.candidate.algo);
      }
    }
  }
  return text;
}

cuda::TuningRecord to_record(const SweepReport& report, const cuda::TuningRecord& older) {
  cuda::TuningRecord record = older;
  const Machine machine = this_machine();
  record.made[pass_name(report)] = {{"date", report.date},
                                    {"gpu", machine.gpu},
                                    {"driver", machine.driver},
                                    {"nvrtc", machine.nvrtc},
                                    {"command", report.command}};
  for (const SweepResult& result : report.results) {
    const SweepClass& of = result.of;
    auto& list = record.of(of.operation);
    std::erase_if(list, [&](const cuda::TuningEntry& entry) {
      return entry.d == of.d && entry.d_v == of.d_v && entry.causal == of.causal;
    });
    std::int64_t from = 0;
    std::vector<cuda::TuningEntry> entries;
    for (const std::int64_t s : report.lengths) {
      const auto ranking = result.ranking(s);
      const auto first =
          std::find_if(ranking.begin(), ranking.end(), [&](std::size_t i) { return result.rows[i].may_be_chosen(); });
      if (first == ranking.end()) continue;
      const SweepRow& best = result.rows[*first];
      const double rate = tflops(of, s, best.times.at(s).median());
      if (!entries.empty() && entries.back().algo == best.candidate.algo) {
        entries.back().to_keys = s;
      } else {
        entries.push_back({.d = of.d,
                           .d_v = of.d_v,
                           .causal = of.causal,
                           .from_keys = from,
                           .to_keys = s,
                           .algo = best.candidate.algo,
                           .tflops = rate});
      }
      from = s + 1;
    }
    if (!entries.empty()) entries.back().to_keys.reset();
    list.insert(list.end(), entries.begin(), entries.end());
  }
  return record;
}

}  // namespace heed::command
