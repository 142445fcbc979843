#include "heed/result_line.hpp"

#include "heed/text.hpp"
#include "verify/case_args.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

namespace heed::command {
namespace {

using verify::Case;
using verify::Packing;

std::string_view type_text(DataType type) {
  if (type == f32) return "fp32";
  return type == f16 ? "fp16" : name(type);
}

std::string_view layout_text(Layout layout) { return layout == Layout::bhsd ? "bhsd" : "bshd"; }

/// "bhsd", "bshd", or "<of the inputs>-<of the output>" where they differ.
std::string layout_tag(const Case& c) {
  const std::string out(layout_text(c.o_layout));
  std::string in(layout_text(c.q_layout));
  if (c.packing == Packing::qkv) in = "qkvpacked";
  if (c.packing == Packing::kv) in = "kvpacked";
  if (c.packing == Packing::none && c.k_layout != c.q_layout) in += fmt::format("+{}", layout_text(c.k_layout));
  return in == out ? in : in + "-" + out;
}

/// One number in batch mode, "[700,2048,1]" in group mode; long lists are cut.
std::string lengths_text(const Case& c, const std::vector<std::int64_t>& lengths) {
  if (!c.group() && lengths.size() == 1) return std::to_string(lengths.front());
  constexpr std::size_t kMost = 8;
  const auto end = lengths.begin() + static_cast<std::ptrdiff_t>(std::min(lengths.size(), kMost));
  return fmt::format("[{}{}]", fmt::join(lengths.begin(), end, ","), lengths.size() > kMost ? ",..." : "");
}

/// Arguments that are not their default and that `told` does not hold: (key, text).
template <std::size_t N>
std::vector<std::pair<std::string, std::string>> others(const Case& c, const std::array<std::string_view, N>& told) {
  std::vector<std::pair<std::string, std::string>> rest;
  for (auto& [key, text] : verify::args_of(c))
    if (std::find(told.begin(), told.end(), key) == told.end()) rest.emplace_back(key, text);
  return rest;
}

std::string bias_text(const Case& c) {
  std::string text;
  for (const auto& [key, value] : verify::args_of(c)) {
    if (key == "bias") text = value;
    if (key == "alibi") text += fmt::format("{}{}", text.empty() ? "" : "+", value == "bh" ? "a:1" : "a");
  }
  return text.empty() ? "n" : text;
}

/// Its type where that is not the type of the bias.
std::string_view dbias_text(const Case& c) {
  if (!c.dbias) return "0";
  return c.bias && *c.dbias == c.bias->type ? "1" : type_text(*c.dbias);
}

}  // namespace

std::string problem_line(const Case& c) {
  static constexpr std::array<std::string_view, 22> kTold{
      "mode",   "b",   "h",    "h_k",  "s",     "s_k",   "d",      "d_v",      "scale_s", "bias",  "alibi",
      "p_drop", "lse", "mask", "prec", "iperm", "operm", "layout", "k_layout", "vlayout", "dbias", "deterministic"};
  const double scale = c.scale != 0 ? c.scale : 1 / std::sqrt(static_cast<double>(c.d));
  std::string line;
  if (c.backward()) {
    line = fmt::format(
        "[bwd|{}|{}|{}] b:{}, h:{}/{}, s:{}/{}, d:{}/{}, scale:{:.6g}, bias:{}, dbias:{}, p_drop:{:g}, "
        "deterministic:{}, "
        "mask:{}, v:{}",
        type_text(c.type), c.group() ? "group" : "batch", layout_tag(c), c.b, c.h, c.h_k, lengths_text(c, c.s_q),
        lengths_text(c, c.s_k), c.d, c.d_v, scale, bias_text(c), dbias_text(c), c.p_drop, c.deterministic ? 1 : 0,
        c.mask.to_string(), c.v_column_major ? 'c' : 'r');
    for (const auto& [key, text] : others(c, kTold)) line += fmt::format(", {}:{}", key, text);
    return line;
  }
  line = fmt::format(
      "[{}|{}|{}] b:{}, h:{}/{}, s:{}/{}, d:{}/{}, scale_s:{:.6g}, bias:{}, p_drop:{:g}, lse:{}, mask:{}, v:{}",
      type_text(c.type), c.group() ? "group" : "batch", layout_tag(c), c.b, c.h, c.h_k, lengths_text(c, c.s_q),
      lengths_text(c, c.s_k), c.d, c.d_v, scale, bias_text(c), c.p_drop, c.lse ? 1 : 0, c.mask.to_string(),
      c.v_column_major ? 'c' : 'r');
  for (const auto& [key, text] : others(c, kTold)) line += fmt::format(", {}:{}", key, text);
  return line;
}

std::string problem_words(const Case& c) {
  static constexpr std::array<std::string_view, 9> kTold{"mode", "b", "h", "h_k", "s", "s_k", "d", "d_v", "prec"};
  std::string words = fmt::format("{}{} b{} h{}", c.backward() ? "bwd " : "", type_text(c.type), c.b, c.h);
  if (c.h_k != c.h) words += fmt::format("/{}", c.h_k);
  words += fmt::format(" s{}", lengths_text(c, c.s_q));
  if (c.s_k != c.s_q) words += fmt::format("/{}", lengths_text(c, c.s_k));
  words += fmt::format(" d{}", c.d);
  if (c.d_v != c.d) words += fmt::format("/{}", c.d_v);
  for (const auto& [key, text] : others(c, kTold)) words += fmt::format(" {}={}", key, text);
  return words;
}

std::string rates(double seconds, double flops, double bytes) {
  if (seconds <= 0) return "0.000 ms, 0.00 TFlops, 0.00 GB/s";
  return fmt::format("{} ms, {} TFlops, {} GB/s", figure(seconds * 1e3), figure(flops / seconds * 1e-12),
                     figure(bytes / seconds * 1e-9));
}

}  // namespace heed::command
