#pragma once

#include "cuda/compiler.hpp"

#include <string>

namespace heed::cuda {

/// With HEED_KEEP_SOURCE=<folder>: writes <kernel>.cu, its headers and <kernel>.log there and returns the path of the
/// first. Else, or where that cannot be done, nothing.
std::string keep_source(const Compiler::Input& input, const std::string& log);

}  // namespace heed::cuda
