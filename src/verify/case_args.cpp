#include "verify/case_args.hpp"

#include "verify/arg_reader.hpp"
#include "verify/case_text.hpp"
#include "verify/random.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <tuple>

namespace heed::verify {
namespace {

/// Lengths with the given average that differ from each other; what a single number means in group mode.
std::vector<std::int64_t> lengths_around(std::int64_t average, std::int64_t count, Random random) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(count), average);
  for (std::int64_t from = 0; count > 1 && from < count; ++from) {
    const std::int64_t to = random.integer(0, count - 1);
    const std::int64_t moved = random.integer(0, lengths[static_cast<std::size_t>(from)] / 2);
    lengths[static_cast<std::size_t>(from)] -= moved;
    lengths[static_cast<std::size_t>(to)] += moved;
  }
  return lengths;
}

/// -s or -s_k.
std::vector<std::int64_t> read_lengths(const ArgReader& in, const Case& c, const std::string& key,
                                       const std::vector<std::int64_t>& other) {
  if (in.text(key) == "-1" && key != "s") return other;
  const auto list = in.list(key, 0);
  if (!c.group()) {
    if (list.size() != 1)
      throw in.bad(key,
                   "in batch mode all sequences have one length; -mode=1 takes a list, -q_eff_lens and "
                   "-kv_eff_lens shorten single ones.");
    return list;
  }
  if (list.size() == 1) return lengths_around(list[0], c.b, Random(c.seed, key == "s" ? 101 : 102));
  if (static_cast<std::int64_t>(list.size()) != c.b)
    throw in.bad(key, fmt::format("{} lengths for b = {} sequences; give {} of them, or one, their average.",
                                  list.size(), c.b, c.b));
  return list;
}

/// -s_qpad or -s_kpad.
std::vector<std::int64_t> read_padding(const ArgReader& in, const Case& c, const std::string& key) {
  if (in.text(key) == "-1") return {};
  if (!c.group())
    throw in.bad(key,
                 "padding of single sequences is for group mode (-mode=1); in batch mode -q_eff_lens and "
                 "-kv_eff_lens say how many rows count.");
  auto list = in.list(key, 0);
  if (list.size() == 1) list.resize(static_cast<std::size_t>(c.b), list[0]);
  if (static_cast<std::int64_t>(list.size()) != c.b)
    throw in.bad(key, fmt::format("{} lengths for b = {} sequences; give one, or {}.", list.size(), c.b, c.b));
  return list;
}

/// -q_eff_lens or -kv_eff_lens.
std::vector<std::int64_t> read_effective(const ArgReader& in, const Case& c, const std::string& key) {
  if (in.text(key).empty()) return {};
  if (c.group())
    throw in.bad(key,
                 "for batch mode; in group mode -s and -s_k are the lengths that count, -s_qpad and -s_kpad the "
                 "rows in memory.");
  auto list = in.list(key, 0);
  if (static_cast<std::int64_t>(list.size()) > c.b)
    throw in.bad(key, fmt::format("{} lengths for b = {} batch entries; give {} at most.", list.size(), c.b, c.b));
  const std::int64_t last = list.back();
  list.resize(static_cast<std::size_t>(c.b), last);
  return list;
}

/// Two numbers of a sequence's surroundings; one is the second, too.
std::pair<std::int64_t, std::int64_t> read_two(const ArgReader& in, const std::string& key) {
  const auto list = in.list(key, 0);
  if (list.empty() || list.size() > 2) throw in.bad(key, "takes two numbers, for example 3,5, or one for both.");
  return {list.front(), list.back()};
}

