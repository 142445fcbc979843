#include "cuda/jit.hpp"

#include "cuda/driver.hpp"
#include "cuda/embedded.hpp"
#include "cuda/nvrtc.hpp"
#include "cuda/source_key.hpp"

#include <heed/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <utility>

namespace heed::cuda {
namespace {

std::vector<std::string> options_for(const std::string& arch) {
  return {"--gpu-architecture=" + arch,
          "-std=c++20",
          "-default-device",       // constexpr functions that host and device share need no marks
          "-lineinfo",             // profilers and compute-sanitizer name lines
          "--ptxas-options=-v",    // the log tells registers and spills
          "--no-source-include"};  // a file in the current folder is never taken for one of ours
}

bool is_ptx(const std::string& arch) { return arch.starts_with("compute_"); }

std::shared_ptr<const CompiledKernel> as_kernel(CacheEntry&& entry) {
  return std::make_shared<const CompiledKernel>(CompiledKernel{std::move(entry.code), std::move(entry.resources)});
}

}  // namespace

JitOptions JitOptions::from_environment() {
  const auto headers = embedded_sources();
  const char* const pack = std::getenv("HEED_KERNEL_PACK");
  return {.cache_folder = default_cache_folder(),
          .pack = pack == nullptr ? "" : pack,
          .headers = {headers.begin(), headers.end()},
          .compiler = &Nvrtc::get,
          .most_nvrtc_major = Driver::get() != nullptr ? Driver::get()->version() / 1000 : kAnyMajor};
}

Jit::Jit(JitOptions options) : options_(std::move(options)), folder_(options_.cache_folder) {}

std::string Jit::source_key(const KernelSource& source, const std::string& arch) const {
  return cuda::source_key(source.text, reached_headers(source.text, options_.headers), options_for(arch));
}

std::shared_ptr<const CompiledKernel> Jit::get(const KernelSource& source, const std::string& arch) {
  const std::string key = source_key(source, arch);
  std::promise<Outcome> promise;
  std::shared_future<Outcome> begun;
  {
    const std::scoped_lock lock(mutex_);
    Work& work = works_[key];
    if (work.outcome.valid() &&
        (work.process == getpid() || work.outcome.wait_for(std::chrono::seconds(0)) == std::future_status::ready)) {
      begun = work.outcome;
    } else {
      work = {promise.get_future().share(), getpid()};
    }
  }
  if (begun.valid()) {
    const Outcome& outcome = begun.get();
    if (outcome.kernel == nullptr) throw Error(outcome.code, outcome.error);
    return outcome.kernel;
  }

  // Those who wait get this one's error; who asks later tries again.
  const auto give_up = [&](ErrorCode code, std::string error) {
    {
      const std::scoped_lock lock(mutex_);
      works_.erase(key);
    }
    promise.set_value({nullptr, code, std::move(error)});
  };
  try {
    Result result = make(source, arch, key);
    promise.set_value({.kernel = result, .error = {}});
    return result;
  } catch (const Error& error) {
    give_up(error.code(), error.what());
    throw;
  } catch (const std::exception& error) {
    give_up(ErrorCode::internal, error.what());
    throw;
  }
}

Jit::Result Jit::make(const KernelSource& source, const std::string& arch, const std::string& key) {
  const Compiler* const compiler = options_.compiler();
  const auto version = compiler ? std::optional(compiler->version()) : std::nullopt;
  if (version)
    if (auto entry = folder_.load({key, *version})) return as_kernel(*std::move(entry));
  if (const KernelPack* there = pack())
    if (auto entry = there->find(key, version, options_.most_nvrtc_major)) return as_kernel(*std::move(entry));
  if (!version) {
    if (auto entry = folder_.load_any(key, options_.most_nvrtc_major)) return as_kernel(*std::move(entry));
    throw Error(
        ErrorCode::unsupported,
        fmt::format(
            "kernel {} for {}: it is neither in the cache folder {} nor in a pack{}, and cannot be compiled: {}",
            source.name, arch, folder_.path().string(),
            options_.pack.empty() ? "" : fmt::format(" ({})", options_.pack.string()), Nvrtc::missing()));
  }

  const EntryKey entry_key{key, *version};
  const CacheFolder::Lock lock = folder_.lock(entry_key);
  if (auto entry = folder_.load(entry_key)) return as_kernel(*std::move(entry));  // by whom we have waited for
  CacheEntry entry = compile(source, arch, entry_key, *compiler);
  ++compiled_;
  folder_.store(entry);
  return as_kernel(std::move(entry));
}

CacheEntry Jit::compile(const KernelSource& source, const std::string& arch, const EntryKey& key,
                        const Compiler& compiler) const {
  const std::vector<SourceFile> headers = reached_headers(source.text, options_.headers);
  const std::vector<std::string> options = options_for(arch);
  Compiler::Output output = compiler.compile(
      {.name = source.name, .text = source.text, .headers = headers, .options = options, .to_ptx = is_ptx(arch)});
  return {.key = key,
          .kernel = source.name,
          .arch = arch,
          .resources = read_resources(output.log),
          .code = std::move(output.code)};
}

const KernelPack* Jit::pack() {
  std::call_once(pack_once_, [this] {
    if (!options_.pack.empty()) pack_ = std::make_unique<const KernelPack>(options_.pack);
  });
  return pack_.get();
}

}  // namespace heed::cuda
