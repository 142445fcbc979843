#include "array.hpp"

#include "errors.hpp"

#include <algorithm>

namespace heed::python {
namespace {

/// "<class 'list'>", for messages. Null: an exception is set.
Ref type_text(PyObject* object) { return Ref(PyObject_Repr(reinterpret_cast<PyObject*>(Py_TYPE(object)))); }

/// Libraries tell any strides of an array without elements; heed wants those of a dense one.
void straighten_empty(heed_tensor& tensor) {
  if (std::find(tensor.sizes, tensor.sizes + tensor.rank, 0) == tensor.sizes + tensor.rank) return;
  std::int64_t dense = 1;
  for (int i = tensor.rank - 1; i >= 0; --i) {
    tensor.strides[i] = dense;
    dense *= std::max<std::int64_t>(tensor.sizes[i], 1);
  }
}

}  // namespace

bool check_rank(Py_ssize_t rank, const char* name) {
  if (rank >= 1 && rank <= 4) return true;
  PyErr_Format(PyExc_ValueError, "%s has %zd dimensions; heed takes arrays of 1 to 4.", name, rank);
  return false;
}

bool stride_in_elements(std::int64_t bytes, int item_size, const char* name, std::int64_t& elements) {
  if (bytes % item_size != 0) {
    PyErr_Format(PyExc_ValueError,
                 "%s has a stride of %lld bytes, which is no multiple of its elements' %d bytes; copy it first.", name,
                 static_cast<long long>(bytes), item_size);
    return false;
  }
  elements = bytes / item_size;
  return true;
}

bool read_array(PyObject* object, const char* name, std::intptr_t stream, Array& array) {
  Read read = read_torch(object, name, array);
  if (read == Read::no) read = read_numpy(object, name, array);
  if (read == Read::no) read = read_cuda_interface(object, name, array);
  if (read == Read::no) read = read_dlpack(object, name, stream, array);
  if (read == Read::no) {
    const Ref type = type_text(object);
    if (type)
      PyErr_Format(PyExc_TypeError,
                   "%s is %U; heed takes torch tensors, NumPy arrays, and objects with __dlpack__ or "
                   "__cuda_array_interface__.",
                   name, type.get());
  }
  if (read == Read::yes) straighten_empty(array.tensor);
  return read == Read::yes;
}

}  // namespace heed::python