void read_sizes(const ArgReader& in, Case& c) {
  c.mode =
      in.choice<Mode>("mode", {{"0", Mode::batch}, {"1", Mode::group}, {"batch", Mode::batch}, {"group", Mode::group}});
  c.b = in.integer("b", 0);
  c.h = in.integer("h", 0);
  c.h_k = in.size_or("h_k", c.h);
  c.d = in.integer("d", 1);
  c.d_v = in.size_or("d_v", c.d);
  c.s_q = read_lengths(in, c, "s", {});
  c.s_k = read_lengths(in, c, "s_k", c.s_q);
  c.s_qpad = read_padding(in, c, "s_qpad");
  c.s_kpad = read_padding(in, c, "s_kpad");
  c.q_eff_lens = read_effective(in, c, "q_eff_lens");
  c.kv_eff_lens = read_effective(in, c, "kv_eff_lens");
  c.max_s_q = in.integer("max_s_q", Case::kExactly);
  c.max_s_k = in.integer("max_s_k", Case::kExactly);
  const auto [q_before, q_behind] = read_two(in, "q_around");
  const auto [k_before, k_behind] = read_two(in, "k_around");
  c.q_around = {q_before, q_behind};
  c.k_around = {k_before, k_behind};
  std::tie(c.table_more_q, c.table_more_k) = read_two(in, "table_more");
}

DataType read_type(const ArgReader& in, const std::string& key) {
  for (const std::string_view later : {"fp8", "bf8", "fp8bf16", "fp8fp32", "mxfp8", "mxfp4", "int8", "int4"})
    if (in.text(key) == later)
      throw Error(ErrorCode::unsupported,
                  fmt::format("not supported: -{}={} : the engines here compute in fp32, fp16 and bf16.", key, later));
  return in.choice<DataType>(key, {{"fp32", f32}, {"fp16", f16}, {"bf16", bf16}, {"f32", f32}, {"f16", f16}});
}

void read_types(const ArgReader& in, Case& c) {
  c.type = read_type(in, "prec");
  if (in.text("o_prec") != "same") c.output_type = read_type(in, "o_prec");
  if (c.output_type == c.type) c.output_type.reset();
  c.math = in.choice<Math>("math", {{"fast", Math::fast}, {"accurate", Math::accurate}});
  c.index_type = in.choice<DataType>("index_prec", {{"i32", i32}, {"i64", i64}});
}

void read_memory(const ArgReader& in, Case& c) {
  Layout layout = in.boolean("iperm") ? Layout::bhsd : Layout::bshd;
  c.o_layout = in.boolean("operm") ? Layout::bhsd : Layout::bshd;
  const std::string& text = in.text("layout");
  if (!text.empty()) {
    const Layout told = in.choice<Layout>(
        "layout",
        {{"bhsd", Layout::bhsd}, {"bshd", Layout::bshd}, {"qkvpacked", Layout::bshd}, {"kvpacked", Layout::bshd}});
    if (in.given("iperm") && told != layout) throw in.bad("layout", "contradicts -iperm; give one of them.");
    layout = told;
    c.packing = text == "qkvpacked" ? Packing::qkv : text == "kvpacked" ? Packing::kv : Packing::none;
  }
  c.q_layout = c.k_layout = c.v_layout = layout;
  if (!in.text("k_layout").empty()) {
    c.k_layout = c.v_layout = in.choice<Layout>("k_layout", {{"bhsd", Layout::bhsd}, {"bshd", Layout::bshd}});
    if (c.packing != Packing::none && c.k_layout != layout)
      throw in.bad("k_layout", "contradicts -layout=" + text + ", which stores k and v as bshd.");
  }
  c.v_column_major = in.choice<bool>("vlayout", {{"r", false}, {"c", true}});
  c.row_gap = in.integer("row_gap", 0, 1 << 20);
  c.align = in.integer("align", 0, 63);
  c.absurd_strides = in.boolean("absurd_strides");
  const auto zero_strides = parse_zero_strides(in.text("zero_strides"));
  if (!zero_strides)
    throw in.bad("zero_strides",
                 "tensor.dimension, several with commas: q, k, v, d_o have b, s, h; bias and bool_mask have b, "
                 "h, q, k (for example k.b,bias.h).");
  c.zero_strides = *zero_strides;
  const auto reversed = parse_reversed(in.text("reversed"));
  if (!reversed)
    throw in.bad("reversed",
                 "tensor.dimension, several with commas: q, k, v, o, d_o, dq, dk, dv have b, s, h (for example q.h).");
  c.reversed = *reversed;
  c.squeeze = in.boolean("squeeze");
}

