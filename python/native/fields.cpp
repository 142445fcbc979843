#include "fields.hpp"

#include "errors.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace heed::python {
namespace {

/// Sets of heed_types, as bits.
constexpr unsigned bit(heed_type type) { return 1U << static_cast<unsigned>(type); }
struct Types {
  unsigned set;
  const char* text;  ///< in words
};
constexpr Types kFloats{bit(HEED_F32) | bit(HEED_F16) | bit(HEED_BF16) | bit(HEED_FP8_E4M3) | bit(HEED_FP8_E5M2) |
                            bit(HEED_INT8) | bit(HEED_INT4),
                        "float32, float16 or bfloat16"};
constexpr Types kOutputs{kFloats.set | bit(HEED_F64), "float32, float16 or bfloat16"};  // the oracle's are f64
constexpr Types kBias{bit(HEED_F32) | bit(HEED_F16) | bit(HEED_BF16), "float32 or the type of q"};
constexpr Types kF32{bit(HEED_F32), "float32"};
constexpr Types kLse{bit(HEED_F32) | bit(HEED_F64), "float32"};
constexpr Types kBool{bit(HEED_U8), "bool or uint8, true where a key is visible (numbers to be added go into bias)"};
constexpr Types kLengths{bit(HEED_I32) | bit(HEED_I64), "int32 or int64"};
constexpr Types kI64{bit(HEED_I64), "int64"};
constexpr Types kU16{bit(HEED_U16), "uint16"};

struct ArrayField {
  const char* name;
  std::size_t offset;
  Types types;
  bool written = false;
  bool laid_out = false;  ///< its middle dimensions are exchanged in the layout bhsd
};
constexpr std::array<ArrayField, kArrayFields> kArrays{{
    {"q", offsetof(heed_forward_args, q), kFloats, false, true},
    {"k", offsetof(heed_forward_args, k), kFloats, false, true},
    {"v", offsetof(heed_forward_args, v), kFloats, false, true},
    {"o", offsetof(heed_forward_args, o), kOutputs, true, true},
    {"lse", offsetof(heed_forward_args, lse), kLse, true},
    {"bool_mask", offsetof(heed_forward_args, bool_mask), kBool},
    {"block_mask", offsetof(heed_forward_args, block_mask), kBool},
    {"bias", offsetof(heed_forward_args, bias), kBias},
    {"alibi_slopes", offsetof(heed_forward_args, alibi_slopes), kF32},
    {"sink", offsetof(heed_forward_args, sink), kF32},
    {"randval", offsetof(heed_forward_args, randval), kU16, true},
    {"seqstart_q", offsetof(heed_forward_args, seqstart_q), kLengths},
    {"seqstart_k", offsetof(heed_forward_args, seqstart_k), kLengths},
    {"seqlen_q", offsetof(heed_forward_args, seqlen_q), kLengths},
    {"seqlen_k", offsetof(heed_forward_args, seqlen_k), kLengths},
    {"dropout_state", offsetof(heed_forward_args, dropout_state), kI64},
}};
constexpr std::size_t kQ = 0, kK = 1, kV = 2;

enum class Kind : std::uint8_t { i32, i64, u64, f64 };
struct NumberField {
  const char* name;
  std::size_t offset;
  Kind kind;
};
constexpr std::array kNumbers{
    NumberField{"mask_kind", offsetof(heed_forward_args, mask) + offsetof(heed_mask, kind), Kind::i32},
    NumberField{"mask_left", offsetof(heed_forward_args, mask) + offsetof(heed_mask, left), Kind::i64},
    NumberField{"mask_right", offsetof(heed_forward_args, mask) + offsetof(heed_mask, right), Kind::i64},
    NumberField{"mask_sink", offsetof(heed_forward_args, mask) + offsetof(heed_mask, sink), Kind::i64},
    NumberField{"block_q", offsetof(heed_forward_args, block_q), Kind::i64},
    NumberField{"block_k", offsetof(heed_forward_args, block_k), Kind::i64},
    NumberField{"scale", offsetof(heed_forward_args, scale), Kind::f64},
    NumberField{"soft_cap", offsetof(heed_forward_args, soft_cap), Kind::f64},
    NumberField{"dropout_p", offsetof(heed_forward_args, dropout_p), Kind::f64},
    NumberField{"dropout_seed", offsetof(heed_forward_args, dropout_seed), Kind::u64},
    NumberField{"dropout_offset", offsetof(heed_forward_args, dropout_offset), Kind::u64},
    NumberField{"math", offsetof(heed_forward_args, math), Kind::i32},
    NumberField{"max_s_q", offsetof(heed_forward_args, max_s_q), Kind::i64},
    NumberField{"max_s_k", offsetof(heed_forward_args, max_s_k), Kind::i64},
};

/// {name: index}, arrays first, then numbers.
PyObject* g_indices = nullptr;

template <class T>
void store(heed_forward_args& args, std::size_t offset, T value) {
  std::memcpy(reinterpret_cast<char*>(&args) + offset, &value, sizeof value);
}

bool read_number(const NumberField& field, PyObject* object, heed_forward_args& args) {
  switch (field.kind) {
    case Kind::i32:
      store(args, field.offset, static_cast<std::int32_t>(PyLong_AsLong(object)));
      break;
    case Kind::i64:
      store(args, field.offset, static_cast<std::int64_t>(PyLong_AsLongLong(object)));
      break;
    case Kind::u64:
      store(args, field.offset, static_cast<std::uint64_t>(PyLong_AsUnsignedLongLong(object)));
      break;
    case Kind::f64:
      store(args, field.offset, PyFloat_AsDouble(object));
      break;
  }
  return PyErr_Occurred() == nullptr;
}

const char* name_of_type(std::int32_t type) {
  constexpr std::array kNames{"float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2",   "int8",
                              "int4",    "float64", "int32",    "int64",       "bool or uint8", "uint16"};
  return kNames.at(static_cast<std::size_t>(type));
}

/// The legacy default stream has two names.
std::intptr_t same_stream(std::intptr_t stream) { return stream == 1 ? 0 : stream; }

std::string text_of(const Place& place) {
  if (!place.on_gpu()) return "the CPU";
  return place.index < 0 ? std::string("a GPU") : "GPU " + std::to_string(place.index);
}

}  // namespace

