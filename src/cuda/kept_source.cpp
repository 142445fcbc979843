#include "cuda/kept_source.hpp"

#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>

namespace heed::cuda {

std::string keep_source(const Compiler::Input& input, const std::string& log) {
  const char* const folder = std::getenv("HEED_KEEP_SOURCE");
  if (folder == nullptr || *folder == '\0') return {};
  namespace fs = std::filesystem;
  bool written = true;
  const auto write = [&](const std::string& name, std::string_view text) {
    const fs::path path = fs::path(folder) / name;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    std::ofstream file(path, std::ios::binary);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    file.close();
    written = written && file.good();
    return path.string();
  };
  for (const SourceFile& header : input.headers) write(std::string(header.name), header.text);
  write(fmt::format("{}.log", input.name), fmt::format("options: {}\n{}", fmt::join(input.options, " "), log));
  const std::string path = write(fmt::format("{}.cu", input.name), input.text);
  return written ? path : std::string();
}

}  // namespace heed::cuda
