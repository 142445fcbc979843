#include "cuda/hopper_knobs.hpp"

#include "core/invalid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace heed::cuda {
namespace {

using kernels::HopperConfig;
using kernels::Persistence;
using kernels::Turns;

constexpr std::array<std::string_view, 2> kNoYes{"0", "1"};
constexpr std::array<std::string_view, 3> kTurns{"free", "products", "softmax"};
constexpr std::array<std::string_view, 3> kPersistences{"off", "static", "dynamic"};
constexpr std::array<std::string_view, 2> kWidths{"f32", "f16"};
constexpr int kMostStages = 8;

constexpr HopperKnob number(std::string_view name, std::string_view help, int least, int most,
                            int (*get)(const HopperConfig&), void (*set)(HopperConfig&, int)) {
  return {name, help, {}, least, most, get, set};
}
constexpr HopperKnob words(std::string_view name, std::string_view help, std::span<const std::string_view> names,
                           int (*get)(const HopperConfig&), void (*set)(HopperConfig&, int)) {
  return {name, help, names, 0, static_cast<int>(names.size()) - 1, get, set};
}

/// In this order they are written. `tile_q` and `stages` say in one word what others say in two.
constexpr std::array kKnobs{
    number(
        "tile_q", "query rows of a tile: 64 for each math warpgroup", 64, 256,
        [](const HopperConfig& c) { return c.tile_q(); }, [](HopperConfig& c, int v) { c.warpgroups = v / 64; }),
    number(
        "warpgroups", "math warpgroups, 64 query rows each", 1, 4, [](const HopperConfig& c) { return c.warpgroups; },
        [](HopperConfig& c, int v) { c.warpgroups = v; }),
    number(
        "tile_k", "keys of a block", 32, 176, [](const HopperConfig& c) { return c.tile_k; },
        [](HopperConfig& c, int v) { c.tile_k = v; }),
    number(
        "stages", "stages of the rings of K and of V", 1, kMostStages,
        [](const HopperConfig& c) { return c.k_stages == c.v_stages ? c.k_stages : 0; },
        [](HopperConfig& c, int v) { c.k_stages = c.v_stages = v; }),
    number(
        "k_stages", "stages of the ring of K", 1, kMostStages, [](const HopperConfig& c) { return c.k_stages; },
        [](HopperConfig& c, int v) { c.k_stages = v; }),
    number(
        "v_stages", "stages of the ring of V", 1, kMostStages, [](const HopperConfig& c) { return c.v_stages; },
        [](HopperConfig& c, int v) { c.v_stages = v; }),
    number(
        "q_buffers", "buffers of Q", 1, 2, [](const HopperConfig& c) { return c.q_buffers; },
        [](HopperConfig& c, int v) { c.q_buffers = v; }),
    words(
        "turns", "who goes first among the math warpgroups", kTurns,
        [](const HopperConfig& c) { return static_cast<int>(c.turns); },
        [](HopperConfig& c, int v) { c.turns = static_cast<Turns>(v); }),
    words(
        "persistence", "blocks that live for one tile, or take tiles by a plan, or as they come", kPersistences,
        [](const HopperConfig& c) { return static_cast<int>(c.persistence); },
        [](HopperConfig& c, int v) { c.persistence = static_cast<Persistence>(v); }),
    words(
        "lazy_maximum", "no row maximum in unmasked blocks unless the row sums ask for one", kNoYes,
        [](const HopperConfig& c) { return c.lazy_maximum ? 1 : 0; },
        [](HopperConfig& c, int v) { c.lazy_maximum = v != 0; }),
    number(
        "rescale_threshold", "O is rescaled when a maximum grows by more than this, in log2 units; 0: always", 0, 12,
        [](const HopperConfig& c) { return c.rescale_threshold; },
        [](HopperConfig& c, int v) { c.rescale_threshold = v; }),
    words(
        "q_in_registers", "Q of the first product in registers instead of shared memory", kNoYes,
        [](const HopperConfig& c) { return c.q_in_registers ? 1 : 0; },
        [](HopperConfig& c, int v) { c.q_in_registers = v != 0; }),
    words(
        "own_o_memory", "O leaves through memory of its own instead of its Q tile's", kNoYes,
        [](const HopperConfig& c) { return c.own_o_memory ? 1 : 0; },
        [](HopperConfig& c, int v) { c.own_o_memory = v != 0; }),
    words(
        "specialised", "1: a warp of its own copies; 0: a thread of a math warp does, while that warp waits", kNoYes,
        [](const HopperConfig& c) { return c.specialised ? 1 : 0; },
        [](HopperConfig& c, int v) { c.specialised = v != 0; }),
    number(
        "cluster", "blocks that share K and V, each loading half of them for both", 1, 2,
        [](const HopperConfig& c) { return c.cluster; }, [](HopperConfig& c, int v) { c.cluster = v; }),
    words(
        "p_in_shared", "P of the second product in shared memory instead of registers", kNoYes,
        [](const HopperConfig& c) { return c.p_in_shared ? 1 : 0; },
        [](HopperConfig& c, int v) { c.p_in_shared = v != 0; }),
    words(
        "scores_in", "what the first product accumulates in; f16 is inaccurate, and never chosen by heed", kWidths,
        [](const HopperConfig& c) { return c.scores_in_f16 ? 1 : 0; },
        [](HopperConfig& c, int v) { c.scores_in_f16 = v != 0; }),
    words(
        "sums_in", "what the second product accumulates in; f16 is inaccurate, and never chosen by heed", kWidths,
        [](const HopperConfig& c) { return c.sums_in_f16 ? 1 : 0; },
        [](HopperConfig& c, int v) { c.sums_in_f16 = v != 0; }),
    words(
        "pack", "query heads of a group share tiles, where that makes fewer of them", kNoYes,
        [](const HopperConfig& c) { return c.pack ? 1 : 0; }, [](HopperConfig& c, int v) { c.pack = v != 0; }),
};

std::vector<std::string_view> knob_names() {
  std::vector<std::string_view> names;
  for (const HopperKnob& knob : kKnobs) names.push_back(knob.name);
  return names;
}

int parse_value(const HopperKnob& knob, std::string_view text) {
  const auto word = std::find(knob.words.begin(), knob.words.end(), text);
  if (word != knob.words.end()) return static_cast<int>(word - knob.words.begin());
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!knob.words.empty() || !whole || value < knob.least || value > knob.most ||
      (knob.name == "tile_q" && value % 64 != 0))
    throw core::invalid("algo {}:{} : {} takes {}.", knob.name, text, knob.name, knob.values());
  return value;
}

}  // namespace

