#include "cuda/nvrtc.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace heed::cuda {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

constexpr std::array kNames{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

std::string_view environment(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

Paths entries(const fs::path& folder) {
  Paths list;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    list.push_back(it->path());
  std::sort(list.rbegin(), list.rend());  // newer versions first
  return list;
}

/// NVRTC in one folder, newer versions first.
void add_folder(Paths& list, const fs::path& folder) {
  std::error_code error;
  for (const char* name : kNames)
    if (fs::exists(folder / name, error)) list.push_back(folder / name);
}

void add_toolkit(Paths& list, const fs::path& root) {
  for (const char* lib : {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"})
    add_folder(list, root / lib);
}

/// site-packages/nvidia/{cuda_nvrtc,cu13,...}/lib
void add_wheels(Paths& list, const fs::path& site_packages) {
  for (const fs::path& package : entries(site_packages / "nvidia")) add_folder(list, package / "lib");
}

/// <prefix>/lib/python3.12/site-packages
void add_prefix(Paths& list, const fs::path& prefix) {
  for (const char* lib : {"lib", "lib64"})
    for (const fs::path& python : entries(prefix / lib))
      if (python.filename().string().starts_with("python3"))
        for (const char* name : {"site-packages", "dist-packages"}) add_wheels(list, python / name);
}

/// Where heed was installed as a Python package, NVRTC is a neighbour.
void add_neighbours(Paths& list) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&add_neighbours), &info) == 0 || info.dli_fname == nullptr) return;
  for (fs::path folder = fs::path(info.dli_fname).parent_path(); folder.has_relative_path();
       folder = folder.parent_path())
    if (folder.filename() == "site-packages" || folder.filename() == "dist-packages") add_wheels(list, folder);
}

/// The prefix of the python3 that a shell would start.
void add_python_on_path(Paths& list) {
  std::string_view rest = environment("PATH");
  while (!rest.empty()) {
    const auto end = std::min(rest.find(':'), rest.size());
    const fs::path folder = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    std::error_code error;
    if (folder.empty() || !fs::exists(folder / "python3", error)) continue;
    add_prefix(list, folder.parent_path());  // a venv: bin/python3 is a link to somewhere else
    const fs::path real = fs::canonical(folder / "python3", error);
    if (!error) add_prefix(list, real.parent_path().parent_path());
    return;
  }
}

}  // namespace

Paths nvrtc_places() {
  Paths list;
  if (const fs::path wish = environment("HEED_NVRTC_PATH"); !wish.empty()) {
    std::error_code error;
    if (!fs::is_directory(wish, error)) return {wish};
    add_folder(list, wish);
    add_toolkit(list, wish);
    if (list.empty()) list.push_back(wish / kNames.front());
    return list;
  }
  list.assign(kNames.begin(), kNames.end());
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const fs::path root = environment(variable); !root.empty()) add_toolkit(list, root);
  add_toolkit(list, "/usr/local/cuda");
  if (const fs::path prefix = environment("VIRTUAL_ENV"); !prefix.empty()) add_prefix(list, prefix);
  add_neighbours(list);
  add_python_on_path(list);
  return list;
}

Paths nvrtc_places_by_python() {
  Paths list;
  if (!environment("HEED_NVRTC_PATH").empty()) return list;
  constexpr const char* kCommand =
      "python3 -c 'import site; print(*site.getsitepackages(), site.getusersitepackages(), sep=chr(10))' "
      "2>/dev/null </dev/null";
  std::FILE* const pipe = popen(kCommand, "r");
  if (pipe == nullptr) return list;
  std::string text;
  std::array<char, 4096> block{};
  while (const std::size_t read = std::fread(block.data(), 1, block.size(), pipe)) text.append(block.data(), read);
  pclose(pipe);
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
    add_wheels(list, text.substr(begin, end - begin));
  return list;
}

}  // namespace heed::cuda