Alibi read_alibi(const ArgReader& in) {
  return in.choice<Alibi>("alibi", {{"n", Alibi::none}, {"h", Alibi::per_head}, {"bh", Alibi::per_batch_and_head}});
}

constexpr std::string_view kShapes =
    "n, e (1*1*s*s_k), e:1 (1*h*s*s_k), e:2 (b*h*s*s_k), e:<letters of bhq> or e:k (s_k), with -k behind them one "
    "entry "
    "for all keys";

void read_bias(const ArgReader& in, Case& c) {
  const std::string& text = in.text("bias");
  c.alibi = read_alibi(in);
  if (text == "a" || text == "2" || text == "a:0" || text == "a:1") {
    const Alibi told = text == "a:1" ? Alibi::per_batch_and_head : Alibi::per_head;
    if (in.given("alibi") && c.alibi != told) throw in.bad("bias", "contradicts -alibi; give one of them.");
    c.alibi = told;
  } else if (text != "n" && text != "0") {
    const auto shape = parse_broadcast(text == "1" ? "e" : text);
    if (!shape) throw in.bad("bias", fmt::format("takes {}, a (ALiBi, h slopes) or a:1 (b*h slopes).", kShapes));
    c.bias = BiasSpec{.type = in.text("bias_prec") == "same" ? c.type : read_type(in, "bias_prec"), .shape = *shape};
    if (c.bias->type != c.type && c.bias->type != f32)
      throw in.bad("bias_prec", "the bias is fp32 or of the type of q.");
  }
  if (!c.bias && in.text("bias_prec") != "same") throw in.bad("bias_prec", "there is no bias; give -bias=e, too.");
  c.bias_inf = in.boolean("bias_inf");
  if (c.bias_inf && !c.bias) throw in.bad("bias_inf", "there is no bias; give -bias=e, too.");
}

void read_masks(const ArgReader& in, Case& c) {
  try {
    c.mask = Mask::parse(in.text("mask"));
  } catch (const Error& error) {
    std::string_view rule = error.what();
    const std::string prefix = fmt::format("mask '{}': ", in.text("mask"));
    if (rule.starts_with(prefix)) rule.remove_prefix(prefix.size());
    throw in.bad("mask", rule);
  }
  if (in.text("bool_mask") != "n") {
    c.bool_mask = parse_broadcast(in.text("bool_mask"));
    if (!c.bool_mask) throw in.bad("bool_mask", fmt::format("takes {}.", kShapes));
  }
  if (in.text("block_mask") != "n") {
    c.block_mask = parse_block_mask(in.text("block_mask"));
    if (!c.block_mask || c.block_mask->block_q < 1 || c.block_mask->block_k < 1)
      throw in.bad("block_mask",
                   "takes n, or two sizes 'block_q,block_k' (for example 64,64), with ':b', ':h' or ':bh' when "
                   "each batch entry or head has its own.");
  }
}

std::optional<Layout> read_layout(const ArgReader& in, const std::string& key) {
  if (in.text(key).empty()) return std::nullopt;
  return in.choice<Layout>(key, {{"bhsd", Layout::bhsd}, {"bshd", Layout::bshd}});
}

void read_gradients(const ArgReader& in, Case& c) {
  const bool wide = in.text("dbias") == "fp32" || in.text("dbias") == "f32";
  if (wide || in.boolean("dbias", "takes 0 or 1, or fp32.")) {
    if (!c.bias) throw in.bad("dbias", "there is no bias; give -bias=e, too.");
    c.dbias = wide ? f32 : c.bias->type;
  }
  c.dsink = in.boolean("sink_grad");
  if (c.dsink && !in.given("init_sink")) c.sink = SinkInit::large;
  if (c.dsink && c.sink == SinkInit::none) throw in.bad("sink_grad", "-init_sink=0 says that there is no sink.");
  c.dslopes = in.boolean("slope_grad");
  if (c.dslopes && c.alibi == Alibi::none) throw in.bad("slope_grad", "there is no ALiBi; give -bias=a, too.");
  c.d_lse = in.boolean("dlse");
  c.dq_in_16_bits = in.choice<bool>("dq_acc", {{"32", false}, {"16", true}});
  if (c.dq_in_16_bits && c.type == f32) throw in.bad("dq_acc", "q is fp32, and its dQ is summed up in fp32.");
  c.deterministic = in.boolean("deterministic");
  c.d_o_layout = read_layout(in, "do_layout");
  c.grad_layout = read_layout(in, "grad_layout");
}

