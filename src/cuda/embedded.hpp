#pragma once

#include "cuda/compiler.hpp"

#include <span>

namespace heed::cuda {

/// Every file of src/kernels, as it was when heed was built (cmake/Embed.cmake), by name.
std::span<const SourceFile> embedded_sources();

/// The shipped tuning records: the files of src/cuda/tuning.
std::span<const SourceFile> embedded_tuning();

}  // namespace heed::cuda
