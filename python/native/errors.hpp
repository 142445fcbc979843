#pragma once

#include "python.hpp"

#include <heed/heed.h>

namespace heed::python {

/// Sets the Python exception that a status stands for, with the library's words. Always returns null.
PyObject* raise_status(heed_status status);

/// Sets an exception of heed._errors ("UnsupportedError", ...) with a text as PyErr_Format makes it.
void raise_heed(const char* error, const char* format, ...);

}  // namespace heed::python
