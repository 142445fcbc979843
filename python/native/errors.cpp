#include "errors.hpp"

#include <cstdarg>

namespace heed::python {
namespace {

Ref error_class(const char* name) {
  const Ref module(PyImport_ImportModule("heed._errors"));
  return module ? Ref(PyObject_GetAttrString(module.get(), name)) : Ref();
}

const char* name_of(heed_status status) {
  switch (status) {
    case HEED_INVALID_ARGUMENT:
      return "InvalidArgumentError";
    case HEED_UNSUPPORTED:
      return "UnsupportedError";
    case HEED_OUT_OF_MEMORY:
      return "OutOfMemoryError";
    case HEED_DEVICE_FAILED:
      return "DeviceError";
    default:
      return "InternalError";
  }
}

}  // namespace

PyObject* raise_status(heed_status status) {
  // Importing may run code that calls heed: the words are taken first.
  const Ref text(PyUnicode_FromString(heed_last_error()));
  const Ref error = error_class(name_of(status));
  if (text && error) PyErr_SetObject(error.get(), text.get());
  return nullptr;
}

void raise_heed(const char* name, const char* format, ...) {
  std::va_list values;
  va_start(values, format);
  const Ref text(PyUnicode_FromFormatV(format, values));
  va_end(values);
  const Ref error = error_class(name);
  if (text && error) PyErr_SetObject(error.get(), text.get());
}

}  // namespace heed::python
