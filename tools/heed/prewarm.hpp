#pragma once

#include "heed/arguments.hpp"

#include <filesystem>

namespace heed::command {

/// Declares -profile, -sm and -j.
void declare_prewarm(Arguments& arguments);

/// Compiles the kernels of a profile into a cache folder, several at once. Returns an ExitCode.
int prewarm(const std::filesystem::path& folder, const Arguments& arguments);

}  // namespace heed::command
