#include <heed/problem.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace heed {
namespace {

/// Sizes that have not been validated yet may be anything: saturate rather than overflow.
std::int64_t times(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

}  // namespace

std::string_view name(Operand operand) {
  constexpr std::array<std::string_view, kOperandCount> kNames{"q", "k", "v", "o", "d_o", "dq", "dk", "dv"};
  return kNames[static_cast<std::size_t>(operand)];
}

Problem Problem::backward() { return Problem{}.operation(Operation::backward).lse(true).deterministic(false); }

std::span<const Operand> Problem::operands() const {
  static constexpr std::array<Operand, kOperandCount> kAll{Operand::q,   Operand::k,  Operand::v,  Operand::o,
                                                           Operand::d_o, Operand::dq, Operand::dk, Operand::dv};
  return std::span(kAll).first(operation_ == Operation::forward ? 4 : kOperandCount);
}

// Setters store what they are told and judge nothing: validate() does, once everything is told.

Problem& Problem::operation(Operation v) { return operation_ = v, *this; }
Problem& Problem::type(DataType v) { return type_ = v, *this; }
Problem& Problem::output_type(DataType v) { return output_type_ = v, *this; }
Problem& Problem::mode(Mode v) { return mode_ = v, *this; }
Problem& Problem::batch(std::int64_t v) { return batch_ = v, *this; }
Problem& Problem::heads(std::int64_t query, std::int64_t key_value) {
  heads_q_ = query;
  heads_k_ = key_value;
  return *this;
}
Problem& Problem::lengths(std::int64_t s_q, std::int64_t s_k) {
  s_q_ = s_q;
  s_k_ = s_k;
  return *this;
}
Problem& Problem::total_rows(std::int64_t q, std::int64_t k) {
  total_q_ = q;
  total_k_ = k;
  return *this;
}
Problem& Problem::logical_lengths(bool q, bool k) {
  logical_q_ = q;
  logical_k_ = k;
  return *this;
}
Problem& Problem::head_dims(std::int64_t d, std::int64_t d_v) {
  d_ = d;
  d_v_ = d_v;
  return *this;
}
Problem& Problem::layout(Layout v) {
  layout_ = v;
  strides_ = {};
  return *this;
}
Problem& Problem::strides(Operand which, const Strides& v) {
  strides_[static_cast<std::size_t>(which)] = v;
  return *this;
}
Problem& Problem::mask(const Mask& v) { return mask_ = v, *this; }
Problem& Problem::bool_mask(std::optional<Broadcast> v) { return bool_mask_ = v, *this; }
Problem& Problem::block_mask(std::optional<BlockMaskSpec> v) { return block_mask_ = v, *this; }
Problem& Problem::bias(std::optional<BiasSpec> v) { return bias_ = v, *this; }
Problem& Problem::alibi(Alibi v) { return alibi_ = v, *this; }
Problem& Problem::sink(bool v) { return sink_ = v, *this; }
Problem& Problem::soft_cap(double v) { return soft_cap_ = v, *this; }
Problem& Problem::scale(double v) { return scale_ = v, *this; }
Problem& Problem::dropout(double p) { return dropout_ = p, *this; }
Problem& Problem::randval(bool v) { return randval_ = v, *this; }
Problem& Problem::lse(bool v) { return lse_ = v, *this; }
Problem& Problem::math(Math v) { return math_ = v, *this; }
Problem& Problem::accumulate(DataType v) { return accumulate_ = v, *this; }
Problem& Problem::gradient_type(DataType v) { return gradient_type_ = v, *this; }
Problem& Problem::d_lse(bool v) { return d_lse_ = v, *this; }
Problem& Problem::dbias(std::optional<DataType> v) { return dbias_ = v, *this; }
Problem& Problem::dsink(bool v) { return dsink_ = v, *this; }
Problem& Problem::dslopes(bool v) { return dslopes_ = v, *this; }
Problem& Problem::deterministic(bool v) { return deterministic_ = v, *this; }
Problem& Problem::aligned(bool v) { return aligned_ = v, *this; }

double Problem::scale() const { return scale_ == 0 ? 1.0 / std::sqrt(static_cast<double>(d_)) : scale_; }

Strides Problem::strides(Operand which) const {
  const Operand shape = shape_of(which);
  const bool of_q = shape == Operand::q || shape == Operand::o;
  const std::int64_t rows = mode_ == Mode::group ? (of_q ? total_q_ : total_k_) : (of_q ? s_q_ : s_k_);
  const std::int64_t heads = of_q ? heads_q() : heads_k();
  const std::int64_t dim = shape == Operand::q || shape == Operand::k ? d_ : d_v();

  // Nobody steps through a tensor without elements: libraries tell any strides of one, NumPy zeros.
  if ((batch_ == 0 && mode_ == Mode::batch) || rows == 0 || heads == 0) return {};
  Strides result;
  if (const auto& told = strides_[static_cast<std::size_t>(which)]) {
    result = *told;
  } else if (layout_ == Layout::bshd) {
    result = {times(times(rows, heads), dim), times(heads, dim), dim, 1};
  } else {
    result = {times(times(heads, rows), dim), dim, times(rows, dim), 1};
  }
  if (batch_ <= 1 || mode_ == Mode::group) result.batch = 0;
  if (rows <= 1) result.sequence = 0;
  if (heads <= 1) result.head = 0;
  if (dim <= 1) result.dim = 1;
  return result;
}

namespace {

/// All that tells two problems apart, as plain words: equality, order and hash read nothing else, so they agree.
class Key {
 public:
  explicit Key(const Problem& p) {
    add(byte(p.operation()) | byte(p.type()) << 8 | byte(p.output_type()) << 16 | byte(p.mode()) << 24 |
        byte(p.alibi()) << 32 | byte(p.math()) << 40 | byte(p.accumulate()) << 48);
    add(byte(p.logical_q()) | byte(p.logical_k()) << 1 | byte(p.sink()) << 2 | byte(p.randval()) << 3 |
        byte(p.lse()) << 4 | byte(p.deterministic()) << 5 | byte(p.aligned()) << 6 | shape(p, p.bool_mask()) << 8 |
        shape(p, p.bias() ? std::optional(p.bias()->shape) : std::nullopt) << 16 |
        byte(p.bias() ? p.bias()->type : DataType::f32) << 24 |
        shape(p, p.block_mask() ? std::optional(p.block_mask()->shape) : std::nullopt) << 32);
    add(p.block_mask() ? p.block_mask()->block_q : 0);
    add(p.block_mask() ? p.block_mask()->block_k : 0);
    for (const std::int64_t size : {p.batch(), p.heads_q(), p.heads_k(), p.s_q(), p.s_k(), p.d(), p.d_v()}) add(size);
    add(p.total_q());
    add(p.total_k());
    for (const Operand operand : p.operands()) {
      const Strides strides = p.strides(operand);
      for (const std::int64_t step : {strides.batch, strides.sequence, strides.head, strides.dim}) add(step);
    }
    if (p.operation() == Operation::backward)
      add(byte(p.gradient_type()) | byte(p.d_lse()) << 8 | byte(p.dsink()) << 9 | byte(p.dslopes()) << 10 |
          byte(p.dbias().has_value()) << 11 | byte(p.dbias().value_or(DataType::f32)) << 16);
    for (const double value : {p.soft_cap(), p.scale(), p.dropout()}) add(bits_of(value));
    add_mask(p.mask());
  }

