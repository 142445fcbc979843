#include <heed/problem.hpp>

#include "core/json.hpp"

#include <utility>

namespace heed {
namespace {

using core::Json;
using core::JsonReader;

template <class Enum, std::size_t n>
using Names = std::array<std::pair<std::string_view, Enum>, n>;

constexpr Names<Operation, 2> kOperations{{{"forward", Operation::forward}, {"backward", Operation::backward}}};
constexpr Names<Mode, 2> kModes{{{"batch", Mode::batch}, {"group", Mode::group}}};
constexpr Names<Layout, 2> kLayouts{{{"bshd", Layout::bshd}, {"bhsd", Layout::bhsd}}};
constexpr Names<Operand, kOperandCount> kOperands{{{"q", Operand::q},
                                                   {"k", Operand::k},
                                                   {"v", Operand::v},
                                                   {"o", Operand::o},
                                                   {"d_o", Operand::d_o},
                                                   {"dq", Operand::dq},
                                                   {"dk", Operand::dk},
                                                   {"dv", Operand::dv}}};
constexpr Names<Math, 2> kMaths{{{"fast", Math::fast}, {"accurate", Math::accurate}}};
constexpr Names<Alibi, 3> kAlibis{
    {{"none", Alibi::none}, {"per_head", Alibi::per_head}, {"per_batch_and_head", Alibi::per_batch_and_head}}};
constexpr Names<bool Broadcast::*, 4> kDimensions{
    {{"b", &Broadcast::batch}, {"h", &Broadcast::head}, {"s_q", &Broadcast::query}, {"s_k", &Broadcast::key}}};

template <class Enum, std::size_t n>
std::string_view name_of(Enum value, const Names<Enum, n>& names) {
  for (const auto& [text, entry] : names)
    if (entry == value) return text;
  return "?";
}

// ---- writing ----

/// The dimensions it has of its own: ["h", "s_q", "s_k"].
Json shape_json(const Broadcast& shape) {
  Json list = Json::array();
  for (const auto& [text, member] : kDimensions)
    if (shape.*member) list.push_back(text);
  return list;
}

bool dense_in(const Problem& p, Layout layout) {
  Problem dense = p;
  dense.layout(layout);
  for (const Operand operand : p.operands())
    if (dense.strides(operand) != p.strides(operand)) return false;
  return true;
}

Json strides_json(const Problem& p) {
  Json all;
  for (const Operand operand : p.operands()) {
    const Strides s = p.strides(operand);
    all[std::string(name(operand))] = {s.batch, s.sequence, s.head, s.dim};
  }
  return all;
}

// ---- reading ----

DataType read_type(const JsonReader& value) {
  try {
    return parse_type(value.text());
  } catch (const Error& error) {
    throw core::invalid("problem JSON: {}", error.what());
  }
}

Broadcast read_shape(const JsonReader& value) {
  Broadcast shape{false, false, false, false};
  for (const Json& item : value.array()) shape.*value.at("shape", item).choice(kDimensions) = true;
  return shape;
}

std::optional<Broadcast> read_bool_mask(const JsonReader& value) {
  if (value.null()) return {};
  Broadcast shape;
  for (const auto& [key, item] : value.object().items()) {
    if (key != "shape") throw value.unknown(key, "shape");
    shape = read_shape(value.at(key, item));
  }
  return shape;
}

std::optional<BiasSpec> read_bias(const JsonReader& value) {
  if (value.null()) return {};
  BiasSpec bias;
  for (const auto& [key, item] : value.object().items()) {
    const JsonReader entry = value.at(key, item);
    if (key == "type") {
      bias.type = read_type(entry);
    } else if (key == "shape") {
      bias.shape = read_shape(entry);
    } else {
      throw value.unknown(key, "type, shape");
    }
  }
  return bias;
}

std::optional<BlockMaskSpec> read_block_mask(const JsonReader& value) {
  if (value.null()) return {};
  BlockMaskSpec spec;
  for (const auto& [key, item] : value.object().items()) {
    const JsonReader entry = value.at(key, item);
    if (key == "block_q") {
      spec.block_q = entry.integer();
    } else if (key == "block_k") {
      spec.block_k = entry.integer();
    } else if (key == "shape") {
      spec.shape = read_shape(entry);
    } else {
      throw value.unknown(key, "block_q, block_k, shape");
    }
  }
  return spec;
}

/// A problem being read. What one key tells is completed by others, in whatever order they come.
struct Draft {
  Problem problem = Problem::forward();
  std::int64_t heads_q = 1, heads_k = -1, s_q = 1, s_k = 1, total_q = 0, total_k = 0, d = 64, d_v = -1;
  bool logical_q = false, logical_k = false;
  Layout layout = Layout::bshd;
  std::array<std::optional<Strides>, kOperandCount> strides;
};

void read_strides(Draft& draft, const JsonReader& value) {
  for (const auto& [key, item] : value.object().items()) {
    const JsonReader entry = value.at(key, item);
    std::optional<Strides>* place = nullptr;
    for (std::size_t i = 0; i < kOperands.size(); ++i)
      if (kOperands[i].first == key) place = &draft.strides[i];
    if (place == nullptr) throw value.unknown(key, "q, k, v, o, d_o, dq, dk, dv");
    if (entry.array().size() != 4) throw entry.wrong("four strides in elements, [batch, sequence, head, dim]");
    std::array<std::int64_t, 4> steps{};
    for (std::size_t i = 0; i < 4; ++i) steps[i] = entry.at(key, item[i]).integer();
    *place = {steps[0], steps[1], steps[2], steps[3]};
  }
}

using Read = void (*)(Draft&, const JsonReader&);

// clang-format off
constexpr std::pair<std::string_view, Read> kReaders[] = {
    {"operation", [](Draft&, const JsonReader&) {}},  // read before all others
    {"type", [](Draft& to, const JsonReader& v) { to.problem.type(read_type(v)); }},
    {"output_type", [](Draft& to, const JsonReader& v) { to.problem.output_type(read_type(v)); }},
    {"mode", [](Draft& to, const JsonReader& v) { to.problem.mode(v.choice(kModes)); }},
    {"batch", [](Draft& to, const JsonReader& v) { to.problem.batch(v.integer()); }},
    {"heads_q", [](Draft& to, const JsonReader& v) { to.heads_q = v.integer(); }},
    {"heads_k", [](Draft& to, const JsonReader& v) { to.heads_k = v.integer(); }},
    {"s_q", [](Draft& to, const JsonReader& v) { to.s_q = v.integer(); }},
    {"s_k", [](Draft& to, const JsonReader& v) { to.s_k = v.integer(); }},
    {"total_q", [](Draft& to, const JsonReader& v) { to.total_q = v.integer(); }},
    {"total_k", [](Draft& to, const JsonReader& v) { to.total_k = v.integer(); }},
    {"logical_q", [](Draft& to, const JsonReader& v) { to.logical_q = v.boolean(); }},
    {"logical_k", [](Draft& to, const JsonReader& v) { to.logical_k = v.boolean(); }},
    {"d", [](Draft& to, const JsonReader& v) { to.d = v.integer(); }},
    {"d_v", [](Draft& to, const JsonReader& v) { to.d_v = v.integer(); }},
    {"layout", [](Draft& to, const JsonReader& v) { to.layout = v.choice(kLayouts); }},
    {"strides", read_strides},
    {"mask", [](Draft& to, const JsonReader& v) { to.problem.mask(Mask::parse(v.text())); }},
    {"bool_mask", [](Draft& to, const JsonReader& v) { to.problem.bool_mask(read_bool_mask(v)); }},
    {"block_mask", [](Draft& to, const JsonReader& v) { to.problem.block_mask(read_block_mask(v)); }},
    {"bias", [](Draft& to, const JsonReader& v) { to.problem.bias(read_bias(v)); }},
    {"alibi", [](Draft& to, const JsonReader& v) { to.problem.alibi(v.choice(kAlibis)); }},
    {"sink", [](Draft& to, const JsonReader& v) { to.problem.sink(v.boolean()); }},
    {"soft_cap", [](Draft& to, const JsonReader& v) { to.problem.soft_cap(v.number()); }},
    {"scale", [](Draft& to, const JsonReader& v) { to.problem.scale(v.number()); }},
    {"dropout", [](Draft& to, const JsonReader& v) { to.problem.dropout(v.number()); }},
    {"randval", [](Draft& to, const JsonReader& v) { to.problem.randval(v.boolean()); }},
    {"lse", [](Draft& to, const JsonReader& v) { to.problem.lse(v.boolean()); }},
    {"math", [](Draft& to, const JsonReader& v) { to.problem.math(v.choice(kMaths)); }},
    {"accumulate", [](Draft& to, const JsonReader& v) { to.problem.accumulate(read_type(v)); }},
    {"gradient_type", [](Draft& to, const JsonReader& v) { to.problem.gradient_type(read_type(v)); }},
    {"d_lse", [](Draft& to, const JsonReader& v) { to.problem.d_lse(v.boolean()); }},
    {"dbias", [](Draft& to, const JsonReader& v) { if (!v.null()) to.problem.dbias(read_type(v)); }},
    {"dsink", [](Draft& to, const JsonReader& v) { to.problem.dsink(v.boolean()); }},
    {"dslopes", [](Draft& to, const JsonReader& v) { to.problem.dslopes(v.boolean()); }},
    {"deterministic", [](Draft& to, const JsonReader& v) { to.problem.deterministic(v.boolean()); }},
    {"aligned", [](Draft& to, const JsonReader& v) { to.problem.aligned(v.boolean()); }},
};
// clang-format on

std::string known_keys() {
  std::string list;
  for (const auto& [key, function] : kReaders) list.append(list.empty() ? "" : ", ").append(key);
  return list;
}

}  // namespace

std::string Problem::to_json() const {
  Json json;
  json["operation"] = name_of(operation_, kOperations);
  json["type"] = name(type_);
  json["output_type"] = name(output_type());
  json["mode"] = name_of(mode_, kModes);
  json["batch"] = batch_;
  json["heads_q"] = heads_q();
  json["heads_k"] = heads_k();
  json["s_q"] = s_q_;
  json["s_k"] = s_k_;
  json["total_q"] = total_q_;
  json["total_k"] = total_k_;
  json["logical_q"] = logical_q_;
  json["logical_k"] = logical_k_;
  json["d"] = d_;
  json["d_v"] = d_v();
  if (dense_in(*this, Layout::bshd)) {
    json["layout"] = "bshd";
  } else if (dense_in(*this, Layout::bhsd)) {
    json["layout"] = "bhsd";
  } else {
    json["strides"] = strides_json(*this);
  }
  json["mask"] = mask_.to_string();
  json["bool_mask"] = nullptr;
  if (bool_mask_) json["bool_mask"] = {{"shape", shape_json(*bool_mask_)}};
  json["block_mask"] = nullptr;
  if (block_mask_)
    json["block_mask"] = {{"block_q", block_mask_->block_q},
                          {"block_k", block_mask_->block_k},
                          {"shape", shape_json(block_mask_->shape)}};
  json["bias"] = nullptr;
  if (bias_) json["bias"] = {{"type", name(bias_->type)}, {"shape", shape_json(bias_->shape)}};
  json["alibi"] = name_of(alibi_, kAlibis);
  json["sink"] = sink_;
  json["soft_cap"] = soft_cap_;
  json["scale"] = scale();
  json["dropout"] = dropout_;
  json["randval"] = randval_;
  json["lse"] = lse_;
  json["math"] = name_of(math_, kMaths);
  json["accumulate"] = name(accumulate_);
  if (operation_ == Operation::backward) {
    json["gradient_type"] = name(gradient_type());
    json["d_lse"] = d_lse_;
    json["dbias"] = nullptr;
    if (dbias_) json["dbias"] = name(*dbias_);
    json["dsink"] = dsink_;
    json["dslopes"] = dslopes_;
  }
  json["deterministic"] = deterministic_;
  json["aligned"] = aligned_;
  return json.dump();
}

Problem Problem::from_json(std::string_view text) {
  const Json document = core::parse_json(text, "problem JSON");
  const JsonReader reader("problem JSON", "problem", document);
  Draft draft;
  // The operation decides on defaults, wherever it stands.
  if (const auto operation = reader.object().find("operation"); operation != document.end())
    if (reader.at("operation", *operation).choice(kOperations) == Operation::backward)
      draft.problem = Problem::backward();
  for (const auto& [key, item] : reader.object().items()) {
    Read read = nullptr;
    for (const auto& [known, function] : kReaders)
      if (known == key) read = function;
    if (read == nullptr) throw reader.unknown(key, known_keys());
    read(draft, reader.at(key, item));
  }
  Problem& problem = draft.problem;
  problem.heads(draft.heads_q, draft.heads_k).head_dims(draft.d, draft.d_v).lengths(draft.s_q, draft.s_k);
  problem.total_rows(draft.total_q, draft.total_k)
      .logical_lengths(draft.logical_q, draft.logical_k)
      .layout(draft.layout);
  for (std::size_t i = 0; i < kOperands.size(); ++i)
    if (draft.strides[i]) problem.strides(kOperands[i].second, *draft.strides[i]);
  return problem;
}

}  // namespace heed
