#include <heed/problem.hpp>

#include "core/invalid.hpp"
#include "core/overlap.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heed {
namespace {

using core::invalid;
using Verdict = std::optional<Error>;

/// No tensor has a dimension like this; sums and differences of a few sizes stay far from overflow.
constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;

Verdict check_size(std::string_view what, std::int64_t value, std::int64_t least) {
  if (value < least) return invalid("{} = {}: it must be {} or more.", what, value, least);
  if (value > kMaxSize) return invalid("{} = {} is out of range: at most 2^40 = {}.", what, value, kMaxSize);
  return {};
}

Verdict check_sizes(const Problem& p) {
  if (auto error = check_size("batch b", p.batch(), 0)) return error;
  if (auto error = check_size("query heads h", p.heads_q(), 0)) return error;
  if (auto error = check_size("key/value heads h_k", p.heads_k(), 0)) return error;
  if (auto error = check_size("query length s_q", p.s_q(), 0)) return error;
  if (auto error = check_size("key length s_k", p.s_k(), 0)) return error;
  if (auto error = check_size("head dim d", p.d(), 1)) return error;
  return check_size("head dim d_v", p.d_v(), 1);
}

/// "1, 2, 3 or 6"; of many divisors only the two around `near`.
std::string divisors_of(std::int64_t n, std::int64_t near) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t i = 1; i * i <= n; ++i) {
    if (n % i != 0) continue;
    low.push_back(i);
    if (i != n / i) high.push_back(n / i);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  if (low.size() > 8) {
    std::size_t above = 0;
    while (above + 1 < low.size() && low[above] < near) ++above;
    low = above == 0 ? std::vector{low[0], low[1]} : std::vector{low[above - 1], low[above]};
    return fmt::format("for example {} or {}", low[0], low[1]);
  }
  std::string text = fmt::format("{}", low[0]);
  for (std::size_t i = 1; i < low.size(); ++i) text += fmt::format("{}{}", i + 1 == low.size() ? " or " : ", ", low[i]);
  return text;
}

Verdict check_heads(const Problem& p) {
  const std::int64_t h = p.heads_q(), h_k = p.heads_k();
  if (h == 0 || (h_k != 0 && h % h_k == 0)) return {};
  return invalid(
      "h = {} query heads cannot be shared by h_k = {} key/value heads: h must be a multiple of h_k (here: {}).", h,
      h_k, divisors_of(h, h_k));
}

Verdict check_types(const Problem& p) {
  switch (p.type()) {
    case DataType::f32:
    case DataType::f16:
    case DataType::bf16:
    case DataType::fp8_e4m3:
    case DataType::fp8_e5m2:
    case DataType::int8:
    case DataType::int4:
      break;
    default:
      return invalid("q, k and v cannot be {}: they are f32, f16, bf16, fp8_e4m3, fp8_e5m2, int8 or int4.",
                     name(p.type()));
  }
  switch (p.output_type()) {
    case DataType::f32:
    case DataType::f16:
    case DataType::bf16:
    case DataType::fp8_e4m3:
    case DataType::fp8_e5m2:
    case DataType::f64:
      break;
    default:
      return invalid("o cannot be {}: it is f32, f16, bf16, fp8_e4m3 or fp8_e5m2 (f64 from the oracle).",
                     name(p.output_type()));
  }
  const DataType sum = p.accumulate();
  if (p.operation() == Operation::forward && sum != DataType::f32)
    return invalid("accumulate = {}: forward attention accumulates in f32.", name(sum));
  if (sum != DataType::f32 && (sum != p.type() || !is_float16_or_32(sum)))
    return invalid("dq_accumulation = {} with inputs of type {}: dQ is summed up in f32{}.", name(sum), name(p.type()),
                   is_float16_or_32(p.type()) && p.type() != DataType::f32
                       ? fmt::format(" or {}, the type of q", name(p.type()))
                       : "");
  return {};
}

Verdict check_total(std::string_view total_name, std::int64_t total, std::string_view length_name, std::int64_t length,
                    std::int64_t batch) {
  if (auto error = check_size(total_name, total, 0)) return error;
  if (batch > 0 && total < length)
    return invalid(
        "{} = {} rows cannot hold a sequence of {} = {}: in group mode total_rows(q, k) are the rows of the "
        "packed tensors, {} or more here.",
        total_name, total, length_name, length, length);
  return {};
}

Verdict check_mode(const Problem& p) {
  if (p.mode() == Mode::group) {
    if (auto error = check_total("total_q", p.total_q(), "s_q", p.s_q(), p.batch())) return error;
    return check_total("total_k", p.total_k(), "s_k", p.s_k(), p.batch());
  }
  if (p.total_q() != 0 || p.total_k() != 0)
    return invalid(
        "total_rows({}, {}) is for group mode; in batch mode the rows are b * s_q and b * s_k: leave it at "
        "(0, 0), or set mode(Mode::group).",
        p.total_q(), p.total_k());
  return {};
}

Verdict check_features(const Problem& p) {
  if (p.bias()) {
    const DataType type = p.bias()->type;
    if (type != DataType::f32 && type != p.type())
      return invalid("bias of type {} with inputs of type {}: a bias is f32 or of the type of q.", name(type),
                     name(p.type()));
  }
  if (p.block_mask()) {
    const auto [block_q, block_k, shape] = *p.block_mask();
    if (auto error = check_size("block mask: block_q", block_q, 1)) return error;
    if (auto error = check_size("block mask: block_k", block_k, 1)) return error;
  }
  return {};
}

