#pragma once

#include <heed/export.h>

#include <cstdint>
#include <string_view>

namespace heed {

/// Element types. The first group holds attention data, the second lengths, offsets, masks and random words.
enum class DataType : std::uint8_t {
  f32,
  f16,
  bf16,
  fp8_e4m3,  ///< OCP encoding
  fp8_e5m2,  ///< OCP encoding
  int8,
  int4,
  f64,  ///< results of the oracle only

  i32,
  i64,
  u8,  ///< a boolean: zero is false, anything else is true
  u16,
};

// Short names for calls: {q, heed::bf16, {b, s, h, d}}.
inline constexpr DataType f32 = DataType::f32;
inline constexpr DataType f16 = DataType::f16;
inline constexpr DataType bf16 = DataType::bf16;
inline constexpr DataType f64 = DataType::f64;
inline constexpr DataType i32 = DataType::i32;
inline constexpr DataType i64 = DataType::i64;
inline constexpr DataType u8 = DataType::u8;
inline constexpr DataType u16 = DataType::u16;

/// "f32", "bf16", "fp8_e4m3" ...
HEED_API std::string_view name(DataType type);

/// The type of a name as printed by name(), or of its usual alias (fp32, fp16, fp8, bf8). Throws Error for others.
HEED_API DataType parse_type(std::string_view text);

HEED_API int bits(DataType type);

constexpr bool is_float16_or_32(DataType type) {
  return type == DataType::f32 || type == DataType::f16 || type == DataType::bf16;
}

}  // namespace heed