  friend bool operator==(const Key&, const Key&) = default;
  friend auto operator<=>(const Key&, const Key&) = default;

  std::size_t hash() const {
    std::uint64_t state = 0x9E3779B97F4A7C15u;
    for (const std::int64_t word : words_) {
      state = (state ^ static_cast<std::uint64_t>(word)) * 0xD6E8FEB86659FD93u;
      state ^= state >> 32;
    }
    return static_cast<std::size_t>(state);
  }

 private:
  template <class Enum>
  static std::int64_t byte(Enum value) {
    return static_cast<std::int64_t>(value);
  }

  /// -0 and 0 are one value; otherwise the bits decide, so that even a NaN equals itself.
  static std::int64_t bits_of(double value) { return std::bit_cast<std::int64_t>(value == 0 ? 0.0 : value); }

  /// A dimension of size 1 broadcasts, whatever was said about it.
  static std::int64_t shape(const Problem& p, const std::optional<Broadcast>& broadcast) {
    if (!broadcast) return 0;
    return 1 | byte(broadcast->batch && p.batch() > 1) << 1 | byte(broadcast->head && p.heads_q() > 1) << 2 |
           byte(broadcast->query && p.s_q() > 1) << 3 | byte(broadcast->key && p.s_k() > 1) << 4;
  }

  /// Sink columns mean nothing where no column is hidden on the left.
  void add_mask(const Mask& mask) {
    if (mask.hides_nothing()) return;
    const bool window = mask.kind() != Mask::Kind::raw;
    add(byte(mask.kind()));
    add(mask.left());
    add(mask.right());
    add(window && mask.left() == Mask::kUnlimited ? 0 : mask.sink());
  }

  void add(std::int64_t word) { words_[count_++] = word; }

  std::array<std::int64_t, 53> words_{};
  std::size_t count_ = 0;
};

}  // namespace

std::size_t Problem::hash() const { return Key(*this).hash(); }
bool operator==(const Problem& a, const Problem& b) { return Key(a) == Key(b); }
std::strong_ordering operator<=>(const Problem& a, const Problem& b) { return Key(a) <=> Key(b); }

}  // namespace heed
