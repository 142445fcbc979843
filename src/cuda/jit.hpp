#pragma once

#include "cuda/cache_folder.hpp"
#include "cuda/compiler.hpp"
#include "cuda/kernel_pack.hpp"
#include "cuda/resources.hpp"
#include "dispatch/fork_safe_mutex.hpp"

#include <heed/error.hpp>

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace heed::cuda {

/// A kernel to compile. Its entry is `extern "C" __global__ void heed_kernel(...)`.
struct KernelSource {
  std::string name;  ///< "forward_hopper_f16_d128_causal": for files, logs and listings
  std::string text;  ///< a translation unit; #include "x.cuh" is resolved among the headers of the Jit
};

inline constexpr const char* kKernelEntry = "heed_kernel";

struct CompiledKernel {
  std::vector<std::byte> cubin;  ///< PTX with its final zero for "compute_80"
  Resources resources;
};

struct JitOptions {
  std::filesystem::path cache_folder;  ///< empty: memory alone
  std::filesystem::path pack;          ///< empty: none
  std::vector<SourceFile> headers;     ///< what an #include may name
  /// Asked when it is first needed; may return null.
  std::function<const Compiler*()> compiler;
  /// Kernels that others have compiled are taken up to this major version of NVRTC: a driver loads none of newer ones.
  int most_nvrtc_major = kAnyMajor;

  /// HEED_CACHE_DIR or its default, HEED_KERNEL_PACK, the embedded sources, NVRTC.
  static JitOptions from_environment();
};

/// Compiled kernels by their source. Where they come from, in this order:
///   1. this object's memory
///   2. the cache folder: the same source by the same version of NVRTC
///   3. the pack: the same source by whatever version
///   4. NVRTC, and the result is put into the cache folder
///   5. without an NVRTC, the cache folder: the same source by whatever version (from 'heed cache import')
/// One kernel is compiled once, by however many threads and processes it is asked for at the same time.
class Jit {
 public:
  explicit Jit(JitOptions options);

  /// `arch` is "sm_90a", "sm_80", ..., or "compute_80" for PTX. Throws Error when the kernel does not compile, or when
  /// it is nowhere and there is no NVRTC.
  std::shared_ptr<const CompiledKernel> get(const KernelSource& source, const std::string& arch);

  /// The hash that an entry is found by: of the text, every header it reaches, the options and the architecture.
  std::string source_key(const KernelSource& source, const std::string& arch) const;

  /// How many kernels this object has compiled, and not found.
  int compiled() const { return compiled_; }

 private:
  using Result = std::shared_ptr<const CompiledKernel>;
  /// A kernel, or why there is none: told as a text, so that everyone who waits throws an error of their own.
  struct Outcome {
    Result kernel;
    ErrorCode code = ErrorCode::internal;
    std::string error;
  };
  struct Work {
    std::shared_future<Outcome> outcome;
    pid_t process;  ///< in the child of a fork nobody goes on with what its parent had begun
  };
  Result make(const KernelSource& source, const std::string& arch, const std::string& key);
  CacheEntry compile(const KernelSource& source, const std::string& arch, const EntryKey& key,
                     const Compiler& compiler) const;
  const KernelPack* pack();

  JitOptions options_;
  CacheFolder folder_;
  std::atomic<int> compiled_ = 0;
  std::once_flag pack_once_;
  std::unique_ptr<const KernelPack> pack_;
  dispatch::ForkSafeMutex mutex_;
  std::map<std::string, Work> works_;  // by source key; guarded by mutex_
};

}  // namespace heed::cuda