/// What only one of the two operations has.
Verdict check_operation(const Problem& p) {
  if (p.operation() == Operation::forward) {
    if (p.d_lse() || p.dbias() || p.dsink() || p.dslopes())
      return invalid("d_lse, dbias, dsink and dslopes are of the backward pass, this problem is forward.");
    return {};
  }
  if (!p.lse()) return invalid("backward attention needs the lse that the forward pass wrote.");
  if (p.randval()) return invalid("randval is written by the forward pass: leave it out of a backward problem.");
  if (p.gradient_type() != p.type() && p.gradient_type() != DataType::f64)
    return invalid("dq, dk and dv are {} where q, k and v are {}: they must be of that type (f64 from the oracle).",
                   name(p.gradient_type()), name(p.type()));
  if (p.dbias() && !p.bias()) return invalid("dbias is asked for, but there is no bias: give bias, or leave it out.");
  if (p.dbias() && *p.dbias() != DataType::f32 && *p.dbias() != p.bias()->type && *p.dbias() != DataType::f64)
    return invalid("dbias of type {} for a bias of type {}: it is f32 or of that type.", name(*p.dbias()),
                   name(p.bias()->type));
  if (p.dsink() && !p.sink()) return invalid("dsink is asked for, but there is no sink: give sink, or leave it out.");
  if (p.dslopes() && p.alibi() == Alibi::none)
    return invalid("dslopes is asked for, but there are no alibi_slopes: give them, or leave it out.");
  return {};
}

Verdict check_numbers(const Problem& p) {
  if (!std::isfinite(p.scale()))
    return invalid("scale = {}: it must be finite; 0 means 1 / sqrt(d) = {:.6g}.", p.scale(),
                   1 / std::sqrt(static_cast<double>(p.d())));
  if (!std::isfinite(p.soft_cap()) || p.soft_cap() < 0)
    return invalid("soft_cap = {}: it must be finite and positive (for example 30), or 0 for none.", p.soft_cap());
  if (!(p.dropout() >= 0 && p.dropout() < 1))
    return invalid("dropout p = {}: the probability of losing an entry must be at least 0 and less than 1.",
                   p.dropout());
  return {};
}

Verdict check_strides(const Problem& p, Operand which) {
  const std::string_view tensor = name(which);
  const Operand shape = shape_of(which);
  const bool of_q = shape == Operand::q || shape == Operand::o;
  const bool group = p.mode() == Mode::group;
  const std::int64_t rows = group ? (of_q ? p.total_q() : p.total_k()) : (of_q ? p.s_q() : p.s_k());
  const std::int64_t dim = shape == Operand::q || shape == Operand::k ? p.d() : p.d_v();
  const std::array sizes{group ? 1 : p.batch(), rows, of_q ? p.heads_q() : p.heads_k(), dim};
  const Strides strides = p.strides(which);
  const std::array steps{strides.batch, strides.sequence, strides.head, strides.dim};

  // Empty dimensions count as one: loops over the others must not overflow either.
  std::int64_t elements = group ? std::max<std::int64_t>(p.batch(), 1) : 1;
  for (const std::int64_t size : sizes)
    if (__builtin_mul_overflow(elements, std::max<std::int64_t>(size, 1), &elements) || elements > core::kMaxSpan)
      return invalid("{}: {} x {} x {} x {} (b, s, heads, d) are more elements than heed can count, 2^56.", tensor,
                     p.batch(), rows, sizes[2], dim);
  if (core::span(sizes, steps) > core::kMaxSpan)
    return invalid(
        "{}: strides {}, {}, {}, {} (b, s, heads, d) reach further than 2^56 elements, more than any memory.", tensor,
        steps[0], steps[1], steps[2], steps[3]);

  if (which == Operand::v) {
    // Of a single row the sequence stride says nothing: it may be one row of a column-major V.
    if (strides.dim != 1 && strides.sequence != 1 && rows > 1)
      return invalid(
          "v: the strides of the head dim and of the sequence are {} and {}: one of them must be 1 (head dim: "
          "row-major, sequence: column-major).",
          strides.dim, strides.sequence);
  } else if (strides.dim != 1) {
    return invalid("{}: the stride of the head dim is {}: it must be 1.", tensor, strides.dim);
  }
  const bool output = p.operation() == Operation::forward ? which == Operand::o : which >= Operand::dq;
  if (output && core::self_overlaps(sizes, steps))
    return invalid(
        "{} overlaps itself: strides {}, {}, {}, {} with sizes {}, {}, {}, {} (b, s, heads, d) put two elements "
        "in one place; an output needs a place for each.",
        tensor, steps[0], steps[1], steps[2], steps[3], sizes[0], sizes[1], sizes[2], sizes[3]);
  return {};
}

}  // namespace

std::optional<Error> Problem::validate() const {
  for (auto check : {check_sizes, check_heads, check_types, check_mode, check_features, check_operation, check_numbers})
    if (auto error = check(*this)) return error;
  for (const Operand which : operands())
    if (auto error = check_strides(*this, which)) return error;
  return {};
}

}  // namespace heed
