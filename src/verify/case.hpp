#pragma once

#include <heed/forward.hpp>
#include <heed/problem.hpp>
#include <heed/types.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heed::verify {

/// What q, k and v are filled with.
enum class Distribution : std::uint8_t {
  normal,       ///< N(0, 1)
  uniform_int,  ///< whole numbers in [-3, 3]
  normal_int,   ///< N(0, 2) rounded to whole numbers
  uniform,      ///< [0, 1): hides mask errors, here because others use it
  trig,         ///< cos of the element's number
  extreme,      ///< near the ends of the type's range (of f32's, after Q K^T), yet exact in any order of summation
  sparse_int,   ///< four zeros in five, the others whole numbers in [-2, 2]: exact sums
  offset,       ///< normal, and each row's logits shifted by +120 or -120
  hot_key,      ///< normal, and one key of each head is thirty times as long as the others
  const_v,      ///< normal q and k; all rows of V are the same
  equal,        ///< every element is the same
  one_nan,      ///< normal, and one element of q, k, v or dO is no number
};

/// Tensors that share one buffer.
enum class Packing : std::uint8_t {
  none,
  qkv,  ///< [b, s, 3, h, d]
  kv,   ///< [b, s, 2, h, d]
};

enum class SinkInit : std::uint8_t {
  none,
  large,   ///< whole numbers in [30, 60]
  normal,  ///< about as large as the logits
  holes,   ///< the same, and every other head's is -inf: it has none
};

/// A tensor with a dimension of stride 0: every index of it reads the same memory.
struct ZeroStride {
  enum class Tensor : std::uint8_t { q, k, v, bias, bool_mask, d_o };
  Tensor tensor = Tensor::k;
  char dim = 'b';  ///< b, s, h for q, k, v, d_o; b, h, q, k for bias and bool_mask
  friend bool operator==(const ZeroStride&, const ZeroStride&) = default;
};

/// A dimension that is stored backwards, by a negative stride.
struct Reversed {
  Operand tensor = Operand::q;
  char dim = 'h';  ///< b, s or h
  friend bool operator==(const Reversed&, const Reversed&) = default;
};

/// Rows of a packed tensor that belong to no sequence.
struct Around {
  std::int64_t before = 0;  ///< the first sequence
  std::int64_t behind = 0;  ///< the last one
  friend bool operator==(const Around&, const Around&) = default;
};

/// A call of forward or backward, described so that it can be built from nothing: the same Case makes the same bytes on
/// every machine. The default is what `heed fwd` does without arguments; with the other operation, `heed bwd`.
struct Case {
  Operation operation = Operation::forward;

  // Sizes.
  Mode mode = Mode::batch;
  std::int64_t b = 2, h = 8, h_k = 8, d = 128, d_v = 128;
  std::vector<std::int64_t> s_q = {3328};  ///< batch mode: one number; group mode: the logical length of each sequence
  std::vector<std::int64_t> s_k = {3328};
  std::vector<std::int64_t> s_qpad = {};  ///< group mode: physical lengths, one for each sequence; empty: as s_q
  std::vector<std::int64_t> s_kpad = {};
  std::vector<std::int64_t> q_eff_lens =
      {};  ///< batch mode: logical lengths, one for each batch entry; empty: not given
  std::vector<std::int64_t> kv_eff_lens = {};
  /// Group mode, what is told of the longest sequence: kExactly, 0 for nothing, or a bound that may be larger.
  std::int64_t max_s_q = kExactly, max_s_k = kExactly;
  static constexpr std::int64_t kExactly = -1;
  Around q_around = {}, k_around = {};  ///< group mode: of q, o and what lies as they do; of k and v
  /// Group mode: bias, masks and randval have so many queries and keys more than any sequence.
  std::int64_t table_more_q = 0, table_more_k = 0;

  // Types.
  DataType type = DataType::f16;
  std::optional<DataType> output_type = {};  ///< nothing: as type
  Math math = Math::fast;

