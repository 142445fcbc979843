/// heed replay: runs the record of an earlier run again.

#include "heed/attention_once.hpp"
#include "heed/command.hpp"
#include "heed/text.hpp"

#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

namespace heed::command {
namespace {

/// The arguments of the recorded run. Its own record is not overwritten: where this one goes is said anew.
Words recorded_words(const std::string& path, const nlohmann::json& record) {
  if (!record.is_object() || !record.contains("arguments") || !record.at("arguments").is_array())
    throw UsageError(
        fmt::format("'{}' : no record of a run: it has no list 'arguments'; 'heed fwd -json=1' writes one.", path));
  Words words;
  for (const auto& each : record.at("arguments")) {
    if (!each.is_string())
      throw UsageError(fmt::format("'{}' : 'arguments' holds {}, which is no text.", path, each.dump()));
    const auto word = each.get<std::string>();
    if (word.rfind("-json", 0) != 0) words.push_back(word);
  }
  return words;
}

nlohmann::json read_record(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw UsageError(fmt::format("'{}' : cannot be read.", path));
  try {
    return nlohmann::json::parse(file);
  } catch (const nlohmann::json::exception&) {
    throw UsageError(fmt::format("'{}' : is not JSON.", path));
  }
}

}  // namespace

int run_replay(const Words& words) {
  Arguments arguments("heed replay",
                      "Runs the record that 'heed fwd -json=1' or 'heed bwd -json=1' wrote again, and compares.");
  arguments.positional("<record.json>", 1, 1);
  arguments.group("Output");
  arguments.option("jsonfile", "", "write the new record here");
  arguments.footer(R"(Examples
  heed fwd -s=1024 -mask=b -json=1 -jsonfile=run.json
  heed replay run.json
)");
  arguments.parse(words);
  const std::string& path = arguments.positionals().front();
  const nlohmann::json record = read_record(path);
  Words again = recorded_words(path, record);
  if (const std::string& file = arguments.text("jsonfile"); !file.empty()) {
    again.emplace_back("-json=1");
    again.push_back("-jsonfile=" + file);
  }
  const bool backward = record.value("command", std::string()).rfind("heed bwd", 0) == 0;
  const auto [result, exit_code] = attention_once(again, backward ? Operation::backward : Operation::forward);

  const auto recorded = [&](const char* key) { return record.value(key, nlohmann::json()); };
  if (const auto time = recorded("time_ms"); time.is_number() && result.times.best() > 0)
    fmt::print("  recorded: {} ms; now {:.2f}x its rate\n", figure(time.get<double>()),
               time.get<double>() / (result.times.median() * 1e3));
  if (const auto kernel = recorded("kernel"); kernel.is_string() && kernel != result.kernel)
    fmt::print("  recorded on another kernel: {}; now {}\n", kernel.get<std::string>(), result.kernel);
  return exit_code;
}

}  // namespace heed::command
