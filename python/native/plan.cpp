#include "plan.hpp"

#include "errors.hpp"
#include "fields.hpp"
#include "threads.hpp"

#include <heed/heed.h>

namespace heed::python {
namespace {

constexpr char kPlan[] = "heed.plan";

heed_plan* plan_of(PyObject* capsule) { return static_cast<heed_plan*>(PyCapsule_GetPointer(capsule, kPlan)); }

void destroy(PyObject* capsule) { heed_plan_destroy(plan_of(capsule)); }

}  // namespace

/// plan_create(fields or JSON, gradients or None, bhsd, engine, kernel or None)
PyObject* plan_create(PyObject*, PyObject* args) {
  PyObject *what = nullptr, *gradients = nullptr;
  int bhsd = 0, engine = 0;
  const char* kernel = nullptr;
  if (!PyArg_ParseTuple(args, "OOpiz", &what, &gradients, &bhsd, &engine, &kernel)) return nullptr;
  const heed_plan_options options{sizeof options, kernel, engine, 0};
  heed_plan* plan = nullptr;
  heed_status status = HEED_OK;
  if (PyUnicode_Check(what)) {
    const char* const json = PyUnicode_AsUTF8AndSize(what, nullptr);
    if (json == nullptr) return nullptr;
    status = unlocked([&] { return heed_plan_create_from_json(nullptr, json, &options, &plan); });
  } else {
    CallFields fields;
    if (!fields.read(what, gradients, layout_of(bhsd != 0), Py_None)) return nullptr;
    status = unlocked([&] {
      return fields.backward() ? heed_backward_plan_create(nullptr, &fields.backward_args(), &options, &plan)
                               : heed_plan_create(nullptr, &fields.forward_args(), &options, &plan);
    });
  }
  if (status != HEED_OK) return raise_status(status);
  PyObject* const capsule = PyCapsule_New(plan, kPlan, destroy);
  if (capsule == nullptr) heed_plan_destroy(plan);
  return capsule;
}

/// plan_run(plan, fields, gradients or None, bhsd, workspace or None, stream or None). The workspace is an array of
/// bytes where the plan's engine can reach it.
PyObject* plan_run(PyObject*, PyObject* args) {
  PyObject *capsule = nullptr, *what = nullptr, *gradients = nullptr, *workspace = nullptr, *stream = nullptr;
  int bhsd = 0;
  if (!PyArg_ParseTuple(args, "OOOpOO", &capsule, &what, &gradients, &bhsd, &workspace, &stream)) return nullptr;
  const heed_plan* const plan = plan_of(capsule);
  CallFields fields;
  if (plan == nullptr || !fields.read(what, gradients, layout_of(bhsd != 0), stream)) return nullptr;
  Array memory;
  if (workspace != Py_None && !read_array(workspace, "workspace", 0, memory)) return nullptr;
  void* const bytes = memory.tensor.data;
  const auto count = static_cast<std::size_t>(memory.tensor.rank == 0 ? 0 : memory.tensor.sizes[0]);
  const heed_status status = unlocked([&] {
    if (heed_plan_memory(plan) == HEED_MEMORY_GPU)
      return fields.backward()
                 ? heed_backward_plan_run_on_stream(plan, &fields.backward_args(), bytes, count, fields.stream())
                 : heed_plan_run_on_stream(plan, &fields.forward_args(), bytes, count, fields.stream());
    const heed_executor threads = default_threads();
    return fields.backward() ? heed_backward_plan_run(plan, &fields.backward_args(), bytes, count, &threads)
                             : heed_plan_run(plan, &fields.forward_args(), bytes, count, &threads);
  });
  if (status != HEED_OK) return raise_status(status);
  Py_RETURN_NONE;
}

/// (name of the kernel, bytes of workspace, on a GPU, threads)
PyObject* plan_info(PyObject*, PyObject* capsule) {
  const heed_plan* const plan = plan_of(capsule);
  if (plan == nullptr) return nullptr;
  return Py_BuildValue("(snOi)", heed_plan_kernel(plan), static_cast<Py_ssize_t>(heed_plan_workspace_bytes(plan)),
                       heed_plan_memory(plan) == HEED_MEMORY_GPU ? Py_True : Py_False, heed_plan_threads(plan));
}

}  // namespace heed::python
