#pragma once

#include <string>
#include <string_view>

namespace heed::cuda {

/// Texts of kernels live as long as the process.
std::string_view kept(std::string text);

}  // namespace heed::cuda