std::string HopperKnob::text(int value) const {
  return words.empty() ? std::to_string(value) : std::string(words[static_cast<std::size_t>(value)]);
}

std::string HopperKnob::values() const {
  if (name == "tile_q") return "64, 128, 192 or 256";
  if (words.empty()) return fmt::format("{} to {}", least, most);
  return fmt::format("{} or {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
}

std::span<const HopperKnob> hopper_knobs() { return kKnobs; }

const HopperKnob& hopper_knob(std::string_view name) {
  const auto found = std::find_if(kKnobs.begin(), kKnobs.end(), [&](const HopperKnob& k) { return k.name == name; });
  if (found == kKnobs.end())
    throw core::invalid("algo {} : no such knob; there are {}.", name, fmt::join(knob_names(), ", "));
  return *found;
}

HopperAlgo HopperAlgo::parse(std::string_view text) {
  HopperAlgo algo;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, end);
    const std::size_t colon = word.find(':');
    if (colon == word.npos || (end + 1 == text.size()))
      throw core::invalid(
          "algo {} : knobs are written name:value with commas between, for example stages:3,tile_k:128.", text);
    const HopperKnob& knob = hopper_knob(word.substr(0, colon));
    for (const Setting& each : algo.settings_)
      if (each.knob == &knob) throw core::invalid("algo {} : {} is given twice.", word, knob.name);
    algo.set(knob, parse_value(knob, word.substr(colon + 1)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const HopperConfig applied = algo.applied_to({});
  for (const Setting& each : algo.settings_)
    if (each.knob->get(applied) != each.value)
      throw core::invalid("algo {} : {}:{} contradicts what stands behind it.", algo.to_string(), each.knob->name,
                          each.knob->text(each.value));
  return algo;
}

HopperAlgo HopperAlgo::of(const HopperConfig& config) {
  HopperAlgo algo;
  const bool alike = config.k_stages == config.v_stages;
  for (const HopperKnob& knob : kKnobs) {
    // What another knob says in one word is left out.
    if (knob.name == "tile_q" || (knob.name == "stages" && !alike)) continue;
    if (alike && (knob.name == "k_stages" || knob.name == "v_stages")) continue;
    algo.set(knob, knob.get(config));
  }
  return algo;
}

HopperAlgo& HopperAlgo::set(const HopperKnob& knob, int value) {
  settings_.push_back({&knob, value});
  return *this;
}

bool HopperAlgo::has(std::string_view knob) const {
  return std::any_of(settings_.begin(), settings_.end(), [&](const Setting& each) { return each.knob->name == knob; });
}

HopperConfig HopperAlgo::applied_to(HopperConfig config) const {
  for (const Setting& each : settings_) each.knob->set(config, each.value);
  return config;
}

std::string HopperAlgo::to_string() const {
  std::string text;
  for (const Setting& each : settings_)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", each.knob->name, each.knob->text(each.value));
  return text;
}

std::string broken_limit(const HopperConfig& config) {
  const char* const limit = config.impossible();
  if (limit == nullptr) return {};
  const std::string_view text = limit;
  if (text.starts_with("shared memory"))
    return fmt::format("{}; this takes {:.1f} KB", text, config.shared_bytes() / 1024.0);
  if (text.starts_with("registers: O, S"))
    return fmt::format("{}; they take {} of {}", text, config.operand_registers(), config.math_registers());
  return std::string(text);
}

}  // namespace heed::cuda