void read_meaning(const ArgReader& in, Case& c) {
  c.scale = in.number("scale_s");
  read_masks(in, c);
  read_bias(in, c);
  c.sink = in.choice<SinkInit>(
      "init_sink", {{"0", SinkInit::none}, {"1", SinkInit::large}, {"2", SinkInit::normal}, {"3", SinkInit::holes}});
  c.soft_cap = in.number("logits_soft_cap");
  c.p_drop = in.number("p_drop");
  c.drop_seed = in.word("drop_seed");
  c.drop_offset = in.word("drop_offset");
  c.drop_state = in.boolean("drop_prefs");
  if (c.backward()) {
    read_gradients(in, c);
    c.lse = true;
    return;
  }
  c.randval = in.boolean("randval");
  c.lse = in.boolean("lse");
}

void read_data(const ArgReader& in, Case& c) {
  using enum Distribution;
  c.distribution = in.choice<Distribution>("init", {{"ui", uniform_int},
                                                    {"0", uniform_int},
                                                    {"ni", normal_int},
                                                    {"uf", uniform},
                                                    {"1", uniform},
                                                    {"nf", normal},
                                                    {"tf", trig},
                                                    {"2", trig},
                                                    {"3", extreme}});
  if (in.text("dist").empty()) return;
  const auto told = find_distribution(in.text("dist"));
  if (!told) throw in.bad("dist", fmt::format("takes one of {}.", distribution_names()));
  if (in.given("init") && *told != c.distribution) throw in.bad("dist", "contradicts -init; give one of them.");
  c.distribution = *told;
}

/// Capabilities with arguments but, so far, no code.
void refuse_what_is_not_built(const ArgReader& in) {
  struct Later {
    std::string key;
    std::vector<std::string_view> off;  ///< texts that ask for nothing
    std::string_view reason;
  };
  for (const auto& [key, off, reason] : {
           Later{"s_knew", {"0"}, "no engine appends to a key/value cache yet."},
           Later{"qscale", {"n", "0"}, "scales belong to 8-bit inputs, which no engine computes yet."},
           Later{"rotary_dim", {"0", "-1"}, "no engine applies a rotary embedding yet."},
           Later{"num_splits", {"0", "1"}, "no engine lets the caller choose the number of splits yet; 0 and 1 work."},
           Later{"page_block_size", {"0"}, "no engine reads a paged key/value cache yet."},
           Later{"cache_batch_idx", {"0"}, "no engine reads a key/value cache by slots yet."},
           Later{"pack_gqa", {"1"}, "the engine decides itself how it shares keys between the query heads of a group."},
       }) {
    const std::string& text = in.text(key);
    if (std::find(off.begin(), off.end(), text) != off.end()) continue;
    if (key == "qscale") {
      in.choice<int>(
          key,
          {{"n", 0}, {"0", 0}, {"pt", 1}, {"1", 1}, {"bs", 2}, {"2", 2}, {"kvbs", 3}, {"3", 3}, {"mx", 4}, {"4", 4}});
    } else if (key == "cache_batch_idx" || key == "pack_gqa") {
      in.boolean(key);
    } else {
      in.integer(key, key == "s_knew" ? -1 : 0);
    }
    throw Error(ErrorCode::unsupported, fmt::format("not supported: -{}={} : {}", key, text, reason));
  }
  in.boolean("rotary_interleaved");
}

}  // namespace

Case case_from_args(const std::map<std::string, std::string>& args, Operation operation) {
  const ArgReader in(args, operation);
  Case c;
  c.operation = operation;
  c.seed = in.word("seed");
  while (c.seed == 0) c.seed = std::random_device{}();
  read_sizes(in, c);
  read_types(in, c);
  read_memory(in, c);
  read_meaning(in, c);
  read_data(in, c);
  if (!c.backward()) refuse_what_is_not_built(in);
  c.check();
  return c;
}

}  // namespace heed::verify
