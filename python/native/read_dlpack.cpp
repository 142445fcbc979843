// Anything with __dlpack__ and __dlpack_device__.
#include "array.hpp"
#include "errors.hpp"

namespace heed::python {
namespace {

constexpr std::uint32_t kNewestMajor = 1;

bool read_place(PyObject* device, const char* name, Place& place) {
  int type = 0, index = 0;
  if (!PyArg_ParseTuple(device, "ii", &type, &index)) return false;
  if (type == dlpack::kCpu || type == dlpack::kCudaHost) {
    place = {};
  } else if (type == dlpack::kCuda || type == dlpack::kCudaManaged) {
    place = {Place::Kind::cuda, index};
  } else {
    PyErr_Format(PyExc_TypeError, "%s lies on DLPack device (%d, %d); heed computes on the CPU (1) and CUDA (2).", name,
                 type, index);
    return false;
  }
  return true;
}

/// __dlpack__(stream=..., max_version=(1, 0)); older producers do not know max_version.
Ref ask(PyObject* object, const Place& place, std::intptr_t stream) {
  const Ref method(PyObject_GetAttrString(object, "__dlpack__"));
  const Ref keywords(PyDict_New());
  const Ref none(PyTuple_New(0));
  if (!method || !keywords || !none) return {};
  if (place.on_gpu()) {
    // 0 would be ambiguous: the legacy default stream is called 1.
    const Ref number(PyLong_FromSsize_t(stream == 0 ? 1 : stream));
    if (!number || PyDict_SetItemString(keywords.get(), "stream", number.get()) != 0) return {};
  }
  const Ref version(Py_BuildValue("(ii)", static_cast<int>(kNewestMajor), 0));
  if (!version || PyDict_SetItemString(keywords.get(), "max_version", version.get()) != 0) return {};
  Ref capsule(PyObject_Call(method.get(), none.get(), keywords.get()));
  if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    if (PyDict_DelItemString(keywords.get(), "max_version") != 0) return {};
    capsule = Ref(PyObject_Call(method.get(), none.get(), keywords.get()));
  }
  return capsule;
}

/// Takes the tensor out of the capsule, which is renamed so that nobody gives it back a second time.
const dlpack::Tensor* take(PyObject* capsule, const char* name, Array& array) {
  if (PyCapsule_IsValid(capsule, "dltensor_versioned") != 0) {
    auto* managed = static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    if (managed->major > kNewestMajor) {
      PyErr_Format(PyExc_TypeError, "%s speaks DLPack %u; heed knows versions up to %u.", name, managed->major,
                   kNewestMajor);
      return nullptr;
    }
    if (PyCapsule_SetName(capsule, "used_dltensor_versioned") != 0) return nullptr;
    array.managed.hold(managed);
    array.read_only = (managed->flags & dlpack::kReadOnly) != 0;
    return &managed->tensor;
  }
  auto* managed = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule, "dltensor"));
  if (managed == nullptr || PyCapsule_SetName(capsule, "used_dltensor") != 0) return nullptr;
  array.managed.hold(managed);
  return &managed->tensor;
}

bool read_type(const dlpack::Tensor& from, const char* name, heed_tensor& tensor) {
  if (type_of(from.type, tensor.type)) return true;
  PyErr_Format(PyExc_TypeError, "%s has elements of DLPack type (code %d, %d bits, %d lanes); heed knows no such type.",
               name, from.type.code, from.type.bits, from.type.lanes);
  return false;
}

}  // namespace

Read read_dlpack(PyObject* object, const char* name, std::intptr_t stream, Array& array) {
  static PyObject* const attribute = PyUnicode_InternFromString("__dlpack_device__");
  const Ref method = optional_attribute(object, attribute);
  if (!method) return PyErr_Occurred() != nullptr ? Read::failed : Read::no;
  const Ref device(PyObject_CallFunctionObjArgs(method.get(), nullptr));
  if (!device || !read_place(device.get(), name, array.place)) return Read::failed;
  const Ref capsule = ask(object, array.place, stream);
  const dlpack::Tensor* from = capsule ? take(capsule.get(), name, array) : nullptr;
  if (from == nullptr || !check_rank(from->rank, name) || !read_type(*from, name, array.tensor)) return Read::failed;
  read_dlpack_memory(*from, array.tensor);
  return Read::yes;
}

}  // namespace heed::python