bool prepare_fields() {
  if (g_indices != nullptr) return true;
  Ref indices(PyDict_New());
  if (!indices) return false;
  for (std::size_t i = 0; i < kArrays.size() + kNumbers.size(); ++i) {
    const Ref name(
        PyUnicode_InternFromString(i < kArrays.size() ? kArrays[i].name : kNumbers[i - kArrays.size()].name));
    const Ref index(PyLong_FromSize_t(i));
    if (!name || !index || PyDict_SetItem(indices.get(), name.get(), index.get()) != 0) return false;
  }
  g_indices = indices.release();
  return true;
}

bool Fields::read(PyObject* dict, Layout layout, PyObject* stream) {
  if (!PyDict_Check(dict)) {
    PyErr_SetString(PyExc_TypeError, "fields must be a dict.");
    return false;
  }
  args_.struct_size = sizeof args_;
  layout_ = layout;
  return read_stream(stream) && read_fields(dict) && check_together();
}

bool Fields::read_stream(PyObject* stream) {
  if (stream == Py_None) return true;
  stream_ = static_cast<std::intptr_t>(PyLong_AsSsize_t(stream));
  stream_chosen_ = true;
  return PyErr_Occurred() == nullptr;
}

bool Fields::read_fields(PyObject* dict) {
  PyObject *name = nullptr, *value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict, &position, &name, &value) != 0) {
    PyObject* const index = PyDict_GetItemWithError(g_indices, name);
    if (index == nullptr) {
      if (PyErr_Occurred() == nullptr) PyErr_Format(PyExc_TypeError, "heed knows no field %R.", name);
      return false;
    }
    if (value == Py_None) continue;
    const std::size_t field = PyLong_AsSize_t(index);
    const bool read = field < kArrays.size() ? read_tensor(field, value)
                                             : read_number(kNumbers[field - kArrays.size()], value, args_);
    if (!read) return false;
  }
  return true;
}

bool Fields::read_tensor(std::size_t field, PyObject* object) {
  const ArrayField& what = kArrays[field];
  Array& array = arrays_[field];
  if (!read_array(object, what.name, stream_, array)) return false;
  if ((what.types.set & bit(static_cast<heed_type>(array.tensor.type))) == 0) {
    PyErr_Format(PyExc_TypeError, "%s has elements of type %s; it must be %s.", what.name,
                 name_of_type(array.tensor.type), what.types.text);
    return false;
  }
  if (what.written && array.read_only) {
    PyErr_Format(PyExc_ValueError, "%s is read-only, and heed would write into it; pass an array that may be written.",
                 what.name);
    return false;
  }
  heed_tensor& tensor = array.tensor;
  if (layout_ == Layout::bhsd && what.laid_out && tensor.rank == 4) {
    std::swap(tensor.sizes[1], tensor.sizes[2]);
    std::swap(tensor.strides[1], tensor.strides[2]);
  }
  given_[field] = true;
  store(args_, what.offset, tensor);
  if (field == kQ) {
    place_ = array.place;
    if (!stream_chosen_ && array.has_stream) stream_ = array.stream;
  }
  return true;
}

bool Fields::check_together() const {
  if (stream_chosen_ && !place_.on_gpu()) {
    PyErr_SetString(PyExc_ValueError, "stream= is for arrays in GPU memory; q is on the CPU.");
    return false;
  }
  for (const std::size_t i : {kK, kV})
    if (given_[i] && arrays_[i].tensor.type != arrays_[kQ].tensor.type) {
      PyErr_Format(PyExc_TypeError, "%s is %s and q %s; q, k and v have one type.", kArrays[i].name,
                   name_of_type(arrays_[i].tensor.type), name_of_type(arrays_[kQ].tensor.type));
      return false;
    }
  for (std::size_t i = 0; i < kArrays.size(); ++i) {
    if (!given_[i]) continue;
    const Array& array = arrays_[i];
    const bool same_gpu = array.place.index == place_.index || array.place.index < 0 || place_.index < 0;
    if (array.place.kind != place_.kind || !same_gpu) {
      PyErr_Format(PyExc_ValueError, "%s is on %s and q on %s; all arrays of a call are in one place: move it there.",
                   kArrays[i].name, text_of(array.place).c_str(), text_of(place_).c_str());
      return false;
    }
    if (array.has_stream && !stream_chosen_ && same_stream(array.stream) != same_stream(stream_)) {
      PyErr_Format(
          PyExc_ValueError,
          "%s is ready on stream %zd and q on stream %zd; heed waits for no other stream. Synchronise them, then "
          "say with stream= where to run.",
          kArrays[i].name, static_cast<Py_ssize_t>(array.stream), static_cast<Py_ssize_t>(stream_));
      return false;
    }
  }
  return true;
}

}  // namespace heed::python
