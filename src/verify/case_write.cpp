#include "core/invalid.hpp"
#include "verify/case_args.hpp"
#include "verify/case_text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heed::verify {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

std::string lengths_text(const std::vector<std::int64_t>& lengths) {
  return lengths.empty() ? "0" : list_text(lengths);
}
std::string padding_text(const std::vector<std::int64_t>& lengths) {
  return lengths.empty() ? "-1" : list_text(lengths);
}

std::string two_text(std::int64_t first, std::int64_t second) {
  return first == second ? fmt::format("{}", first) : fmt::format("{},{}", first, second);
}

std::string_view layout_text(Layout layout) { return layout == Layout::bhsd ? "bhsd" : "bshd"; }

std::string_view layout_text(const Case& c) {
  switch (c.packing) {
    case Packing::qkv:
      return "qkvpacked";
    case Packing::kv:
      return "kvpacked";
    default:
      return layout_text(c.q_layout);
  }
}

/// The whole Case, whatever the defaults are.
Pairs all_args(const Case& c) {
  Pairs pairs;
  const auto add = [&](std::string_view key, const auto& value) { pairs.emplace_back(key, fmt::format("{}", value)); };
  const auto add_flag = [&](std::string_view key, bool value) { add(key, value ? 1 : 0); };

  add_flag("mode", c.group());
  add("b", c.b);
  add("h", c.h);
  add("h_k", c.h_k == c.h ? -1 : c.h_k);
  add("s", lengths_text(c.s_q));
  add("s_k", c.s_k == c.s_q ? "-1" : lengths_text(c.s_k));
  add("s_qpad", padding_text(c.s_qpad));
  add("s_kpad", padding_text(c.s_kpad));
  add("q_eff_lens", list_text(c.q_eff_lens));
  add("kv_eff_lens", list_text(c.kv_eff_lens));
  add("max_s_q", c.max_s_q);
  add("max_s_k", c.max_s_k);
  add("q_around", two_text(c.q_around.before, c.q_around.behind));
  add("k_around", two_text(c.k_around.before, c.k_around.behind));
  add("table_more", two_text(c.table_more_q, c.table_more_k));
  add("d", c.d);
  add("d_v", c.d_v == c.d ? -1 : c.d_v);

  add("scale_s", c.scale);
  add("mask", c.mask == Mask::none() ? "0" : c.mask.to_string());
  add("bias", c.bias ? broadcast_text(c.bias->shape) : "n");
  add_flag("bias_inf", c.bias_inf);
  add("alibi", c.alibi == Alibi::none ? "n" : c.alibi == Alibi::per_head ? "h" : "bh");
  add("bool_mask", c.bool_mask ? broadcast_text(*c.bool_mask) : "n");
  add("block_mask", c.block_mask ? block_mask_text(*c.block_mask) : "n");
  add("init_sink", static_cast<int>(c.sink));
  add("logits_soft_cap", c.soft_cap);
  add("p_drop", c.p_drop);
  add("drop_seed", c.drop_seed);
  add("drop_offset", c.drop_offset);
  add_flag("drop_prefs", c.drop_state);
  if (c.backward()) {
    add("dbias", !c.dbias ? "0" : c.bias && *c.dbias == c.bias->type ? "1" : precision_name(*c.dbias));
    add_flag("sink_grad", c.dsink);
    add_flag("slope_grad", c.dslopes);
    add_flag("dlse", c.d_lse);
    add("dq_acc", c.dq_in_16_bits ? 16 : 32);
    add_flag("deterministic", c.deterministic);
    add("do_layout", c.d_o_layout ? layout_text(*c.d_o_layout) : "");
    add("grad_layout", c.grad_layout ? layout_text(*c.grad_layout) : "");
  } else {
    add_flag("randval", c.randval);
    add_flag("lse", c.lse);
  }

  add("prec", precision_name(c.type));
  add("o_prec", c.output_type ? precision_name(*c.output_type) : "same");
  add("bias_prec", c.bias && c.bias->type != c.type ? precision_name(c.bias->type) : "same");
  add("math", c.math == Math::fast ? "fast" : "accurate");
  add_flag("operm", c.o_layout == Layout::bhsd);
  add("layout", layout_text(c));
  add("k_layout", c.k_layout == c.q_layout ? "" : layout_text(c.k_layout));
  add("vlayout", c.v_column_major ? "c" : "r");
  add("row_gap", c.row_gap);
  add("align", c.align);
  add_flag("absurd_strides", c.absurd_strides);
  add("zero_strides", zero_strides_text(c.zero_strides));
  add("reversed", reversed_text(c.reversed));
  add_flag("squeeze", c.squeeze);
  add("index_prec", name(c.index_type));

  add("dist", name(c.distribution));
  add("seed", c.seed);
  return pairs;
}

}  // namespace

Pairs args_of(const Case& c) {
  Case preset;
  preset.operation = c.operation;
  const Pairs presets = all_args(preset);
  Pairs pairs = all_args(c);
  std::erase_if(pairs, [&presets, i = std::size_t{0}](const auto& pair) mutable { return pair == presets[i++]; });
  return pairs;
}

std::string Case::to_command() const {
  std::string text = backward() ? "heed bwd" : "heed fwd";
  for (const auto& [key, value] : args_of(*this)) text += fmt::format(" -{}={}", key, value);
  return text;
}

std::string Case::to_json() const {
  nlohmann::ordered_json object{{"op", backward() ? "bwd" : "fwd"}};
  for (const auto& [key, text] : all_args(*this)) {
    if (const auto whole = parse_number<std::uint64_t>(text))
      object[key] = *whole;
    else if (const auto number = parse_number<std::int64_t>(text))
      object[key] = *number;
    else if (const auto real = parse_number<double>(text))
      object[key] = *real;
    else
      object[key] = text;
  }
  return object.dump();
}

Case Case::from_json(std::string_view text) {
  const auto object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object())
    throw core::invalid("a case is a JSON object like {{\"b\": 1, \"s\": \"128\"}}; this is not: {:.60}", text);
  const std::string operation = object.value("op", nlohmann::json("fwd")) == "bwd" ? "bwd" : "fwd";
  if (object.value("op", nlohmann::json("fwd")) != operation)
    throw core::invalid("the case's \"op\" is {}; it must be \"fwd\" or \"bwd\".", object["op"].dump());
  std::map<std::string, std::string> args;
  for (const auto& [key, value] : object.items()) {
    if (key == "op") continue;
    if (value.is_string())
      args[key] = value.get<std::string>();
    else if (value.is_boolean())
      args[key] = value.get<bool>() ? "1" : "0";
    else if (value.is_number())
      args[key] = value.dump();
    else
      throw core::invalid("the case's \"{}\" is {}; a string or a number is needed.", key, value.dump());
  }
  return case_from_args(args, operation == "bwd" ? Operation::backward : Operation::forward);
}

}  // namespace heed::verify
