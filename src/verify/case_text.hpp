#pragma once

#include "verify/case.hpp"

#include <string>
#include <string_view>

/// The texts of single arguments, in both directions. Readers return nothing (or false) for what they do not
/// understand.
namespace heed::verify {

std::optional<Distribution> find_distribution(std::string_view text);
/// All of them, with commas.
std::string distribution_names();

/// "fp32", "fp16", "bf16".
std::string_view precision_name(DataType type);

/// Shapes of bias and boolean mask: "e", "e:1", "e:2", "e:<letters of b, h, q>", "e:k" (keys only); with "-k" behind
/// the letters, if any, the key dimension has size 1.
std::string broadcast_text(const Broadcast& shape);
std::optional<Broadcast> parse_broadcast(std::string_view text);

/// "64,32" or "64,32:bh".
std::string block_mask_text(const BlockMaskSpec& spec);
std::optional<BlockMaskSpec> parse_block_mask(std::string_view text);

/// "k.b,bias.q".
std::string zero_strides_text(const std::vector<ZeroStride>& list);
std::optional<std::vector<ZeroStride>> parse_zero_strides(std::string_view text);

/// "q.h,dk.s".
std::string reversed_text(const std::vector<Reversed>& list);
std::optional<std::vector<Reversed>> parse_reversed(std::string_view text);

std::string list_text(const std::vector<std::int64_t>& list);
std::optional<std::vector<std::int64_t>> parse_list(std::string_view text);

/// Splits at each separator; "" gives nothing.
std::vector<std::string_view> split(std::string_view text, char separator);

/// The whole text as a number.
template <class Number>
std::optional<Number> parse_number(std::string_view text);

}  // namespace heed::verify