  // Memory.
  Layout q_layout = Layout::bhsd, k_layout = Layout::bhsd, v_layout = Layout::bhsd, o_layout = Layout::bhsd;
  Packing packing = Packing::none;
  bool v_column_major = false;
  std::int64_t row_gap = 0;     ///< elements between the end of a row and the next, in every tensor
  std::int64_t align = 0;       ///< elements from a 64-byte boundary to the first element of every tensor
  bool absurd_strides = false;  ///< dimensions of size 1 have a huge stride
  std::vector<ZeroStride> zero_strides = {};
  std::vector<Reversed> reversed = {};
  DataType index_type = DataType::i32;  ///< of seqstart and seqlen

  // What is computed.
  double scale = 0;
  Mask mask = {};
  std::optional<BiasSpec> bias = {};
  bool bias_inf = false;  ///< rows, blocks and entries of the bias are -inf
  std::optional<Broadcast> bool_mask = {};
  std::optional<BlockMaskSpec> block_mask = {};
  bool squeeze = false;  ///< leading dimensions of size 1 of bias and masks are left out of their views
  Alibi alibi = Alibi::none;
  SinkInit sink = SinkInit::none;
  double soft_cap = 0;
  double p_drop = 0;
  std::uint64_t drop_seed = 1, drop_offset = 0;
  bool drop_state = false;  ///< seed and offset lie in memory, and others are in the call itself
  bool randval = false;
  bool lse = false;

  // Backward: what is asked for, and where its tensors lie.
  bool d_lse = false;                   ///< the LSE has a gradient
  std::optional<DataType> dbias = {};   ///< asked for, in this type
  bool dsink = false, dslopes = false;  ///< asked for
  bool dq_in_16_bits = false;           ///< dq_accumulation is the type of q
  bool deterministic = false;
  std::optional<Layout> d_o_layout = {};  ///< nothing: as o
  std::optional<Layout> grad_layout =
      {};  ///< of dq, dk, dv, each on its own; nothing: as q, k and v, packed as they are

  // Data.
  Distribution distribution = Distribution::normal;
  std::uint64_t seed = 11939;

  DataType o_type() const { return output_type.value_or(type); }
  bool group() const { return mode == Mode::group; }
  bool backward() const { return operation == Operation::backward; }

  /// Of batch entry `entry`: how many rows count, and how many there are in memory.
  std::int64_t logical_q(std::int64_t entry) const;
  std::int64_t logical_k(std::int64_t entry) const;
  std::int64_t physical_q(std::int64_t entry) const;
  std::int64_t physical_k(std::int64_t entry) const;
  /// The longest of them.
  std::int64_t longest_q() const;
  std::int64_t longest_k() const;
  /// Group mode: ForwardArgs::max_s_q (max_s_k).
  std::int64_t told_q() const;
  std::int64_t told_k() const;
  /// s_q (s_k) of the problem.
  std::int64_t bound_q(Memory memory = Memory::host) const;
  std::int64_t bound_k(Memory memory = Memory::host) const;
  /// Queries (keys) of the bias, the masks and randval.
  std::int64_t table_q() const { return bound_q() + table_more_q; }
  std::int64_t table_k() const { return bound_k() + table_more_k; }
  /// Rows of the packed tensors in group mode.
  std::int64_t total_q() const;
  std::int64_t total_k() const;

  /// Throws Error for what cannot be built: wrong list lengths, a packing of unlike tensors, a logical length over its
  /// physical one ... What can be built, but is no problem heed computes, is left to heed to refuse.
  void check() const;

  /// "heed fwd -b=1 ..." or "heed bwd ...": only what differs from the default.
  std::string to_command() const;
  /// One object, with every argument of the command that describes a case, and "op", "fwd" or "bwd".
  std::string to_json() const;
  static Case from_json(std::string_view text);  ///< throws Error

  friend bool operator==(const Case&, const Case&) = default;
};

std::string_view name(Distribution distribution);

}  // namespace heed::verify
