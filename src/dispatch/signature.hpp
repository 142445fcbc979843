#pragma once

#include <heed/problem.hpp>

#include "dispatch/arch.hpp"
#include "dispatch/wildcard.hpp"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace heed::dispatch {

/// Kinds of mask that a kernel may be written for.
enum class MaskClass : std::uint8_t { none, causal, window, window_with_sink, raw };
std::string_view name(MaskClass mask);
MaskClass mask_class(const Mask& mask);

/// What attention can be asked for beyond its products and a softmax.
enum class Feature : std::uint8_t {
  lse,
  bias,
  alibi,
  soft_cap,
  sink,
  dropout,
  randval,
  bool_mask,
  block_mask,
  logical_lengths,
  column_major_v,  ///< the sequence is V's innermost dimension
  // Of the backward pass alone:
  d_lse,
  dbias,
  dsink,
  dslopes,
};
std::string_view name(Feature feature);
Set<Feature> features_of(const Problem& problem);

template <>
std::string_view enum_text(Mode mode);
template <>
std::string_view enum_text(Math math);
template <>
std::string_view enum_text(Operation operation);

/// What a kernel can compute. The defaults are the widest; a table narrows them by name:
///
///   Signature{.types = {bf16}, .d = up_to(256), .d_v = up_to(256), .math = {Math::fast}}
struct Signature {
  Set<DataType> types = {};  ///< of q, k and v
  Set<DataType> output_types = {DataType::f32, DataType::f16, DataType::bf16};
  Sizes d = any;
  Sizes d_v = any;
  Set<Mode> modes = any;
  Set<MaskClass> masks = any;
  Set<Feature> features = any;
  Set<Math> math = any;          ///< kernels that round P to the input type leave `accurate` out
  Sizes rows_per_kv_head = any;  ///< s_q * h / h_k: a kernel for decoding takes few
  Set<DataType> accumulate = {DataType::f32};
  bool deterministic = true;  ///< the same bits in every run
  bool tma = false;  ///< reads and writes through tensor maps: strides and addresses are multiples of 16 bytes, o is of
                     ///< q's type, and there are keys
  Sizes lengths = any;  ///< of s_q and s_k, and of the rows of packed tensors

  std::string to_string() const;
  nlohmann::ordered_json to_json() const;
  /// The kernels that this one stands for, one line each ("bf16 d128 d_v128 causal batch,group lse,bias fast"), with
  /// the wildcards filled: head dims from the numbers in `pattern`, and every mask.
  std::vector<std::string> instances(std::string_view pattern, Operation operation) const;
};

/// Which unit of the machine does the products.
enum class MathUnit : std::uint8_t { f32_fma, bf16_dot, amx_bf16, mma, wgmma };
std::string_view name(MathUnit unit);

/// How the work is cut into pieces.
enum class Schedule : std::uint8_t {
  tiles,       ///< a piece = a block of query rows of one head, over all its keys
  split_keys,  ///< a piece = a range of keys for all query rows that share a key/value head; a second stage combines
};
std::string_view name(Schedule schedule);

/// How a kernel computes.
struct Algorithm {
  Arch arch = {};
  MathUnit unit = MathUnit::f32_fma;
  Schedule schedule = Schedule::tiles;
  int tile_q = 0;               ///< query rows of one tile
  int tile_k = 0;               ///< keys of one step
  std::string_view notes = {};  ///< for people; a literal

  std::string to_string() const;
  nlohmann::ordered_json to_json() const;
};

}  // namespace heed::dispatch
