// Anything with __cuda_array_interface__, version 2 or 3.
#include "array.hpp"
#include "errors.hpp"

#include <array>

namespace heed::python {
namespace {

struct TextAndType {
  const char* text;
  heed_type type;
};
constexpr std::array kTypes{
    TextAndType{"<f4", HEED_F32}, TextAndType{"<f2", HEED_F16},  TextAndType{"<i4", HEED_I32},
    TextAndType{"<i8", HEED_I64}, TextAndType{"|b1", HEED_U8},   TextAndType{"|u1", HEED_U8},
    TextAndType{"<u2", HEED_U16}, TextAndType{"|i1", HEED_INT8},
};

int item_size(int type) {
  return type == HEED_I64 ? 8 : type == HEED_F32 || type == HEED_I32 ? 4 : type == HEED_F16 || type == HEED_U16 ? 2 : 1;
}

PyObject* item(PyObject* dict, const char* key) {
  PyObject* const value = PyDict_GetItemString(dict, key);
  return value == Py_None ? nullptr : value;
}

bool read_type(PyObject* text, const char* name, heed_tensor& tensor) {
  for (const TextAndType& each : kTypes)
    if (text != nullptr && PyUnicode_CompareWithASCIIString(text, each.text) == 0) {
      tensor.type = each.type;
      return true;
    }
  PyErr_Format(
      PyExc_TypeError,
      "%s has elements of typestr %R; by this protocol heed reads float32, float16, int32, int64, bool and uint8. "
      "bfloat16 comes by __dlpack__.",
      name, text == nullptr ? Py_None : text);
  return false;
}

bool read_memory(PyObject* dict, const char* name, Array& array) {
  heed_tensor& tensor = array.tensor;
  PyObject *const shape = item(dict, "shape"), *const data = item(dict, "data"), *const strides = item(dict, "strides");
  if (shape == nullptr || !PyTuple_Check(shape) || data == nullptr || !PyTuple_Check(data) || PyTuple_Size(data) != 2 ||
      (strides != nullptr && (!PyTuple_Check(strides) || PyTuple_Size(strides) != PyTuple_Size(shape)))) {
    PyErr_Format(PyExc_TypeError, "%s: its __cuda_array_interface__ has no proper shape, data and strides.", name);
    return false;
  }
  if (!check_rank(PyTuple_Size(shape), name)) return false;
  tensor.rank = static_cast<std::int32_t>(PyTuple_Size(shape));
  tensor.data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
  array.read_only = PyObject_IsTrue(PyTuple_GetItem(data, 1)) == 1;
  std::int64_t dense = 1;
  for (int i = tensor.rank - 1; i >= 0; --i) {
    tensor.sizes[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    tensor.strides[i] = dense;
    dense *= tensor.sizes[i];
    if (strides != nullptr && !stride_in_elements(PyLong_AsLongLong(PyTuple_GetItem(strides, i)),
                                                  item_size(tensor.type), name, tensor.strides[i]))
      return false;
  }
  return PyErr_Occurred() == nullptr;
}

}  // namespace

Read read_cuda_interface(PyObject* object, const char* name, Array& array) {
  static PyObject* const attribute = PyUnicode_InternFromString("__cuda_array_interface__");
  const Ref dict = optional_attribute(object, attribute);
  if (!dict) return PyErr_Occurred() != nullptr ? Read::failed : Read::no;
  if (!PyDict_Check(dict.get())) {
    PyErr_Format(PyExc_TypeError, "%s: its __cuda_array_interface__ is no dict.", name);
    return Read::failed;
  }
  array.place = {Place::Kind::cuda, -1};
  if (!read_type(item(dict.get(), "typestr"), name, array.tensor) || !read_memory(dict.get(), name, array))
    return Read::failed;
  if (PyObject* const stream = item(dict.get(), "stream"); stream != nullptr) {
    array.has_stream = true;
    array.stream = static_cast<std::intptr_t>(PyLong_AsSsize_t(stream));
    if (PyErr_Occurred() != nullptr) return Read::failed;
  }
  return Read::yes;
}

}  // namespace heed::python
