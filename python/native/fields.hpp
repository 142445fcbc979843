#pragma once

#include "array.hpp"

#include <heed/heed.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace heed::python {

/// How the rank-4 arrays q, k, v and o, and their gradients, are laid out.
enum class Layout : std::uint8_t { bshd, bhsd };
inline Layout layout_of(bool bhsd) { return bhsd ? Layout::bhsd : Layout::bshd; }

struct FieldTable;

/// A struct of the C interface, filled from a dict {name of a field: array or number}. Holds what the arrays' owners
/// lent.
class Fields {
 public:
  static constexpr std::size_t kMostArrays = 16;

  const Place& place() const { return place_; }
  void* stream() const { return reinterpret_cast<void*>(stream_); }

 protected:
  Fields(const FieldTable& table, void* target) : table_(table), target_(static_cast<char*>(target)) {}

  /// False: an exception is set.
  bool read_dict(PyObject* dict, Layout layout);
  bool read_stream(PyObject* stream);
  /// Everything is where the first array is, and ready on the stream.
  bool check_places() const;

  Place place_;
  bool stream_chosen_ = false;
  std::intptr_t stream_ = 0;
  std::array<Array, kMostArrays> arrays_;
  std::array<bool, kMostArrays> given_{};

 private:
  bool read_tensor(std::size_t field, PyObject* object, Layout layout);

  const FieldTable& table_;
  char* target_;
};

class ForwardFields : public Fields {
 public:
  ForwardFields();
  /// stream: None, or the number of a CUDA stream.
  bool read(PyObject* dict, Layout layout, PyObject* stream);
  const heed_forward_args& args() const { return args_; }

 private:
  heed_forward_args args_{};
};

/// The gradients that go with the fields of a forward call, read before.
class BackwardFields : public Fields {
 public:
  explicit BackwardFields(const ForwardFields& forward);
  bool read(PyObject* dict, Layout layout);
  const heed_backward_args& args() const { return args_; }

 private:
  const ForwardFields& forward_;
  heed_backward_args args_{};
};

/// The fields of a call of either pass: without gradients it is a forward one.
class CallFields {
 public:
  /// gradients: None, or a dict.
  bool read(PyObject* fields, PyObject* gradients, Layout layout, PyObject* stream);
  bool backward() const { return backward_; }
  const heed_forward_args& forward_args() const { return forward_.args(); }
  const heed_backward_args& backward_args() const { return gradients_.args(); }
  void* stream() const { return forward_.stream(); }

 private:
  ForwardFields forward_;
  BackwardFields gradients_{forward_};
  bool backward_ = false;
};

/// Makes the names of the fields, once, when the module is loaded. False: an exception is set.
bool prepare_fields();

}  // namespace heed::python
