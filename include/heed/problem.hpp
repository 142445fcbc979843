#pragma once

#include <heed/backward.hpp>
#include <heed/error.hpp>
#include <heed/forward.hpp>

#include <array>
#include <compare>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace heed {

enum class Operation : std::uint8_t { forward, backward };
enum class Mode : std::uint8_t { batch, group };
enum class Layout : std::uint8_t { bshd, bhsd };
enum class Operand : std::uint8_t { q, k, v, o, d_o, dq, dk, dv };
inline constexpr std::size_t kOperandCount = 8;  ///< of backward; forward has the first four
HEED_API std::string_view name(Operand operand);
/// The operand that it has the sizes of: o for d_o, q for dq, ...
constexpr Operand shape_of(Operand operand) {
  constexpr std::array<Operand, kOperandCount> kShapes{Operand::q, Operand::k, Operand::v, Operand::o,
                                                       Operand::o, Operand::q, Operand::k, Operand::v};
  return kShapes[static_cast<std::size_t>(operand)];
}
enum class Alibi : std::uint8_t { none, per_head, per_batch_and_head };

/// Steps in elements along (batch, sequence, head, dim).
struct Strides {
  std::int64_t batch = 0, sequence = 0, head = 0, dim = 1;
  friend bool operator==(const Strides&, const Strides&) = default;
};

/// The shape of something that broadcasts over [b, h, s_q, s_k] (bias, boolean mask): which dimensions it has itself.
struct Broadcast {
  bool batch = false, head = false, query = false, key = true;
  friend bool operator==(const Broadcast&, const Broadcast&) = default;
};

struct BiasSpec {
  DataType type = DataType::f32;
  Broadcast shape = {};
  friend bool operator==(const BiasSpec&, const BiasSpec&) = default;
};

struct BlockMaskSpec {
  std::int64_t block_q = 0, block_k = 0;
  Broadcast shape = {};
  friend bool operator==(const BlockMaskSpec&, const BlockMaskSpec&) = default;
};

/// What is to be computed: a value with no pointers in it. Compare it, hash it, print it, store it as JSON.
///
///   auto p = Problem::forward().type(bf16).batch(2).heads(32, 8).lengths(4096, 4096).head_dims(128, 128)
///                .mask(Mask::causal()).lse(true);
///   if (auto error = p.validate()) std::puts(error->what());
class HEED_API Problem {
 public:
  static Problem forward() { return {}; }
  static Problem backward();  ///< with an LSE, and not deterministic until that is asked for
  /// The problem that these arguments pose. Throws Error (invalid_argument) when the views contradict each other.
  /// The values behind seqstart and seqlen are read to check them and to find the longest sequence, unless they lie in
  /// GPU memory: there the kernels cut what reaches beyond the tensors, and max_s_q, max_s_k tell the longest.
  static Problem of(const ForwardArgs& args, Memory memory = Memory::host);
  static Problem of(const BackwardArgs& args, Memory memory = Memory::host);
  static Problem from_json(std::string_view text);  ///< throws Error

  // Setters, each returns *this.
  Problem& operation(Operation v);
  Problem& type(DataType v);  ///< of q, k, v; also of o (bf16 for 8-bit types) until output_type() is called
  Problem& output_type(DataType v);
  Problem& mode(Mode v);
  Problem& batch(std::int64_t v);
  Problem& heads(std::int64_t query, std::int64_t key_value = -1);  ///< -1: as many as query heads
  Problem& lengths(std::int64_t s_q, std::int64_t s_k);             ///< group mode: the longest of each
  Problem& total_rows(std::int64_t q, std::int64_t k);              ///< group mode: rows of the packed tensors
  Problem& logical_lengths(bool q, bool k);                         ///< seqlen_q, seqlen_k will be given
  Problem& head_dims(std::int64_t d, std::int64_t d_v = -1);        ///< -1: as d
  Problem& layout(Layout v);                                        ///< of all operands, dense; undoes strides()
  Problem& strides(Operand which, const Strides& v);                ///< of one tensor
  Problem& mask(const Mask& v);
  Problem& bool_mask(std::optional<Broadcast> v);
  Problem& block_mask(std::optional<BlockMaskSpec> v);
  Problem& bias(std::optional<BiasSpec> v);
  Problem& alibi(Alibi v);
  Problem& sink(bool v);
  Problem& soft_cap(double v);
  Problem& scale(double v);
  Problem& dropout(double p);
  Problem& randval(bool v);
  Problem& lse(bool v);
  Problem& math(Math v);
  Problem& accumulate(DataType v);            ///< backward: of dQ
  Problem& gradient_type(DataType v);         ///< of dq, dk and dv; the type of q until it is called
  Problem& d_lse(bool v);                     ///< the LSE has a gradient of its own
  Problem& dbias(std::optional<DataType> v);  ///< of which type, where it is asked for
  Problem& dsink(bool v);
  Problem& dslopes(bool v);
  Problem& deterministic(bool v);
  Problem& aligned(
      bool v);  ///< GPU memory: all operands begin at multiples of 16 bytes, as memory from an allocator does

