#include "heed/record.hpp"

#include "heed/machine.hpp"
#include "heed/text.hpp"
#include "verify/case_args.hpp"

#include <heed/version.h>

#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heed::command {
namespace {

using Json = nlohmann::ordered_json;

/// JSON has no infinity: an output that is not a number where it must be one has an error of "inf".
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value)); }

Json position(const verify::Position& at) { return at.d < 0 ? Json{at.b, at.h, at.i} : Json{at.b, at.h, at.i, at.d}; }

}  // namespace

Json record_of(const Result& result) {
  Json json{{"command", result.problem_case.backward() ? "heed bwd" : "heed fwd"}, {"arguments", result.words}};
  for (const std::string& word : result.words) json["command"] = json["command"].get<std::string>() + " " + word;
  json["reproduce"] = result.problem_case.to_command();
  json["engine"] = result.engine;
  json["kernel"] = result.kernel;
  json["isa"] = result.isa;
  json["threads"] = result.threads;
  json["problem"] = Json::parse(result.problem.to_json());
  json["case"] = Json::parse(result.problem_case.to_json());

  json["valid"] = nullptr;
  json["max_error"] = nullptr;
  json["max_error_at"] = nullptr;
  json["tolerance"] = nullptr;
  if (const auto& verdict = result.verdict) {
    json["valid"] = verdict->valid();
    for (const auto& [tensor, distance] : verdict->gradients) {
      json[tensor + "_max_error"] = number(distance.max_error);
      json[tensor + "_max_error_at"] = position(distance.at);
      json[tensor + "_tolerance"] = number(distance.allowed);
    }
    const verify::Distance worst = verdict->worst();
    json["max_error"] = number(worst.max_error);
    json["max_error_at"] = position(worst.at);
    json["tolerance"] = number(worst.allowed);
    if (verdict->has_lse) {
      json["lse_max_error"] = number(verdict->lse.max_error);
      json["lse_max_error_at"] = position(verdict->lse.at);
      json["lse_tolerance"] = number(verdict->lse.allowed);
    }
    json["not_compared"] = verdict->not_compared;
    json["rows_checked"] = verdict->rows_checked;
    json["rows_total"] = verdict->rows_total;
    json["complaints"] = verdict->complaints;
  }

  const double seconds = result.times.median();
  json["time_ms"] = seconds * 1e3;
  json["best_ms"] = result.times.best() * 1e3;
  json["worst_ms"] = result.times.worst() * 1e3;
  json["runs"] = result.times.count();
  json["runs_together"] = result.times.together;
  json["tflops"] = seconds > 0 ? result.work.flops / seconds * 1e-12 : 0;
  json["gb_s"] = seconds > 0 ? result.work.bytes / seconds * 1e-9 : 0;
  json["visible_pairs"] = result.work.visible_pairs;
  json["flops"] = result.work.flops;
  json["bytes"] = result.work.bytes;
  json["workspace_bytes"] = result.workspace_bytes;

  json["machine"] = to_json(this_machine());
  json["version"] = HEED_VERSION_STRING;
  json["date"] = utc_now();
  return json;
}

}  // namespace heed::command
