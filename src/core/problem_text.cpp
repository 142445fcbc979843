#include <heed/problem.hpp>

#include <fmt/format.h>

#include <utility>

namespace heed {
namespace {

/// Which operands lie dense in this layout: q, k, v and their gradients; o and its gradient.
struct Match {
  bool inputs = true, output = true;
};

/// V with the sequence innermost: [b, h, d, s] or, where heads come later, [b, d, h, s].
bool dense_column_major(const Problem& p, Layout layout) {
  const bool group = p.mode() == Mode::group;
  const std::int64_t rows = group ? p.total_k() : p.s_k();
  Problem stored = p;  // what V's memory looks like when sequence and head dim are called by each other's name
  stored.layout(layout).head_dims(p.d(), rows).total_rows(p.total_q(), p.d_v());
  stored.lengths(p.s_q(), p.d_v());
  const Strides memory = stored.strides(Operand::v);
  Problem swapped = p;
  swapped.strides(Operand::v, {memory.batch, memory.dim, memory.head, memory.sequence});
  return swapped.strides(Operand::v) == p.strides(Operand::v);
}

bool column_major(const Problem& p) { return p.strides(Operand::v).dim != 1; }

Match matches(const Problem& p, Layout layout) {
  Problem dense = p;
  dense.layout(layout);
  Match match;
  for (const Operand operand : p.operands()) {
    const bool same = dense.strides(operand) == p.strides(operand) ||
                      (operand == Operand::v && column_major(p) && dense_column_major(p, layout));
    (shape_of(operand) == Operand::o ? match.output : match.inputs) &= same;
  }
  return match;
}

/// "1*h*s*s": the dimensions it has of its own.
std::string shape(const Broadcast& own) {
  return fmt::format("{}*{}*{}*{}", own.batch ? "b" : "1", own.head ? "h" : "1", own.query ? "s" : "1",
                     own.key ? "s" : "1");
}

/// In the words of the command: n, e:<shape> for an elementwise bias, a:<shape> for ALiBi, or both.
std::string bias_text(const Problem& p) {
  std::string text;
  if (p.bias()) {
    text = "e:" + shape(p.bias()->shape);
    if (p.bias()->type != DataType::f32) text.append(":").append(name(p.bias()->type));
  }
  if (p.alibi() != Alibi::none) {
    if (!text.empty()) text += "+";
    text += p.alibi() == Alibi::per_head ? "a:1*h" : "a:b*h";
  }
  return text.empty() ? "n" : text;
}

}  // namespace

std::string Problem::to_string() const {
  const Match bshd = matches(*this, Layout::bshd), bhsd = matches(*this, Layout::bhsd);
  const bool strided = !(bshd.inputs || bhsd.inputs) || !(bshd.output || bhsd.output);

  std::string line = "[";
  const auto add = [&line]<class... Values>(fmt::format_string<Values...> text, Values&&... values) {
    line += fmt::format(text, std::forward<Values>(values)...);
  };
  if (operation_ == Operation::backward) add("bwd|");
  add("{}", name(type_));
  if (output_type() != type_) add("-{}", name(output_type()));
  add("|{}|", mode_ == Mode::batch ? "batch" : "group");
  if (strided) {
    add("strided");
  } else if (bshd.inputs && bshd.output) {
    add("bshd");
  } else if (bhsd.inputs && bhsd.output) {
    add("bhsd");
  } else {
    add("{}-{}", bshd.inputs ? "bshd" : "bhsd", bshd.output ? "bshd" : "bhsd");
  }
  add("] b:{}, h:{}/{}, s:{}/{}, d:{}/{}", batch_, heads_q(), heads_k(), s_q_, s_k_, d_, d_v());
  add(", scale_s:{:.6g}, bias:{}, p_drop:{:.6g}, lse:{}", scale(), bias_text(*this), dropout_, lse_ ? 1 : 0);
  add(", mask:{}, v:{}", mask_.to_string(), column_major(*this) ? 'c' : 'r');

  // What is off is not listed.
  if (mode_ == Mode::group) add(", rows:{}/{}", total_q_, total_k_);
  if (logical_q_ || logical_k_) add(", seqlen:{}{}", logical_q_ ? "q" : "", logical_k_ ? "k" : "");
  if (bool_mask_) add(", bool_mask:{}", shape(*bool_mask_));
  if (block_mask_) add(", block_mask:{}x{}:{}", block_mask_->block_q, block_mask_->block_k, shape(block_mask_->shape));
  if (sink_) add(", sink:1");
  if (soft_cap_ != 0) add(", soft_cap:{:.6g}", soft_cap_);
  if (randval_) add(", randval:1");
  if (math_ == Math::accurate) add(", math:accurate");
  if (accumulate_ != DataType::f32) add(", accumulate:{}", name(accumulate_));
  if (operation_ == Operation::backward) {
    if (gradient_type() != type_) add(", gradients:{}", name(gradient_type()));
    if (d_lse_) add(", dlse:1");
    if (dbias_) add(", dbias:{}", name(*dbias_));
    if (dsink_) add(", dsink:1");
    if (dslopes_) add(", dslopes:1");
    if (deterministic_) add(", deterministic:1");
  } else if (!deterministic_) {
    add(", deterministic:0");
  }
  if (!aligned_) add(", aligned:0");
  if (strided) {
    for (const Operand operand : operands()) {
      const Strides s = strides(operand);
      add(", {}:{}/{}/{}/{}", name(operand), s.batch, s.sequence, s.head, s.dim);
    }
  }
  return line;
}

}  // namespace heed
