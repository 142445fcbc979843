#include "verify/case_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace heed::verify {
namespace {

using enum Distribution;
constexpr std::array<std::pair<Distribution, std::string_view>, 12> kDistributions{{{normal, "normal"},
                                                                                    {uniform_int, "uniform_int"},
                                                                                    {normal_int, "normal_int"},
                                                                                    {uniform, "uniform"},
                                                                                    {trig, "trig"},
                                                                                    {extreme, "extreme"},
                                                                                    {sparse_int, "sparse_int"},
                                                                                    {offset, "offset"},
                                                                                    {hot_key, "hot_key"},
                                                                                    {const_v, "const_v"},
                                                                                    {equal, "equal"},
                                                                                    {one_nan, "one_nan"}}};

using Tensor = ZeroStride::Tensor;
constexpr std::array<std::pair<Tensor, std::string_view>, 6> kTensors{{{Tensor::q, "q"},
                                                                       {Tensor::k, "k"},
                                                                       {Tensor::v, "v"},
                                                                       {Tensor::bias, "bias"},
                                                                       {Tensor::bool_mask, "bool_mask"},
                                                                       {Tensor::d_o, "d_o"}}};

/// Reads letters, each at most once, and sets the flag of each.
bool read_letters(std::string_view text, std::initializer_list<std::pair<char, bool*>> flags) {
  for (const char letter : text) {
    bool known = false;
    for (const auto& [name, flag] : flags) {
      if (letter != name || *flag) continue;
      known = *flag = true;
    }
    if (!known) return false;
  }
  return !text.empty();
}

}  // namespace

std::string_view name(Distribution distribution) {
  return kDistributions[static_cast<std::size_t>(distribution)].second;
}

std::optional<Distribution> find_distribution(std::string_view text) {
  for (const auto& [distribution, its_name] : kDistributions)
    if (text == its_name) return distribution;
  return std::nullopt;
}

std::string distribution_names() {
  std::string names;
  for (const auto& each : kDistributions) names += fmt::format("{}{}", names.empty() ? "" : ", ", each.second);
  return names;
}

std::string_view precision_name(DataType type) {
  switch (type) {
    case DataType::f32:
      return "fp32";
    case DataType::f16:
      return "fp16";
    default:
      return heed::name(type);
  }
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty() || !parts.empty()) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == text.npos) break;
    text.remove_prefix(at + 1);
  }
  return parts;
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}
template std::optional<std::int64_t> parse_number(std::string_view);
template std::optional<std::uint64_t> parse_number(std::string_view);
template std::optional<double> parse_number(std::string_view);

std::string list_text(const std::vector<std::int64_t>& list) { return fmt::format("{}", fmt::join(list, ",")); }

std::optional<std::vector<std::int64_t>> parse_list(std::string_view text) {
  std::vector<std::int64_t> list;
  for (const std::string_view part : split(text, ',')) {
    const auto number = parse_number<std::int64_t>(part);
    if (!number) return std::nullopt;
    list.push_back(*number);
  }
  return list;
}

std::string broadcast_text(const Broadcast& shape) {
  if (shape == Broadcast{.query = true}) return "e";
  if (shape == Broadcast{.head = true, .query = true}) return "e:1";
  if (shape == Broadcast{.batch = true, .head = true, .query = true}) return "e:2";
  if (shape == Broadcast{}) return "e:k";
  return fmt::format("e:{}{}{}{}", shape.batch ? "b" : "", shape.head ? "h" : "", shape.query ? "q" : "",
                     shape.key ? "" : "-k");
}

std::optional<Broadcast> parse_broadcast(std::string_view text) {
  if (text == "e" || text == "e:0") return Broadcast{.query = true};
  if (text == "e:1") return Broadcast{.head = true, .query = true};
  if (text == "e:2") return Broadcast{.batch = true, .head = true, .query = true};
  if (text == "e:k") return Broadcast{};
  Broadcast shape;
  if (!text.starts_with("e:")) return std::nullopt;
  text.remove_prefix(2);
  if (text.ends_with("-k")) {
    shape.key = false;
    text.remove_suffix(2);
    if (text.empty()) return shape;
  }
  if (!read_letters(text, {{'b', &shape.batch}, {'h', &shape.head}, {'q', &shape.query}})) return std::nullopt;
  return shape;
}

std::string block_mask_text(const BlockMaskSpec& spec) {
  const std::string letters = fmt::format("{}{}", spec.shape.batch ? "b" : "", spec.shape.head ? "h" : "");
  return fmt::format("{},{}{}{}", spec.block_q, spec.block_k, letters.empty() ? "" : ":", letters);
}

std::optional<BlockMaskSpec> parse_block_mask(std::string_view text) {
  BlockMaskSpec spec{.shape = {.query = true}};
  const std::size_t colon = text.find(':');
  if (colon != text.npos && !read_letters(text.substr(colon + 1), {{'b', &spec.shape.batch}, {'h', &spec.shape.head}}))
    return std::nullopt;
  const auto sizes = parse_list(text.substr(0, colon));
  if (!sizes || sizes->size() != 2) return std::nullopt;
  spec.block_q = sizes->at(0);
  spec.block_k = sizes->at(1);
  return spec;
}

std::string zero_strides_text(const std::vector<ZeroStride>& list) {
  std::string text;
  for (const ZeroStride& each : list)
    text += fmt::format("{}{}.{}", text.empty() ? "" : ",", kTensors[static_cast<std::size_t>(each.tensor)].second,
                        each.dim);
  return text;
}

std::string reversed_text(const std::vector<Reversed>& list) {
  std::string text;
  for (const Reversed& each : list)
    text += fmt::format("{}{}.{}", text.empty() ? "" : ",", heed::name(each.tensor), each.dim);
  return text;
}

std::optional<std::vector<Reversed>> parse_reversed(std::string_view text) {
  constexpr std::array kOperands{Operand::q,   Operand::k,  Operand::v,  Operand::o,
                                 Operand::d_o, Operand::dq, Operand::dk, Operand::dv};
  std::vector<Reversed> list;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t dot = part.find('.');
    const auto its = std::find_if(kOperands.begin(), kOperands.end(),
                                  [&](Operand each) { return heed::name(each) == part.substr(0, dot); });
    if (dot == part.npos || its == kOperands.end() || part.size() != dot + 2 ||
        std::string_view("bsh").find(part.back()) == std::string_view::npos)
      return std::nullopt;
    list.push_back({*its, part.back()});
  }
  return list;
}

std::optional<std::vector<ZeroStride>> parse_zero_strides(std::string_view text) {
  std::vector<ZeroStride> list;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t dot = part.find('.');
    bool known = false;
    for (const auto& [tensor, its_name] : kTensors) {
      if (dot == part.npos || part.substr(0, dot) != its_name || part.size() != dot + 2) continue;
      const std::string_view dims = tensor <= Tensor::v || tensor == Tensor::d_o ? "bsh" : "bhqk";
      known = dims.find(part.back()) != dims.npos;
      if (known) list.push_back({tensor, part.back()});
    }
    if (!known) return std::nullopt;
  }
  return list;
}

}  // namespace heed::verify