  Operation operation() const { return operation_; }
  DataType type() const { return type_; }
  DataType output_type() const { return output_type_.value_or(is_float16_or_32(type_) ? type_ : DataType::bf16); }
  Mode mode() const { return mode_; }
  std::int64_t batch() const { return batch_; }
  std::int64_t heads_q() const { return heads_q_; }
  std::int64_t heads_k() const { return heads_k_ == -1 ? heads_q_ : heads_k_; }
  std::int64_t s_q() const { return s_q_; }
  std::int64_t s_k() const { return s_k_; }
  std::int64_t total_q() const { return total_q_; }
  std::int64_t total_k() const { return total_k_; }
  bool logical_q() const { return logical_q_; }
  bool logical_k() const { return logical_k_; }
  std::int64_t d() const { return d_; }
  std::int64_t d_v() const { return d_v_ == -1 ? d_ : d_v_; }
  /// Four, or eight of backward.
  std::span<const Operand> operands() const;
  /// Effective strides: those that do not matter are 0 (sizes 0 and 1, the batch in group mode), or 1 for the head dim.
  Strides strides(Operand which) const;
  const Mask& mask() const { return mask_; }
  const std::optional<Broadcast>& bool_mask() const { return bool_mask_; }
  const std::optional<BlockMaskSpec>& block_mask() const { return block_mask_; }
  const std::optional<BiasSpec>& bias() const { return bias_; }
  Alibi alibi() const { return alibi_; }
  bool sink() const { return sink_; }
  double soft_cap() const { return soft_cap_; }
  /// Never 0: the default is filled in.
  double scale() const;
  double dropout() const { return dropout_; }
  bool randval() const { return randval_; }
  bool lse() const { return lse_; }
  Math math() const { return math_; }
  DataType accumulate() const { return accumulate_; }
  DataType gradient_type() const { return gradient_type_.value_or(type_); }
  bool d_lse() const { return d_lse_; }
  const std::optional<DataType>& dbias() const { return dbias_; }
  bool dsink() const { return dsink_; }
  bool dslopes() const { return dslopes_; }
  bool deterministic() const { return deterministic_; }
  bool aligned() const { return aligned_; }

  /// The first broken rule of the contract, with what would be accepted; nothing when the problem makes sense.
  std::optional<Error> validate() const;

  std::string to_string() const;  ///< one line
  std::string to_json() const;
  std::size_t hash() const;
  /// Equal when they compute the same from the same memory, however the strides were told.
  friend HEED_API bool operator==(const Problem& a, const Problem& b);
  /// Some order that agrees with ==, for sorted containers.
  friend HEED_API std::strong_ordering operator<=>(const Problem& a, const Problem& b);

 private:
  Problem() = default;

  Operation operation_ = Operation::forward;
  DataType type_ = DataType::f16;
  std::optional<DataType> output_type_;
  Mode mode_ = Mode::batch;
  std::int64_t batch_ = 1, heads_q_ = 1, heads_k_ = -1, s_q_ = 1, s_k_ = 1, total_q_ = 0, total_k_ = 0;
  bool logical_q_ = false, logical_k_ = false;
  std::int64_t d_ = 64, d_v_ = -1;
  Layout layout_ = Layout::bshd;
  std::array<std::optional<Strides>, kOperandCount> strides_;
  Mask mask_;
  std::optional<Broadcast> bool_mask_;
  std::optional<BlockMaskSpec> block_mask_;
  std::optional<BiasSpec> bias_;
  Alibi alibi_ = Alibi::none;
  bool sink_ = false;
  double soft_cap_ = 0, scale_ = 0, dropout_ = 0;
  bool randval_ = false, lse_ = false;
  Math math_ = Math::fast;
  DataType accumulate_ = DataType::f32;
  std::optional<DataType> gradient_type_, dbias_;
  bool d_lse_ = false, dsink_ = false, dslopes_ = false;
  bool deterministic_ = true, aligned_ = true;
};

}  // namespace heed

template <>
struct std::hash<heed::Problem> {
  std::size_t operator()(const heed::Problem& problem) const { return problem.hash(); }
};
