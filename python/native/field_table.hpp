#pragma once

#include "python.hpp"

#include <heed/heed.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace heed::python {

/// Element types that a field takes, as bits, and in words.
struct Types {
  std::uint32_t set;
  const char* text;
  bool has(std::int32_t type) const { return (set >> static_cast<std::uint32_t>(type) & 1U) != 0; }
};

struct ArrayField {
  const char* name;
  std::size_t offset;
  Types types;
  bool written = false;
  bool laid_out = false;  ///< its middle dimensions are exchanged in the layout bhsd
};

enum class NumberKind : std::uint8_t { i32, i64, u64, f64 };
struct NumberField {
  const char* name;
  std::size_t offset;
  NumberKind kind;
};

/// The fields of a struct of the C interface.
struct FieldTable {
  std::span<const ArrayField> arrays;
  std::span<const NumberField> numbers;
  PyObject* indices = nullptr;  ///< {name: index}, arrays first, then numbers

  bool prepare();  ///< makes the indices; false: an exception is set
};

extern FieldTable g_forward_fields, g_backward_fields;

const char* name_of_type(std::int32_t type);

}  // namespace heed::python
