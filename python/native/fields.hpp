#pragma once

#include "array.hpp"

#include <heed/heed.h>

#include <array>
#include <cstddef>

namespace heed::python {

inline constexpr std::size_t kArrayFields = 16;

/// heed_forward_args, filled from a dict {name of a field: array or number}. It holds what the arrays' owners lent.
class Fields {
 public:
  /// How the rank-4 arrays q, k, v and o are laid out.
  enum class Layout : std::uint8_t { bshd, bhsd };

  /// stream: None, or the number of a CUDA stream. False: an exception is set.
  bool read(PyObject* dict, Layout layout, PyObject* stream);

  const heed_forward_args& args() const { return args_; }
  const Place& place() const { return place_; }
  void* stream() const { return reinterpret_cast<void*>(stream_); }

 private:
  bool read_stream(PyObject* stream);
  bool read_fields(PyObject* dict);
  bool read_tensor(std::size_t field, PyObject* object);
  bool check_together() const;

  heed_forward_args args_{};
  std::array<Array, kArrayFields> arrays_;
  std::array<bool, kArrayFields> given_{};
  Place place_;
  Layout layout_ = Layout::bshd;
  bool stream_chosen_ = false;
  std::intptr_t stream_ = 0;
};

inline Fields::Layout layout_of(bool bhsd) { return bhsd ? Fields::Layout::bhsd : Fields::Layout::bshd; }

/// Names of the fields in the order of heed_forward_args, made once when the module is loaded. False: an exception.
bool prepare_fields();

}  // namespace heed::python
