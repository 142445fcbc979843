#pragma once

#include "python.hpp"

#include <heed/heed.h>

namespace heed::python {

/// Runs a function of the library without Python's lock.
template <class Function>
heed_status unlocked(Function&& function) {
  PyThreadState* const state = PyEval_SaveThread();
  const heed_status status = function();
  PyEval_RestoreThread(state);
  return status;
}

/// The threads of the default context, as the C interface takes threads.
heed_executor default_threads();

}  // namespace heed::python
