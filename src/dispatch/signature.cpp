#include "dispatch/signature.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

namespace heed::dispatch {
namespace {

constexpr std::array<std::string_view, 5> kMaskNames{"none", "causal", "window", "window_with_sink", "raw"};
constexpr std::array<std::string_view, 15> kFeatureNames{
    "lse",     "bias",      "alibi",      "soft_cap",        "sink",           "dropout",
    "randval", "bool_mask", "block_mask", "logical_lengths", "column_major_v", "d_lse",
    "dbias",   "dsink",     "dslopes"};
constexpr std::size_t kForwardFeatures = 11;  // the first of them
constexpr std::array<std::string_view, 2> kModeNames{"batch", "group"};
constexpr std::array<std::string_view, 2> kMathNames{"fast", "accurate"};
constexpr std::array<std::string_view, 5> kUnitNames{"f32_fma", "bf16_dot", "amx_bf16", "mma", "wgmma"};

template <class E>
nlohmann::ordered_json json_of(const Set<E>& set) {
  if (set.is_any()) return "any";
  auto list = nlohmann::ordered_json::array();
  set.for_each([&](E member) { list.push_back(enum_text(member)); });
  return list;
}

nlohmann::ordered_json json_of(const Sizes& sizes) {
  if (sizes.is_any()) return "any";
  nlohmann::ordered_json json{{"min", sizes.min}};
  if (sizes.max != Sizes::kNoLimit) json["max"] = sizes.max;
  if (sizes.multiple_of != 1) json["multiple_of"] = sizes.multiple_of;
  return json;
}

/// The numbers written in a text: "d128*d_v64*" holds 128 and 64.
std::vector<std::int64_t> numbers_in(std::string_view text) {
  std::vector<std::int64_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    std::int64_t number = 0;
    const auto parsed = std::from_chars(at, end, number);
    if (parsed.ec == std::errc{}) numbers.push_back(number);
    at = std::max(parsed.ptr, at + 1);
  }
  return numbers;
}

/// The texts to try for a head dim: the range as it is, and those of the numbers that it holds.
std::vector<std::string> filled(const Sizes& sizes, const std::vector<std::int64_t>& numbers) {
  std::vector<std::string> texts{sizes.to_string()};
  for (std::int64_t n : numbers)
    if (sizes.has(n)) texts.push_back(std::to_string(n));
  return texts;
}

/// The members by name, those that `any` stands for too.
template <class E>
std::string filled(const Set<E>& set, std::span<const std::string_view> names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (set.has(static_cast<E>(i))) text += (text.empty() ? "" : ",") + std::string(names[i]);
  return text;
}

}  // namespace

std::string_view name(MaskClass mask) { return kMaskNames.at(static_cast<std::size_t>(mask)); }

MaskClass mask_class(const Mask& mask) {
  if (mask.hides_nothing()) return MaskClass::none;
  if (mask.kind() == Mask::Kind::raw) return MaskClass::raw;
  if (mask.sink() > 0) return MaskClass::window_with_sink;
  return mask.left() < 0 && mask.right() == 0 ? MaskClass::causal : MaskClass::window;
}

std::string_view name(Feature feature) { return kFeatureNames.at(static_cast<std::size_t>(feature)); }

