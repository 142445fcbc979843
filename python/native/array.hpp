#pragma once

#include "dlpack.hpp"
#include "python.hpp"

#include <heed/heed.h>

#include <cstdint>

namespace heed::python {

/// Where an array lies.
struct Place {
  enum class Kind : std::uint8_t { cpu, cuda } kind = Kind::cpu;
  int index = -1;  ///< which GPU; -1: not told, or the CPU

  bool on_gpu() const { return kind == Kind::cuda; }
};

/// An array of anyone's, as heed sees it. The memory is the array's own: nothing is copied.
struct Array {
  heed_tensor tensor{};
  Place place;
  bool read_only = false;
  bool has_stream = false;  ///< the array names the stream on which its contents are ready
  std::intptr_t stream = 0;
  ManagedTensor managed;  ///< what a DLPack producer lends, given back with this
};

/// Reads any array: torch tensors by their attributes, NumPy's by __array_struct__, others by __cuda_array_interface__
/// or
/// __dlpack__. False: a TypeError, ValueError or UnsupportedError that names the array is set.
/// `stream` is where heed will use it (for producers that ask).
bool read_array(PyObject* object, const char* name, std::intptr_t stream, Array& array);

// One reader for each protocol. `yes` without an exception: it was read; `no`: not such an object; `failed`: an
// exception is set.
enum class Read : std::uint8_t { yes, no, failed };
Read read_torch(PyObject* object, const char* name, Array& array);
Read read_numpy(PyObject* object, const char* name, Array& array);
Read read_cuda_interface(PyObject* object, const char* name, Array& array);
Read read_dlpack(PyObject* object, const char* name, std::intptr_t stream, Array& array);

/// Room for so many dimensions? heed_tensor has four. False: a ValueError is set.
bool check_rank(Py_ssize_t rank, const char* name);
/// A stride told in bytes, as elements of this size. False: a ValueError is set.
bool stride_in_elements(std::int64_t bytes, int item_size, const char* name, std::int64_t& elements);

}  // namespace heed::python
