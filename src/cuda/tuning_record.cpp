#include "cuda/tuning_record.hpp"

#include "cuda/cache_folder.hpp"
#include "cuda/embedded.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

namespace heed::cuda {
namespace {

using core::Json;
using core::JsonReader;

constexpr std::int64_t kVersion = 1;
constexpr const char* kVersionKey = "heed_tuning";
constexpr std::array kMasks{std::pair{"none", false}, std::pair{"causal", true}};

/// Throws where the object lacks the key.
JsonReader required(const JsonReader& reader, std::string_view key) {
  const Json& object = reader.object();
  const auto found = object.find(key);
  if (found == object.end()) throw reader.wrong(fmt::format("an object with the key '{}'", key));
  return reader.at(key, *found);
}

int sm_of(const JsonReader& arch) {
  const std::string_view text = arch.text();
  constexpr std::string_view kPrefix = "sm_";
  int sm = 0;
  const char* const end = text.data() + text.size();
  if (!text.starts_with(kPrefix) || std::from_chars(text.data() + kPrefix.size(), end, sm).ptr != end || sm <= 0)
    throw arch.wrong("an architecture, for example \"sm_90\"");
  return sm;
}

TuningEntry entry_of(const JsonReader& reader) {
  constexpr std::array kKeys{"name", "arch", "d", "d_v", "mask", "keys", "algo", "tflops"};
  for (const auto& [key, value] : reader.object().items()) {
    bool known = false;
    for (const char* each : kKeys) known = known || key == each;
    if (!known) throw reader.unknown(key, fmt::format("{}", fmt::join(kKeys, ", ")));
  }
  TuningEntry entry;
  if (const auto name = reader.object().find("name"); name != reader.object().end())
    entry.name = reader.at("name", *name).text();
  entry.sm = sm_of(required(reader, "arch"));
  entry.d = static_cast<int>(required(reader, "d").integer());
  entry.d_v = static_cast<int>(required(reader, "d_v").integer());
  entry.causal = required(reader, "mask").choice(kMasks);
  const JsonReader keys = required(reader, "keys");
  if (keys.array().size() != 2) throw keys.wrong("two numbers of keys, from and to; null: no limit");
  entry.from_keys = keys.at("keys", keys.array()[0]).integer();
  if (const JsonReader to = keys.at("keys", keys.array()[1]); !to.null()) entry.to_keys = to.integer();
  entry.algo = required(reader, "algo").text();
  if (const auto tflops = reader.object().find("tflops"); tflops != reader.object().end())
    entry.tflops = reader.at("tflops", *tflops).number();
  return entry;
}

Json list_of(const std::vector<TuningEntry>& entries) {
  Json list = Json::array();
  for (const TuningEntry& each : entries) {
    Json entry = Json::object();
    if (!each.name.empty()) entry["name"] = each.name;
    entry["arch"] = fmt::format("sm_{}", each.sm);
    entry["d"] = each.d;
    entry["d_v"] = each.d_v;
    entry["mask"] = each.causal ? "causal" : "none";
    entry["keys"] = Json::array({each.from_keys, each.to_keys ? Json(*each.to_keys) : Json(nullptr)});
    entry["algo"] = each.algo;
    if (each.tflops > 0) entry["tflops"] = each.tflops;
    list.push_back(std::move(entry));
  }
  return list;
}

std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw core::invalid("{}: cannot be read.", path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TuningRecord tuning_from_json(std::string_view text, std::string_view what) {
  const Json json = core::parse_json(text, what);
  const JsonReader reader(what, "record", json);
  if (const JsonReader version = required(reader, kVersionKey); version.integer() != kVersion)
    throw version.wrong(fmt::format("{}, the version of tuning records that this heed reads", kVersion));
  TuningRecord record;
  if (const auto made = json.find("made"); made != json.end()) record.made = reader.at("made", *made).object();
  for (const Json& each : required(reader, "forward").array())
    record.forward.push_back(entry_of(reader.at("forward", each)));
  if (const auto backward = json.find("backward"); backward != json.end())
    for (const Json& each : reader.at("backward", *backward).array())
      record.backward.push_back(entry_of(reader.at("backward", each)));
  return record;
}

std::string to_json(const TuningRecord& record) {
  return Json{{kVersionKey, kVersion},
              {"made", record.made},
              {"forward", list_of(record.forward)},
              {"backward", list_of(record.backward)}}
             .dump(2) +
         "\n";
}

std::string kernel_name(const TuningEntry& entry, TunedBy by) {
  if (!entry.name.empty() && by == TunedBy::heed) return entry.name;
  return fmt::format("tuned_d{}_{}_{}_from_{}{}", entry.d, entry.d_v, entry.causal ? "causal" : "full", entry.from_keys,
                     entry.to_keys ? fmt::format("_to_{}", *entry.to_keys) : "");
}

const TuningRecord& shipped_tuning() {
  static const TuningRecord* const record = [] {
    auto* const all = new TuningRecord;
    for (const SourceFile& file : embedded_tuning()) {
      const TuningRecord one = tuning_from_json(file.text, file.name);
      all->made[std::string(file.name)] = one.made;
      for (const Operation operation : {Operation::forward, Operation::backward})
        all->of(operation).insert(all->of(operation).end(), one.of(operation).begin(), one.of(operation).end());
    }
    return all;
  }();
  return *record;
}

UserTuning UserTuning::read() {
  UserTuning user;
  if (const char* const named = std::getenv("HEED_TUNING"); named != nullptr && *named != '\0') {
    user.path = named;
    user.named = true;
    user.record = tuning_from_json(text_of_file(user.path), user.path.string());
    return user;
  }
  const std::filesystem::path folder = default_cache_folder();
  if (folder.empty()) return user;
  user.path = folder / "tuning.json";
  std::error_code unreadable;
  if (!std::filesystem::exists(user.path, unreadable)) return user;
  try {
    user.record = tuning_from_json(text_of_file(user.path), user.path.string());
  } catch (const Error& error) {
    user.ignored = error.what();
  }
  return user;
}

}  // namespace heed::cuda
