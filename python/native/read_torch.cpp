// torch tensors. Where torch has DLPack's exchange functions (from 2.10 on), one call tells all; else, and for whatever
// is refused, by attributes that have been there since long before torch 2. No line of torch is linked.
#include "array.hpp"
#include "errors.hpp"

#include <array>

namespace heed::python {
namespace {

struct NamedType {
  const char* name;
  heed_type type;
};
constexpr std::array kTypes{
    NamedType{"float16", HEED_F16},
    NamedType{"bfloat16", HEED_BF16},
    NamedType{"float32", HEED_F32},
    NamedType{"int32", HEED_I32},
    NamedType{"int64", HEED_I64},
    NamedType{"bool", HEED_U8},
    NamedType{"uint8", HEED_U8},
    NamedType{"float64", HEED_F64},
    NamedType{"int8", HEED_INT8},
    NamedType{"float8_e4m3fn", HEED_FP8_E4M3},
    NamedType{"float8_e5m2", HEED_FP8_E5M2},
    NamedType{"uint16", HEED_U16},
};

/// What is asked of a tensor, looked up once.
struct Torch {
  PyTypeObject* tensor = nullptr;
  PyTypeObject* parameter = nullptr;
  PyObject *data_ptr = nullptr, *stride = nullptr, *get_device = nullptr, *is_neg = nullptr;  // methods of torch.Tensor
  PyObject *shape = nullptr, *dtype = nullptr, *is_cpu = nullptr, *is_cuda = nullptr;         // names of attributes
  PyObject *layout = nullptr, *is_nested = nullptr;
  PyObject* strided = nullptr;                   // the usual layout
  std::array<PyObject*, kTypes.size()> types{};  // null: this torch has no such type
  const dlpack::Exchange* exchange = nullptr;    // null: this torch has none, or one that heed does not know
};

/// Null: none. False: an exception is set.
bool find_exchange(PyObject* tensor, const dlpack::Exchange*& exchange) {
  static PyObject* const attribute = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
  const Ref capsule = optional_attribute(tensor, attribute);
  if (!capsule) return PyErr_Occurred() == nullptr;
  if (PyCapsule_IsValid(capsule.get(), dlpack::kExchangeName) == 0) return true;
  const auto* found = static_cast<const dlpack::Exchange*>(PyCapsule_GetPointer(capsule.get(), dlpack::kExchangeName));
  if (found->major == 1 && found->minor >= 3 && found->view != nullptr) exchange = found;
  return true;
}

bool load(PyObject* module, Torch& torch) {
  const Ref tensor(PyObject_GetAttrString(module, "Tensor"));
  const Ref nn(PyObject_GetAttrString(module, "nn"));
  if (!tensor || !nn) return false;
  Ref parameter(PyObject_GetAttrString(nn.get(), "Parameter"));
  Ref data_ptr(PyObject_GetAttrString(tensor.get(), "data_ptr"));
  Ref stride(PyObject_GetAttrString(tensor.get(), "stride"));
  Ref get_device(PyObject_GetAttrString(tensor.get(), "get_device"));
  Ref is_neg(PyObject_GetAttrString(tensor.get(), "is_neg"));
  Ref strided(PyObject_GetAttrString(module, "strided"));
  if (!parameter || !data_ptr || !stride || !get_device || !is_neg || !strided) return false;
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    const Ref name(PyUnicode_FromString(kTypes[i].name));
    if (!name) return false;
    torch.types[i] = optional_attribute(module, name.get()).release();
    if (PyErr_Occurred() != nullptr) return false;
  }
  if (!find_exchange(tensor.get(), torch.exchange)) return false;
  torch.shape = PyUnicode_InternFromString("shape");
  torch.dtype = PyUnicode_InternFromString("dtype");
  torch.is_cpu = PyUnicode_InternFromString("is_cpu");
  torch.is_cuda = PyUnicode_InternFromString("is_cuda");
  torch.layout = PyUnicode_InternFromString("layout");
  torch.is_nested = PyUnicode_InternFromString("is_nested");
  torch.strided = strided.release();
  torch.data_ptr = data_ptr.release();
  torch.stride = stride.release();
  torch.get_device = get_device.release();
  torch.is_neg = is_neg.release();
  torch.parameter = reinterpret_cast<PyTypeObject*>(parameter.release());
  torch.tensor = reinterpret_cast<PyTypeObject*>(Py_NewRef(tensor.get()));
  return true;
}

/// Null without an exception while nobody has imported torch (an object cannot be a tensor then), or while it is being
/// imported.
const Torch* find_torch() {
  static Torch torch;
  if (torch.tensor != nullptr) return &torch;
  PyObject* const modules = PyImport_GetModuleDict();
  PyObject* const module = modules == nullptr ? nullptr : PyDict_GetItemString(modules, "torch");
  if (module == nullptr) return nullptr;
  if (load(module, torch)) return &torch;
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  return nullptr;
}

bool attribute_is_true(PyObject* object, PyObject* name) {
  const Ref value(PyObject_GetAttr(object, name));
  return value && value.get() == Py_True;
}

/// What the tensor says of itself, for a refusal: its repr() would print its contents.
void refuse(PyObject* error, PyObject* object, const char* name, const char* attribute, const char* rule) {
  PyErr_Clear();
  const Ref value(PyObject_GetAttrString(object, attribute));
  if (value) PyErr_Format(error, "%s is a torch tensor of %s %S; %s", name, attribute, value.get(), rule);
}

bool read_place(const Torch& torch, PyObject* object, const char* name, Place& place) {
  if (attribute_is_true(object, torch.is_cpu)) {
    place = {};
    return true;
  }
  if (PyErr_Occurred() != nullptr) return false;
  if (!attribute_is_true(object, torch.is_cuda)) {
    if (PyErr_Occurred() == nullptr)
      refuse(PyExc_TypeError, object, name, "device", "heed computes on 'cpu' and 'cuda'; move it there.");
    return false;
  }
  const Ref index(PyObject_CallFunctionObjArgs(torch.get_device, object, nullptr));
  if (!index) return false;
  place = {Place::Kind::cuda, static_cast<int>(PyLong_AsLong(index.get()))};
  return PyErr_Occurred() == nullptr;
}

bool read_type(const Torch& torch, PyObject* object, const char* name, heed_tensor& tensor) {
  const Ref type(PyObject_GetAttr(object, torch.dtype));
  if (!type) return false;
  for (std::size_t i = 0; i < kTypes.size(); ++i)
    if (type.get() == torch.types[i]) {
      tensor.type = kTypes[i].type;
      return true;
    }
  refuse(PyExc_TypeError, object, name, "dtype", "heed knows no such type.");
  return false;
}

bool read_numbers(PyObject* tuple, int rank, std::int64_t* numbers) {
  for (int i = 0; i < rank; ++i) numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
  return PyErr_Occurred() == nullptr;
}

/// Sparse and nested tensors have no memory that heed could read, nor have those that stand for others.
void refuse_without_memory(const Torch& torch, PyObject* object, const char* name) {
  PyErr_Clear();
  const Ref layout(PyObject_GetAttr(object, torch.layout));
  if (!layout) return;
  const bool nested = attribute_is_true(object, torch.is_nested);
  if (PyErr_Occurred() != nullptr) return;
  if (nested || layout.get() != torch.strided)
    refuse(PyExc_TypeError, object, name, nested ? "is_nested" : "layout",
           "heed takes dense (strided) tensors; call to_dense() first.");
  else
    raise_heed(
        "UnsupportedError",
        "%s has no memory of its own: inside a transform of torch.func (vmap, jvp, grad, ...) a tensor stands for "
        "others. Call heed outside of it, with the batch as a dimension of its own; gradients come by backward().",
        name);
}

bool read_memory(const Torch& torch, PyObject* object, const char* name, heed_tensor& tensor) {
  const Ref shape(PyObject_GetAttr(object, torch.shape));
  if (!shape || !check_rank(PyTuple_Size(shape.get()), name)) return false;
  tensor.rank = static_cast<std::int32_t>(PyTuple_Size(shape.get()));
  const Ref strides(PyObject_CallFunctionObjArgs(torch.stride, object, nullptr));
  const Ref data(strides ? PyObject_CallFunctionObjArgs(torch.data_ptr, object, nullptr) : nullptr);
  if (!data) {
    refuse_without_memory(torch, object, name);
    return false;
  }
  tensor.data = PyLong_AsVoidPtr(data.get());
  return read_numbers(shape.get(), tensor.rank, tensor.sizes) &&
         read_numbers(strides.get(), tensor.rank, tensor.strides);
}

/// By torch's own function. False: there is none, or the tensor is none that heed takes, which its attributes tell
/// better.
bool read_at_once(const Torch& torch, PyObject* object, Array& array) {
  if (torch.exchange == nullptr) return false;
  dlpack::Tensor view;
  if (torch.exchange->view(object, &view) != 0) {
    PyErr_Clear();
    return false;
  }
  const bool on_gpu = view.device.type == dlpack::kCuda;
  if ((!on_gpu && view.device.type != dlpack::kCpu) || view.rank < 1 || view.rank > 4 ||
      !type_of(view.type, array.tensor.type))
    return false;
  array.place = on_gpu ? Place{Place::Kind::cuda, view.device.index} : Place{};
  read_dlpack_memory(view, array.tensor);
  return true;
}

/// The imaginary part of a conjugate is a view of memory that holds its negative, which nothing but the tensor tells.
bool check_sign(const Torch& torch, PyObject* object, const char* name) {
  const Ref negated(PyObject_CallFunctionObjArgs(torch.is_neg, object, nullptr));
  if (!negated) return false;
  if (negated.get() != Py_True) return true;
  PyErr_Format(
      PyExc_ValueError,
      "%s is a view that torch negates when it reads it (is_neg() is true, as of the imaginary part of a conjugate); "
      "heed takes memory as it is: pass %s.resolve_neg().",
      name, name);
  return false;
}

}  // namespace

Read read_torch(PyObject* object, const char* name, Array& array) {
  const Torch* const torch = find_torch();
  if (torch == nullptr) return PyErr_Occurred() != nullptr ? Read::failed : Read::no;
  PyTypeObject* const type = Py_TYPE(object);
  if (type != torch->tensor && type != torch->parameter) {
    const int is_subclass = PyType_IsSubtype(type, torch->tensor);
    if (is_subclass == 0) return Read::no;
    // What a subclass means by its memory only its own functions know.
    const Ref text(PyObject_Repr(reinterpret_cast<PyObject*>(type)));
    if (text)
      PyErr_Format(PyExc_TypeError,
                   "%s is %U, a subclass of torch.Tensor; heed takes torch.Tensor and torch.nn.Parameter. If it is a "
                   "plain tensor underneath, pass it through .as_subclass(torch.Tensor).",
                   name, text.get());
    return Read::failed;
  }
  const bool done = read_at_once(*torch, object, array) ||
                    (read_place(*torch, object, name, array.place) && read_type(*torch, object, name, array.tensor) &&
                     read_memory(*torch, object, name, array.tensor));
  return done && check_sign(*torch, object, name) ? Read::yes : Read::failed;
}

}  // namespace heed::python
