#pragma once

#include "cuda/compiler.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed::cuda {

/// The headers that a text reaches by #include "...", also through each other; sorted by name. An #include of what is
/// not there is left to the compiler.
std::vector<SourceFile> reached_headers(std::string_view text, std::span<const SourceFile> headers);

/// SHA-256, as 64 hexadecimal digits, of all that decides what comes out of the compiler, but for its version. Does not
/// depend on the order of the headers.
std::string source_key(std::string_view text, std::span<const SourceFile> reached,
                       std::span<const std::string> options);

}  // namespace heed::cuda
