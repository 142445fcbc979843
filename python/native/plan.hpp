#pragma once

#include "python.hpp"

namespace heed::python {

// Plans live in capsules. Each function returns null with an exception set where it fails.
PyObject* plan_create(PyObject* module, PyObject* args);
PyObject* plan_run(PyObject* module, PyObject* args);
PyObject* plan_info(PyObject* module, PyObject* capsule);

}  // namespace heed::python
