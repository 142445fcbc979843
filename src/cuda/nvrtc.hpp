#pragma once

#include "cuda/compiler.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace heed::cuda {

/// NVIDIA's run-time compiler, opened at run time. It needs neither a GPU nor a driver.
class Nvrtc final : public Compiler {
 public:
  /// The first that nvrtc_places() leads to, opened at the first call; null where there is none that heed can use.
  static const Nvrtc* get();
  /// Why there is none, and what to install; empty when there is one.
  static const std::string& missing();

  /// One library by its name or path. Throws Error (unsupported), which says why not.
  static std::unique_ptr<const Nvrtc> open(const std::filesystem::path& library);

  NvrtcVersion version() const override { return version_; }
  /// The file it was loaded from.
  const std::string& path() const { return path_; }

  /// With HEED_KEEP_SOURCE=<folder>, source and log of what is compiled are kept there.
  Output compile(const Input& input) const override;

 private:
  struct Functions;
  Nvrtc() = default;

  std::shared_ptr<const Functions> call_;
  NvrtcVersion version_;
  std::string path_;
};

inline constexpr NvrtcVersion kLeastNvrtc{12, 0};
/// From here on the kernels have their full speed: 12.6 costs 2 percent, 12.3 up to 11.
inline constexpr NvrtcVersion kGoodNvrtc{12, 8};

/// Where to look for a library, in order: files, and bare names for the loader to find.
///   HEED_NVRTC_PATH (nothing else where it is set), the loader's path, CUDA_HOME, CUDA_PATH, /usr/local/cuda, and the
///   nvidia-cuda-nvrtc wheels of the Python in use: VIRTUAL_ENV, the site-packages that libheed.so lies in, python3.
std::vector<std::filesystem::path> nvrtc_places();
/// Where python3 says its wheels are. A process is started, so this comes when nothing else has led to an NVRTC.
std::vector<std::filesystem::path> nvrtc_places_by_python();

}  // namespace heed::cuda
