#include "cuda/nvrtc.hpp"

#include "cuda/driver.hpp"
#include "cuda/kept_source.hpp"

#include <heed/error.hpp>

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace heed::cuda {

namespace fs = std::filesystem;

std::string NvrtcVersion::to_string() const { return fmt::format("{}.{}", major, minor); }

/// The functions of nvrtc.h that heed calls, and its one type.
struct Nvrtc::Functions {
  using Program = struct nvrtcProgram_st*;
  int (*version)(int* major, int* minor);
  int (*create)(Program*, const char* text, const char* name, int headers, const char* const* header_texts,
                const char* const* header_names);
  int (*destroy)(Program*);
  int (*compile)(Program, int options, const char* const* option_texts);
  int (*log_size)(Program, std::size_t*);
  int (*log)(Program, char*);
  int (*cubin_size)(Program, std::size_t*);
  int (*cubin)(Program, char*);
  int (*ptx_size)(Program, std::size_t*);
  int (*ptx)(Program, char*);
  const char* (*error_text)(int);
};

namespace {

constexpr std::size_t kLogShown = 2000;  // characters of a log in an error's text

template <class F>
void resolve(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(library, name));
  if (function == nullptr) throw Error(ErrorCode::unsupported, fmt::format("it has no {}", name));
}

/// libnvrtc opens libnvrtc-builtins by its bare name. Beside a library that the loader's path does not lead to, it must
/// be open already.
void open_builtins(const fs::path& library) {
  std::error_code error;
  for (fs::directory_iterator it(library.parent_path(), error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().starts_with("libnvrtc-builtins.so.")) dlopen(it->path().c_str(), RTLD_NOW);
}

/// A driver loads kernels of its own major version of CUDA and of older ones. Whoever names an NVRTC may have kernels
/// in mind for another machine.
void check_driver(const Nvrtc& nvrtc, bool named) {
  const Driver* const driver = Driver::get();
  if (named || driver == nullptr || nvrtc.version().major <= driver->version() / 1000) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: the driver here has CUDA {}, and loads no kernels of NVRTC {}", nvrtc.path(),
                          version_text(driver->version()), nvrtc.version().to_string()));
}

/// The package to install for the driver that is here.
std::string_view package() {
  const Driver* const driver = Driver::get();
  return driver != nullptr && driver->version() < 13000 ? "nvidia-cuda-nvrtc-cu12" : "nvidia-cuda-nvrtc";
}

struct Search {
  std::unique_ptr<const Nvrtc> found;
  std::string missing;

  Search() {
    std::string tried;
    const char* const wish = std::getenv("HEED_NVRTC_PATH");
    named = wish != nullptr && *wish != '\0';
    if (try_all(nvrtc_places(), tried) || try_all(nvrtc_places_by_python(), tried)) {
      if (found->version() < kGoodNvrtc)
        fmt::print(stderr,
                   "heed: NVRTC {} ({}) makes kernels that are 2 to 11 percent slower than those of {} and newer; "
                   "'pip install {}' has the newest.\n",
                   found->version().to_string(), found->path(), kGoodNvrtc.to_string(), package());
      return;
    }
    missing = fmt::format(
        "no NVRTC {} or newer {}. 'pip install {}' installs one, as does any CUDA toolkit; HEED_NVRTC_PATH names its "
        "file or folder.{}",
        kLeastNvrtc.to_string(),
        named ? "where HEED_NVRTC_PATH points to"
              : "on the loader's path, in CUDA_HOME, CUDA_PATH, /usr/local/cuda or the wheels of the Python in use",
        package(), tried.empty() ? "" : " Tried: " + tried);
  }

  bool try_all(const std::vector<fs::path>& places, std::string& tried) {
    for (const fs::path& place : places) {
      try {
        auto opened = Nvrtc::open(place);
        check_driver(*opened, named);
        found = std::move(opened);
        return true;
      } catch (const Error& error) {
        const std::string_view why = error.what();
        // That the loader does not know a bare name is no news.
        if (!place.has_parent_path() && why.ends_with("No such file or directory")) continue;
        if (tried.find(why) == tried.npos) tried += fmt::format("{}{}", tried.empty() ? "" : "; ", why);
      }
    }
    return false;
  }

  bool named = false;  // by HEED_NVRTC_PATH
};

const Search& search() {
  static const Search* const instance = new Search;
  return *instance;
}

}  // namespace

const Nvrtc* Nvrtc::get() { return search().found.get(); }

const std::string& Nvrtc::missing() { return search().missing; }

