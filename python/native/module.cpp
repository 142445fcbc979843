// heed._native: what python/heed needs of libheed.so. Its types are in heed/_native.pyi; its users are in heed/ alone.
#include "errors.hpp"
#include "fields.hpp"
#include "plan.hpp"
#include "threads.hpp"

#include <heed/heed.h>

namespace heed::python {
namespace {

/// A text of the library's, handed to Python.
PyObject* text_or_error(heed_status status, char* text) {
  if (status != HEED_OK) return raise_status(status);
  PyObject* const result = PyUnicode_FromString(text);
  heed_string_free(text);
  return result;
}

/// forward(fields, bhsd, engine, stream or None)
PyObject* forward(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 4) {
    PyErr_SetString(PyExc_TypeError, "forward(fields, bhsd, engine, stream)");
    return nullptr;
  }
  ForwardFields fields;
  if (!fields.read(args[0], layout_of(args[1] == Py_True), args[3])) return nullptr;
  heed_run_options options{};
  options.struct_size = sizeof options;
  options.engine = static_cast<std::int32_t>(PyLong_AsLong(args[2]));
  options.stream = fields.stream();
  if (PyErr_Occurred() != nullptr) return nullptr;
  const heed_status status = unlocked([&] { return heed_forward(nullptr, &fields.args(), &options); });
  if (status != HEED_OK) return raise_status(status);
  Py_RETURN_NONE;
}

/// backward(fields, gradients, bhsd, engine, stream or None)
PyObject* backward(PyObject*, PyObject* args) {
  PyObject *what = nullptr, *gradients = nullptr, *stream = nullptr;
  int bhsd = 0;
  heed_run_options options{};
  options.struct_size = sizeof options;
  if (!PyArg_ParseTuple(args, "OOpiO", &what, &gradients, &bhsd, &options.engine, &stream)) return nullptr;
  CallFields fields;
  if (!fields.read(what, gradients, layout_of(bhsd != 0), stream)) return nullptr;
  options.stream = fields.stream();
  const heed_status status = unlocked([&] { return heed_backward(nullptr, &fields.backward_args(), &options); });
  if (status != HEED_OK) return raise_status(status);
  Py_RETURN_NONE;
}

/// oracle_backward(fields, gradients, bhsd)
PyObject* oracle_backward(PyObject*, PyObject* args) {
  PyObject *what = nullptr, *gradients = nullptr;
  int bhsd = 0;
  if (!PyArg_ParseTuple(args, "OOp", &what, &gradients, &bhsd)) return nullptr;
  CallFields fields;
  if (!fields.read(what, gradients, layout_of(bhsd != 0), Py_None)) return nullptr;
  const heed_status status = unlocked([&] {
    const heed_executor threads = default_threads();
    return heed_oracle_backward(&fields.backward_args(), &threads);
  });
  if (status != HEED_OK) return raise_status(status);
  Py_RETURN_NONE;
}

/// oracle(fields, bhsd)
PyObject* oracle(PyObject*, PyObject* args) {
  PyObject* what = nullptr;
  int bhsd = 0;
  if (!PyArg_ParseTuple(args, "Op", &what, &bhsd)) return nullptr;
  ForwardFields fields;
  if (!fields.read(what, layout_of(bhsd != 0), Py_None)) return nullptr;
  const heed_status status = unlocked([&] {
    const heed_executor threads = default_threads();
    return heed_oracle_forward(&fields.args(), &threads);
  });
  if (status != HEED_OK) return raise_status(status);
  Py_RETURN_NONE;
}

/// problem_json(fields, gradients or None, bhsd)
PyObject* problem_json(PyObject*, PyObject* args) {
  PyObject *what = nullptr, *gradients = nullptr;
  int bhsd = 0;
  if (!PyArg_ParseTuple(args, "OOp", &what, &gradients, &bhsd)) return nullptr;
  CallFields fields;
  if (!fields.read(what, gradients, layout_of(bhsd != 0), Py_None)) return nullptr;
  char* text = nullptr;
  const heed_status status = fields.backward() ? heed_backward_problem_json(&fields.backward_args(), &text)
                                               : heed_problem_json(&fields.forward_args(), &text);
  return text_or_error(status, text);
}

/// explain_json(fields or JSON of a problem, gradients or None, bhsd, engine)
PyObject* explain_json(PyObject*, PyObject* args) {
  PyObject *what = nullptr, *gradients = nullptr;
  int bhsd = 0, engine = 0;
  if (!PyArg_ParseTuple(args, "OOpi", &what, &gradients, &bhsd, &engine)) return nullptr;
  heed_plan_options options{};
  options.struct_size = sizeof options;
  options.engine = engine;
  char* text = nullptr;
  heed_status status = HEED_OK;
  if (PyUnicode_Check(what)) {
    const char* const json = PyUnicode_AsUTF8AndSize(what, nullptr);
    if (json == nullptr) return nullptr;
    status = heed_explain_problem_json(nullptr, json, &options, &text);
  } else {
    CallFields fields;
    if (!fields.read(what, gradients, layout_of(bhsd != 0), Py_None)) return nullptr;
    status = fields.backward() ? heed_backward_explain_json(nullptr, &fields.backward_args(), &options, &text)
                               : heed_explain_json(nullptr, &fields.forward_args(), &options, &text);
  }
  return text_or_error(status, text);
}

/// kernels_json(filter)
PyObject* kernels_json(PyObject*, PyObject* args) {
  const char* filter = nullptr;
  if (!PyArg_ParseTuple(args, "s", &filter)) return nullptr;
  char* text = nullptr;
  const heed_status status = heed_kernels_json(nullptr, filter, &text);
  return text_or_error(status, text);
}

/// mask_parse(text) -> (kind, left, right, sink)
PyObject* mask_parse(PyObject*, PyObject* args) {
  const char* text = nullptr;
  if (!PyArg_ParseTuple(args, "s", &text)) return nullptr;
  heed_mask mask{};
  const heed_status status = heed_mask_parse(text, &mask);
  if (status != HEED_OK) return raise_status(status);
  return Py_BuildValue("(iLLL)", mask.kind, static_cast<long long>(mask.left), static_cast<long long>(mask.right),
                       static_cast<long long>(mask.sink));
}

/// describe(array, name) -> (heed_type, shape, on a GPU, index of the GPU or -1)
PyObject* describe(PyObject*, PyObject* args) {
  PyObject* object = nullptr;
  const char* name = nullptr;
  if (!PyArg_ParseTuple(args, "Os", &object, &name)) return nullptr;
  Array array;
  if (!read_array(object, name, 0, array)) return nullptr;
  const heed_tensor& tensor = array.tensor;
  Ref shape(PyTuple_New(tensor.rank));
  if (!shape) return nullptr;
  for (int i = 0; i < tensor.rank; ++i)
    if (PyTuple_SetItem(shape.get(), i, PyLong_FromLongLong(tensor.sizes[i])) != 0) return nullptr;
  return Py_BuildValue("(iNOi)", tensor.type, shape.release(), array.place.on_gpu() ? Py_True : Py_False,
                       array.place.index);
}

PyObject* version(PyObject*, PyObject*) { return PyUnicode_FromString(heed_version()); }

PyCFunction fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyModuleDef* definition() {
  static PyMethodDef methods[] = {
      {"forward", fast(forward), METH_FASTCALL, nullptr},
      {"backward", backward, METH_VARARGS, nullptr},
      {"oracle_backward", oracle_backward, METH_VARARGS, nullptr},
      {"oracle", oracle, METH_VARARGS, nullptr},
      {"problem_json", problem_json, METH_VARARGS, nullptr},
      {"explain_json", explain_json, METH_VARARGS, nullptr},
      {"kernels_json", kernels_json, METH_VARARGS, nullptr},
      {"mask_parse", mask_parse, METH_VARARGS, nullptr},
      {"describe", describe, METH_VARARGS, nullptr},
      {"plan_create", plan_create, METH_VARARGS, nullptr},
      {"plan_run", plan_run, METH_VARARGS, nullptr},
      {"plan_info", plan_info, METH_O, nullptr},
      {"version", version, METH_NOARGS, nullptr},
      {nullptr, nullptr, 0, nullptr},
  };
  static PyModuleDef module{
      PyModuleDef_HEAD_INIT, "heed._native", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};
  return &module;
}

}  // namespace
}  // namespace heed::python

PyMODINIT_FUNC PyInit__native() {
  if (!heed::python::prepare_fields()) return nullptr;
  return PyModule_Create(heed::python::definition());
}
