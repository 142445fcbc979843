#include "fields.hpp"

#include "errors.hpp"
#include "field_table.hpp"

#include <cstring>
#include <string>
#include <utility>

namespace heed::python {
namespace {

constexpr std::size_t kQ = 0, kK = 1, kV = 2;  // of the forward table
static_assert(Fields::kMostArrays >= 16);

template <class T>
void store(char* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

/// What Python says of a number it cannot read names no argument: it is said again, by name.
bool refuse_number(const NumberField& field, PyObject* object) {
  const bool too_large = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
  if (!too_large && PyErr_ExceptionMatches(PyExc_TypeError) == 0) return false;  // of its own making
  PyErr_Clear();
  if (too_large) {
    PyErr_Format(PyExc_ValueError, "%s = %S: it must fit into 64 bits.", field.name, object);
  } else {
    PyErr_Format(PyExc_TypeError, "%s is %R; it must be a %s.", field.name,
                 reinterpret_cast<PyObject*>(Py_TYPE(object)),
                 field.kind == NumberKind::f64 ? "number" : "whole number");
  }
  return false;
}

bool read_number(const NumberField& field, PyObject* object, char* to) {
  if (field.kind == NumberKind::f64) {
    store(to, PyFloat_AsDouble(object));
  } else {
    const Ref whole(PyNumber_Index(object));  // NumPy's and torch's are numbers, too
    if (!whole) return refuse_number(field, object);
    if (field.kind == NumberKind::u64)
      store(to, static_cast<std::uint64_t>(PyLong_AsUnsignedLongLong(whole.get())));
    else if (field.kind == NumberKind::i64)
      store(to, static_cast<std::int64_t>(PyLong_AsLongLong(whole.get())));
    else
      store(to, static_cast<std::int32_t>(PyLong_AsLong(whole.get())));
  }
  return PyErr_Occurred() == nullptr || refuse_number(field, object);
}

/// The legacy default stream has two names.
std::intptr_t same_stream(std::intptr_t stream) { return stream == 1 ? 0 : stream; }

std::string text_of(const Place& place) {
  if (!place.on_gpu()) return "the CPU";
  return place.index < 0 ? std::string("a GPU") : "GPU " + std::to_string(place.index);
}

}  // namespace

bool prepare_fields() { return g_forward_fields.prepare() && g_backward_fields.prepare(); }

bool Fields::read_stream(PyObject* stream) {
  if (stream == Py_None) return true;
  stream_ = static_cast<std::intptr_t>(PyLong_AsSsize_t(stream));
  stream_chosen_ = true;
  return PyErr_Occurred() == nullptr;
}

bool Fields::read_dict(PyObject* dict, Layout layout) {
  if (!PyDict_Check(dict)) {
    PyErr_SetString(PyExc_TypeError, "fields must be a dict.");
    return false;
  }
  PyObject *name = nullptr, *value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict, &position, &name, &value) != 0) {
    PyObject* const index = PyDict_GetItemWithError(table_.indices, name);
    if (index == nullptr) {
      if (PyErr_Occurred() == nullptr) PyErr_Format(PyExc_TypeError, "heed knows no field %R.", name);
      return false;
    }
    if (value == Py_None) continue;
    const std::size_t field = PyLong_AsSize_t(index);
    if (field < table_.arrays.size()) {
      if (!read_tensor(field, value, layout)) return false;
    } else {
      const NumberField& number = table_.numbers[field - table_.arrays.size()];
      if (!read_number(number, value, target_ + number.offset)) return false;
    }
  }
  return true;
}

bool Fields::read_tensor(std::size_t field, PyObject* object, Layout layout) {
  const ArrayField& what = table_.arrays[field];
  Array& array = arrays_[field];
  if (!read_array(object, what.name, stream_, array)) return false;
  heed_tensor& tensor = array.tensor;
  if (!what.types.has(tensor.type)) {
    PyErr_Format(PyExc_TypeError, "%s has elements of type %s; it must be %s.", what.name, name_of_type(tensor.type),
                 what.types.text);
    return false;
  }
  if (what.written && array.read_only) {
    PyErr_Format(PyExc_ValueError, "%s is read-only, and heed would write into it; pass an array that may be written.",
                 what.name);
    return false;
  }
  if (layout == Layout::bhsd && what.laid_out && tensor.rank == 4) {
    std::swap(tensor.sizes[1], tensor.sizes[2]);
    std::swap(tensor.strides[1], tensor.strides[2]);
  }
  given_[field] = true;
  store(target_ + what.offset, tensor);
  return true;
}

bool Fields::check_places() const {
  for (std::size_t i = 0; i < table_.arrays.size(); ++i) {
    if (!given_[i]) continue;
    const Array& array = arrays_[i];
    const char* const name = table_.arrays[i].name;
    const bool same_gpu = array.place.index == place_.index || array.place.index < 0 || place_.index < 0;
    if (array.place.kind != place_.kind || !same_gpu) {
      PyErr_Format(PyExc_ValueError, "%s is on %s and q on %s; all arrays of a call are in one place: move it there.",
                   name, text_of(array.place).c_str(), text_of(place_).c_str());
      return false;
    }
    if (array.has_stream && !stream_chosen_ && same_stream(array.stream) != same_stream(stream_)) {
      PyErr_Format(
          PyExc_ValueError,
          "%s is ready on stream %zd and q on stream %zd; heed waits for no other stream. Synchronise them, then "
          "say with stream= where to run.",
          name, static_cast<Py_ssize_t>(array.stream), static_cast<Py_ssize_t>(stream_));
      return false;
    }
  }
  return true;
}

ForwardFields::ForwardFields() : Fields(g_forward_fields, &args_) {}

bool ForwardFields::read(PyObject* dict, Layout layout, PyObject* stream) {
  args_.struct_size = sizeof args_;
  if (!read_stream(stream) || !read_dict(dict, layout)) return false;
  place_ = arrays_[kQ].place;
  if (stream_chosen_ && !place_.on_gpu()) {
    PyErr_SetString(PyExc_ValueError, "stream= is for arrays in GPU memory; q is on the CPU.");
    return false;
  }
  if (!stream_chosen_ && arrays_[kQ].has_stream) stream_ = arrays_[kQ].stream;
  for (const std::size_t i : {kK, kV})
    if (given_[i] && arrays_[i].tensor.type != arrays_[kQ].tensor.type) {
      PyErr_Format(PyExc_TypeError, "%s is %s and q %s; q, k and v have one type.", g_forward_fields.arrays[i].name,
                   name_of_type(arrays_[i].tensor.type), name_of_type(arrays_[kQ].tensor.type));
      return false;
    }
  return check_places();
}

BackwardFields::BackwardFields(const ForwardFields& forward) : Fields(g_backward_fields, &args_), forward_(forward) {}

bool BackwardFields::read(PyObject* dict, Layout layout) {
  args_.struct_size = sizeof args_;
  args_.forward = &forward_.args();
  place_ = forward_.place();
  stream_chosen_ = true;
  stream_ = reinterpret_cast<std::intptr_t>(forward_.stream());
  return read_dict(dict, layout) && check_places();
}

bool CallFields::read(PyObject* fields, PyObject* gradients, Layout layout, PyObject* stream) {
  backward_ = gradients != Py_None;
  return forward_.read(fields, layout, stream) && (!backward_ || gradients_.read(gradients, layout));
}

}  // namespace heed::python
