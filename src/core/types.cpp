#include <heed/types.hpp>

#include "core/invalid.hpp"

#include <array>

namespace heed {
namespace {

struct TypeRow {
  DataType type;
  std::string_view name;
  std::string_view alias;
  int bits;
};

// In the order of the enumeration: a type's row is found by its value.
constexpr std::array kTypes{
    TypeRow{DataType::f32, "f32", "fp32", 32},
    TypeRow{DataType::f16, "f16", "fp16", 16},
    TypeRow{DataType::bf16, "bf16", "", 16},
    TypeRow{DataType::fp8_e4m3, "fp8_e4m3", "fp8", 8},
    TypeRow{DataType::fp8_e5m2, "fp8_e5m2", "bf8", 8},
    TypeRow{DataType::int8, "int8", "", 8},
    TypeRow{DataType::int4, "int4", "", 4},
    TypeRow{DataType::f64, "f64", "fp64", 64},
    TypeRow{DataType::i32, "i32", "", 32},
    TypeRow{DataType::i64, "i64", "", 64},
    TypeRow{DataType::u8, "u8", "", 8},
    TypeRow{DataType::u16, "u16", "", 16},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kTypes.size(); ++i)
    if (static_cast<std::size_t>(kTypes[i].type) != i) return false;
  return true;
}
static_assert(in_order());

}  // namespace

std::string_view name(DataType type) {
  const auto row = static_cast<std::size_t>(type);
  return row < kTypes.size() ? kTypes[row].name : "?";
}

int bits(DataType type) {
  const auto row = static_cast<std::size_t>(type);
  return row < kTypes.size() ? kTypes[row].bits : 0;
}

DataType parse_type(std::string_view text) {
  for (const TypeRow& row : kTypes)
    if (text == row.name || (!row.alias.empty() && text == row.alias)) return row.type;
  throw core::invalid(
      "type '{}' is not known: the types are f32 (fp32), f16 (fp16), bf16, fp8_e4m3 (fp8), fp8_e5m2 (bf8), int8, int4, "
      "f64 (fp64), and for lengths, masks and random words i32, i64, u8, u16.",
      text);
}

}  // namespace heed