Set<Feature> features_of(const Problem& problem) {
  Set<Feature> used;
  const auto add_if = [&](bool condition, Feature feature) {
    if (condition) used.add(feature);
  };
  add_if(problem.lse() && problem.operation() == Operation::forward, Feature::lse);  // backward always reads one
  add_if(problem.bias().has_value(), Feature::bias);
  add_if(problem.alibi() != Alibi::none, Feature::alibi);
  add_if(problem.soft_cap() > 0, Feature::soft_cap);
  add_if(problem.sink(), Feature::sink);
  add_if(problem.dropout() > 0, Feature::dropout);
  add_if(problem.randval(), Feature::randval);
  add_if(problem.bool_mask().has_value(), Feature::bool_mask);
  add_if(problem.block_mask().has_value(), Feature::block_mask);
  add_if(problem.logical_q() || problem.logical_k(), Feature::logical_lengths);
  // Strides of dimensions of size 0 or 1 read as 0, so a stride other than 1 is one that is used.
  add_if(problem.d_v() > 1 && problem.strides(Operand::v).dim != 1, Feature::column_major_v);
  add_if(problem.d_lse(), Feature::d_lse);
  add_if(problem.dbias().has_value(), Feature::dbias);
  add_if(problem.dsink(), Feature::dsink);
  add_if(problem.dslopes(), Feature::dslopes);
  return used;
}

template <>
std::string_view enum_text(Mode mode) {
  return kModeNames.at(static_cast<std::size_t>(mode));
}

template <>
std::string_view enum_text(Math math) {
  return kMathNames.at(static_cast<std::size_t>(math));
}

template <>
std::string_view enum_text(Operation operation) {
  return operation == Operation::forward ? "forward" : "backward";
}

std::string Signature::to_string() const {
  return fmt::format(
      "{} -> {}, d {}, d_v {}, mode {}, mask {}, features {}, math {}{}", types.to_string(), output_types.to_string(),
      d.to_string(), d_v.to_string(), modes.to_string(), masks.to_string(), features.to_string(), math.to_string(),
      (rows_per_kv_head.is_any() ? "" : fmt::format(", rows per K/V head {}", rows_per_kv_head.to_string())) +
          (tma ? ", by TMA" : ""));
}

nlohmann::ordered_json Signature::to_json() const {
  return {{"types", json_of(types)},
          {"output_types", json_of(output_types)},
          {"d", json_of(d)},
          {"d_v", json_of(d_v)},
          {"modes", json_of(modes)},
          {"masks", json_of(masks)},
          {"features", json_of(features)},
          {"math", json_of(math)},
          {"rows_per_kv_head", json_of(rows_per_kv_head)},
          {"accumulate", json_of(accumulate)},
          {"deterministic", deterministic},
          {"tma", tma},
          {"lengths", json_of(lengths)}};
}

std::vector<std::string> Signature::instances(std::string_view pattern, Operation operation) const {
  const auto numbers = numbers_in(pattern);
  const auto names =
      std::span(kFeatureNames).first(operation == Operation::forward ? kForwardFeatures : kFeatureNames.size());
  const std::string rest = filled(modes, kModeNames) + " " + filled(features, names) + " " + filled(math, kMathNames);
  std::vector<std::string> lines;
  for (const std::string& dim : filled(d, numbers)) {
    for (const std::string& dim_v : filled(d_v, numbers)) {
      for (std::size_t i = 0; i < kMaskNames.size(); ++i) {
        if (!masks.has(static_cast<MaskClass>(i))) continue;
        types.for_each([&](DataType type) {
          lines.push_back(fmt::format("{} d{} d_v{} {} {}", heed::name(type), dim, dim_v, kMaskNames[i], rest));
        });
      }
    }
  }
  return lines;
}

std::string_view name(MathUnit unit) { return kUnitNames.at(static_cast<std::size_t>(unit)); }

std::string_view name(Schedule schedule) { return schedule == Schedule::tiles ? "tiles" : "split_keys"; }

std::string Algorithm::to_string() const {
  return fmt::format("{}, {}, {} of {} x {}{}{}", arch.to_string(), name(unit), name(schedule), tile_q, tile_k,
                     notes.empty() ? "" : "; ", notes);
}

nlohmann::ordered_json Algorithm::to_json() const {
  return {{"arch", arch.to_string()}, {"unit", name(unit)}, {"schedule", name(schedule)},
          {"tile_q", tile_q},         {"tile_k", tile_k},   {"notes", notes}};
}

}  // namespace heed::dispatch