std::unique_ptr<const Nvrtc> Nvrtc::open(const fs::path& library) {
  if (library.has_parent_path()) open_builtins(library);
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw Error(ErrorCode::unsupported, dlerror());
  const auto functions = std::make_shared<Functions>();
  try {
    resolve(handle, "nvrtcVersion", functions->version);
    resolve(handle, "nvrtcCreateProgram", functions->create);
    resolve(handle, "nvrtcDestroyProgram", functions->destroy);
    resolve(handle, "nvrtcCompileProgram", functions->compile);
    resolve(handle, "nvrtcGetProgramLogSize", functions->log_size);
    resolve(handle, "nvrtcGetProgramLog", functions->log);
    resolve(handle, "nvrtcGetCUBINSize", functions->cubin_size);
    resolve(handle, "nvrtcGetCUBIN", functions->cubin);
    resolve(handle, "nvrtcGetPTXSize", functions->ptx_size);
    resolve(handle, "nvrtcGetPTX", functions->ptx);
    resolve(handle, "nvrtcGetErrorString", functions->error_text);
    NvrtcVersion version;
    if (functions->version(&version.major, &version.minor) != 0 || version < kLeastNvrtc)
      throw Error(ErrorCode::unsupported, fmt::format("its version is {}, heed needs {} or newer", version.to_string(),
                                                      kLeastNvrtc.to_string()));
    Dl_info info{};
    dladdr(reinterpret_cast<const void*>(functions->version), &info);
    std::unique_ptr<Nvrtc> nvrtc(new Nvrtc);
    nvrtc->call_ = functions;
    nvrtc->version_ = version;
    nvrtc->path_ = info.dli_fname != nullptr ? info.dli_fname : library.string();
    return nvrtc;
  } catch (const Error& error) {
    dlclose(handle);
    throw Error(ErrorCode::unsupported, fmt::format("{}: {}", library.string(), error.what()));
  }
}

Compiler::Output Nvrtc::compile(const Input& input) const {
  const std::string text(input.text), name = fmt::format("{}.cu", input.name);
  std::vector<std::string> strings;
  std::vector<const char*> header_texts, header_names, options;
  strings.reserve(2 * input.headers.size());  // the pointers must stay
  for (const SourceFile& header : input.headers) {
    header_texts.push_back(strings.emplace_back(header.text).c_str());
    header_names.push_back(strings.emplace_back(header.name).c_str());
  }
  for (const std::string& option : input.options) options.push_back(option.c_str());

  const auto check = [&](int result, const char* doing) {
    if (result == 0) return;
    constexpr int kNvrtcOutOfMemory = 1;
    throw Error(result == kNvrtcOutOfMemory ? ErrorCode::out_of_memory : ErrorCode::internal,
                fmt::format("kernel {}: NVRTC {} fails in {}: {}.", input.name, version_.to_string(), doing,
                            call_->error_text(result)));
  };
  Functions::Program program = nullptr;
  check(call_->create(&program, text.c_str(), name.c_str(), static_cast<int>(input.headers.size()), header_texts.data(),
                      header_names.data()),
        "nvrtcCreateProgram");
  const auto destroy = [this](Functions::Program owned) { call_->destroy(&owned); };
  const std::unique_ptr<std::remove_pointer_t<Functions::Program>, decltype(destroy)> owner(program, destroy);

  const int result = call_->compile(program, static_cast<int>(options.size()), options.data());
  Output output;
  std::size_t bytes = 0;
  check(call_->log_size(program, &bytes), "nvrtcGetProgramLogSize");
  output.log.resize(bytes);
  check(call_->log(program, output.log.data()), "nvrtcGetProgramLog");
  while (!output.log.empty() && output.log.back() == '\0') output.log.pop_back();

  const std::string kept = keep_source(input, output.log);
  if (result != 0) {
    const std::size_t end = output.log.find_last_not_of('\n') + 1;
    std::string shown = output.log.substr(0, std::min(end, kLogShown));
    if (shown.size() < end) shown += fmt::format("\n... ({} characters more)", end - shown.size());
    throw Error(
        ErrorCode::internal,
        fmt::format("kernel {}: NVRTC {} cannot compile it ({}; {}).\n{}\n{}", input.name, version_.to_string(),
                    call_->error_text(result), fmt::join(input.options, " "), shown,
                    kept.empty() ? "HEED_KEEP_SOURCE=<folder> keeps its source." : "Its source is " + kept + "."));
  }

  check((input.to_ptx ? call_->ptx_size : call_->cubin_size)(program, &bytes), "asking for the size of the code");
  output.code.resize(bytes);
  check((input.to_ptx ? call_->ptx : call_->cubin)(program, reinterpret_cast<char*>(output.code.data())),
        "fetching the code");
  return output;
}

}  // namespace heed::cuda
