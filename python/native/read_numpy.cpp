// NumPy arrays, by the struct behind __array_struct__: no line of NumPy is compiled or linked.
#include "array.hpp"
#include "errors.hpp"

#include <array>

namespace heed::python {
namespace {

/// As the array interface protocol, version 3, lays it out.
struct ArrayStruct {
  int two;
  int rank;
  char kind;
  int item_size;
  int flags;
  Py_ssize_t* sizes;
  Py_ssize_t* strides;  ///< in bytes
  void* data;
};
constexpr int kAligned = 0x100, kNotSwapped = 0x200, kWriteable = 0x400;

struct KindAndSize {
  char kind;
  int item_size;
  heed_type type;
};
constexpr std::array kTypes{
    KindAndSize{'f', 4, HEED_F32}, KindAndSize{'f', 2, HEED_F16}, KindAndSize{'f', 8, HEED_F64},
    KindAndSize{'i', 4, HEED_I32}, KindAndSize{'i', 8, HEED_I64}, KindAndSize{'b', 1, HEED_U8},
    KindAndSize{'u', 1, HEED_U8},  KindAndSize{'u', 2, HEED_U16}, KindAndSize{'i', 1, HEED_INT8},
};

struct NamedType {
  const char* name;
  heed_type type;
};
/// Types that NumPy has from ml_dtypes; to NumPy itself they are bytes without a meaning.
constexpr std::array kNamed{NamedType{"bfloat16", HEED_BF16}, NamedType{"float8_e4m3fn", HEED_FP8_E4M3},
                            NamedType{"float8_e5m2", HEED_FP8_E5M2}};

bool read_type(const ArrayStruct& from, PyObject* object, const char* name, heed_tensor& tensor) {
  for (const KindAndSize& each : kTypes)
    if (from.kind == each.kind && from.item_size == each.item_size) {
      tensor.type = each.type;
      return true;
    }
  const Ref dtype(PyObject_GetAttrString(object, "dtype"));
  const Ref text(dtype ? PyObject_Str(dtype.get()) : nullptr);
  if (!text) return false;
  for (const NamedType& each : kNamed)
    if (PyUnicode_CompareWithASCIIString(text.get(), each.name) == 0) {
      tensor.type = each.type;
      return true;
    }
  PyErr_Format(
      PyExc_TypeError,
      "%s has elements of type %U; heed takes float32, float16 and (from ml_dtypes) bfloat16, and for masks and "
      "lengths bool, uint8, int32 and int64.",
      name, text.get());
  return false;
}

bool read_memory(const ArrayStruct& from, const char* name, heed_tensor& tensor) {
  if (!check_rank(from.rank, name)) return false;
  tensor.rank = from.rank;
  tensor.data = from.data;
  for (int i = 0; i < from.rank; ++i) {
    tensor.sizes[i] = from.sizes[i];
    if (!stride_in_elements(from.strides[i], from.item_size, name, tensor.strides[i])) return false;
  }
  return true;
}

}  // namespace

Read read_numpy(PyObject* object, const char* name, Array& array) {
  static PyObject* const attribute = PyUnicode_InternFromString("__array_struct__");
  const Ref capsule = optional_attribute(object, attribute);
  if (!capsule) return PyErr_Occurred() != nullptr ? Read::failed : Read::no;
  const auto* from = static_cast<const ArrayStruct*>(PyCapsule_GetPointer(capsule.get(), nullptr));
  if (from == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_ValueError)) {  // it has every attribute, and stands for something else
      PyErr_Clear();
      PyErr_Format(PyExc_TypeError,
                   "%s is %R, whose __array_struct__ is no capsule: it has no memory that heed could read.", name,
                   reinterpret_cast<PyObject*>(Py_TYPE(object)));
    }
    return Read::failed;
  }
  if (from->two != 2) {
    PyErr_Format(PyExc_TypeError, "%s: its __array_struct__ has version %d; heed knows 2.", name, from->two);
    return Read::failed;
  }
  if ((from->flags & kNotSwapped) == 0 && from->item_size > 1) {
    PyErr_Format(PyExc_TypeError, "%s has elements in the other byte order; convert it with .astype first.", name);
    return Read::failed;
  }
  if (!read_type(*from, object, name, array.tensor) || !read_memory(*from, name, array.tensor)) return Read::failed;
  if ((from->flags & kAligned) == 0) {
    PyErr_Format(PyExc_ValueError, "%s has elements that begin between their natural addresses; copy it first.", name);
    return Read::failed;
  }
  array.read_only = (from->flags & kWriteable) == 0;
  return Read::yes;
}

}  // namespace heed::python
