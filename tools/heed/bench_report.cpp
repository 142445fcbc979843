#include "heed/bench_result.hpp"
#include "heed/machine.hpp"
#include "heed/result_line.hpp"
#include "heed/terminal.hpp"
#include "heed/text.hpp"
#include "verify/case_args.hpp"

#include <heed/version.h>

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heed::command {
namespace {

/// The report as cells of text: the first line holds the titles. Columns nobody measured are left out.
struct Grid {
  std::vector<std::vector<std::string>> lines;
  std::vector<bool> left;  ///< which columns are words and not figures
};

std::string percent(double fraction) { return fraction > 0 ? fmt::format("{:.1f}%", 100 * fraction) : "-"; }

constexpr std::string_view kWrongMark = "N";

std::string valid_text(const BenchRow& row) {
  if (!row.valid) return "-";
  if (!*row.valid) return std::string(kWrongMark);
  return row.not_compared.empty() ? "y" : fmt::format("y, not {}", fmt::join(row.not_compared, ", "));
}

Grid grid_of(const BenchReport& report) {
  Grid grid;
  const bool on_gpu = report.on_gpu();
  std::vector<std::string> titles{"", "problem", "best ms", "median", "spread", on_gpu ? "TFLOP/s" : "GFLOP/s"};
  grid.left = {true, true, false, false, false, false};
  const auto column = [&](const char* title, bool wanted) {
    if (!wanted) return;
    titles.emplace_back(title);
    grid.left.push_back(false);
  };
  column("of FMA peak", !on_gpu);
  column("GB/s", true);
  column("of read bandwidth", report.has_bandwidth());
  column("of plain", report.has_relative());
  column("runs", true);
  column("valid", true);
  grid.lines.push_back(titles);

  for (const BenchRow& row : report.rows) {
    std::vector<std::string> line{row.label,
                                  problem_words(row.problem),
                                  figure(row.times.best() * 1e3),
                                  figure(row.times.median() * 1e3),
                                  fmt::format("{:.0f}%", 100 * row.times.spread()),
                                  figure(row.rate() * (on_gpu ? 1e-12 : 1e-9))};
    if (!on_gpu) line.push_back(percent(row.of_peak()));
    line.push_back(figure(row.bandwidth() * 1e-9));
    if (report.has_bandwidth()) line.push_back(percent(row.of_bandwidth()));
    if (report.has_relative()) line.push_back(row.relative ? fmt::format("{:.2f}", *row.relative) : "");
    line.push_back(std::to_string(row.times.count()));
    line.push_back(valid_text(row));
    grid.lines.push_back(std::move(line));
  }
  return grid;
}

std::vector<std::size_t> widths_of(const Grid& grid) {
  std::vector<std::size_t> widths(grid.left.size(), 0);
  for (const auto& line : grid.lines)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  return widths;
}

std::string pad(const std::string& text, std::size_t width, bool left) {
  return left ? fmt::format("{:<{}}", text, width) : fmt::format("{:>{}}", text, width);
}

std::string heading(const BenchReport& report) {
  const Machine machine = this_machine();
  double peak = 0, read = 0;
  for (const BenchRow& row : report.rows) {
    peak = std::max(peak, row.peak_flops);
    read = std::max(read, row.read_bytes);
  }
  if (report.on_gpu()) {
    std::string text = fmt::format("{}, driver {}, NVRTC {}; graph replays by the GPU's clock", machine.gpu,
                                   machine.driver, machine.nvrtc.empty() ? "none" : machine.nvrtc);
    if (read > 0) text += fmt::format("; read bandwidth {} GB/s by the memory's clock", figure(read * 1e-9));
    return text;
  }
  std::string text = fmt::format("{}, {} thread{}, {}; f32 FMA peak {} GFLOP/s", machine.cpu, report.threads,
                                 report.threads == 1 ? "" : "s", report.isa, figure(peak * 1e-9));
  if (read > 0) text += fmt::format(", read bandwidth {} GB/s", figure(read * 1e-9));
  return text + ", measured between the runs";
}

}  // namespace

bool BenchReport::all_valid() const {
  return std::all_of(rows.begin(), rows.end(), [](const BenchRow& row) { return row.valid.value_or(true); });
}
bool BenchReport::has_relative() const {
  return std::any_of(rows.begin(), rows.end(), [](const BenchRow& row) { return row.relative.has_value(); });
}
bool BenchReport::has_bandwidth() const {
  return std::any_of(rows.begin(), rows.end(), [](const BenchRow& row) { return row.read_bytes > 0; });
}

void compare_rows(BenchReport& report) {
  for (BenchRow& row : report.rows) {
    const auto same = [&](const BenchRow& other) { return other.label == row.against; };
    const auto base = std::find_if(report.rows.begin(), report.rows.end(), same);
    if (!row.against.empty() && base != report.rows.end() && base->rate() > 0) row.relative = row.rate() / base->rate();
  }
}

std::string to_table(const BenchReport& report) {
  const Style style(stdout);
  const Grid grid = grid_of(report);
  const auto widths = widths_of(grid);
  std::string text = fmt::format("{}\n\n", heading(report));
  for (std::size_t i = 0; i < grid.lines.size(); ++i) {
    std::string line;
    for (std::size_t c = 0; c < widths.size(); ++c)
      line += fmt::format("{}{}", c == 0 ? "" : "  ", pad(grid.lines[i][c], widths[c], grid.left[c]));
    line.resize(line.find_last_not_of(' ') + 1);
    text += (i == 0 ? style.bold(line) : grid.lines[i].back() == kWrongMark ? style.red(line) : line) + "\n";
  }
  return text;
}

std::string to_markdown(const BenchReport& report) {
  const Grid grid = grid_of(report);
  const auto widths = widths_of(grid);
  std::string text =
      fmt::format("## heed bench {}\n\n{}.\nheed {}, {}; the best of the runs counts. Again: `{}`\n\n", report.suite,
                  heading(report), HEED_VERSION_STRING, utc_now().substr(0, 10), report.command);
  for (std::size_t i = 0; i < grid.lines.size(); ++i) {
    text += "|";
    for (std::size_t c = 0; c < widths.size(); ++c)
      text += fmt::format(" {} |", pad(grid.lines[i][c], widths[c], grid.left[c]));
    text += "\n";
    if (i > 0) continue;
    text += "|";
    for (std::size_t c = 0; c < widths.size(); ++c) {
      const std::string dashes(std::max<std::size_t>(widths[c], 3) - 1, '-');
      text += grid.left[c] ? fmt::format(" {}- |", dashes) : fmt::format(" {}: |", dashes);
    }
    text += "\n";
  }
  return text;
}

std::string to_json(const BenchReport& report) {
  auto rows = nlohmann::ordered_json::array();
  for (const BenchRow& row : report.rows) {
    auto arguments = nlohmann::ordered_json::array();
    for (const auto& [key, text] : verify::args_of(row.problem)) arguments.push_back(fmt::format("-{}={}", key, text));
    nlohmann::ordered_json json{{"label", row.label},
                                {"arguments", std::move(arguments)},
                                {"command", row.problem.to_command()},
                                {"kernel", row.kernel},
                                {"best_ms", row.times.best() * 1e3},
                                {"median_ms", row.times.median() * 1e3},
                                {"worst_ms", row.times.worst() * 1e3},
                                {"spread", row.times.spread()},
                                {"runs", row.times.count()},
                                {"gflops", row.rate() * 1e-9},
                                {"gb_s", row.bandwidth() * 1e-9}};
    if (row.peak_flops > 0) {
      json["peak_gflops"] = row.peak_flops * 1e-9;
      json["of_peak"] = row.of_peak();
    }
    if (row.read_bytes > 0) {
      json["read_gb_s"] = row.read_bytes * 1e-9;
      json["of_bandwidth"] = row.of_bandwidth();
    }
    if (row.relative) {
      json["against"] = row.against;
      json["relative"] = *row.relative;
    }
    json["valid"] = row.valid ? nlohmann::ordered_json(*row.valid) : nlohmann::ordered_json(nullptr);
    if (row.valid) {
      json["max_error"] = row.max_error;
      json["tolerance"] = row.tolerance;
      json["not_compared"] = row.not_compared;
    }
    rows.push_back(std::move(json));
  }
  const nlohmann::ordered_json json{{"suite", report.suite},
                                    {"command", report.command},
                                    {"date", utc_now()},
                                    {"version", HEED_VERSION_STRING},
                                    {"machine", to_json(this_machine())},
                                    {"engine", report.engine},
                                    {"isa", report.isa},
                                    {"threads", report.threads},
                                    {"rounds", report.rounds},
                                    {"load_average", report.load},
                                    {"rows", std::move(rows)}};
  return json_text(json);
}

}  // namespace heed::command
