#include "cuda/driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

namespace heed::cuda {
namespace {

constexpr int kLeastVersion = 12000;  // tensor maps; the first driver that has them is 525

/// cuGetProcAddress as of CUDA 12.0.
using GetProcAddress = CUresult (*)(const char* name, void** function, int version, std::uint64_t flags, int* status);

void* entry_point(void* library, GetProcAddress ask, const char* name, int version, const char* symbol) {
  void* function = nullptr;
  if (ask != nullptr && ask(name, &function, version, 0, nullptr) == kSuccess && function != nullptr) return function;
  return dlsym(library, symbol);
}

std::string name_of(const Driver* driver, CUresult result) {
  const char* text = nullptr;
  if (driver == nullptr || driver->cuGetErrorName == nullptr || driver->cuGetErrorName(result, &text) != kSuccess ||
      text == nullptr)
    return fmt::format("CUDA error {}", result);
  std::string name = text;
  if (driver->cuGetErrorString(result, &text) == kSuccess && text != nullptr) name += fmt::format(" ({})", text);
  return name;
}

}  // namespace

struct Driver::Opened {
  Driver driver;
  std::string missing = driver.open();
};

const Driver::Opened& Driver::opened() {
  // Never destroyed: kernels may be unloaded by destructors that run later than this one would.
  static const Opened* const instance = new Opened;
  return *instance;
}

const Driver* Driver::get() { return opened().missing.empty() ? &opened().driver : nullptr; }

const std::string& Driver::missing() { return opened().missing; }

const Driver* Driver::library() { return opened().driver.cuDriverGetVersion != nullptr ? &opened().driver : nullptr; }

std::string Driver::open() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return "no NVIDIA driver: libcuda.so.1 was not found. Install NVIDIA's driver, 525 or newer; in a container, start "
           "it with its GPUs (docker run --gpus=all).";

  const auto ask = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  const char* lost = nullptr;
#define HEED_CUDA_RESOLVE(name, version, symbol, parameters)                                  \
  name = reinterpret_cast<decltype(name)>(entry_point(library, ask, #name, version, symbol)); \
  if (name == nullptr && lost == nullptr) lost = symbol;
  HEED_CUDA_ENTRIES(HEED_CUDA_RESOLVE)
#undef HEED_CUDA_RESOLVE

  if (cuDriverGetVersion != nullptr) cuDriverGetVersion(&version_);
  const auto update = [&] {
    return fmt::format("heed needs {}: install NVIDIA's driver 525 or newer.", version_text(kLeastVersion));
  };
  if (version_ > 0 && version_ < kLeastVersion)
    return fmt::format("the NVIDIA driver is too old: it has CUDA {}, {}", version_text(version_), update());
  if (lost != nullptr) return fmt::format("the NVIDIA driver is too old: libcuda.so.1 has no {}, {}", lost, update());

  const CUresult result = cuInit(0);
  if (result == kSuccess) return {};
  std::string text = fmt::format("the NVIDIA driver does not start: {}.", name_of(this, result));
  if (result == kStubLibrary)
    text += " This libcuda.so.1 is the toolkit's stub for linking: take its folder out of LD_LIBRARY_PATH.";
  if (result == kNoDevice)
    text += " There is no GPU, or CUDA_VISIBLE_DEVICES hides it, or the container was started without (--gpus=all).";
  if (result == kSystemDriverMismatch)
    text += " Its library and its kernel module are of different versions: restart the machine after an update.";
  return text;
}

std::string version_text(int cuda_version) {
  return fmt::format("{}.{}", cuda_version / 1000, cuda_version % 1000 / 10);
}

bool is_sticky(CUresult result) {
  switch (result) {
    case kEccUncorrectable:
    case kNvlinkUncorrectable:
    case kContained:
    case kIllegalAddress:
    case kLaunchTimeout:
    case kAssert:
    case kHardwareStackError:
    case kIllegalInstruction:
    case kMisalignedAddress:
    case kInvalidAddressSpace:
    case kInvalidPc:
    case kLaunchFailed:
    case kTensorMemoryLeak:
      return true;
    default:
      return false;
  }
}

Error error_of(CUresult result, std::string_view doing) {
  const std::string text = fmt::format("{}: {}.", doing, name_of(Driver::get(), result));
  if (is_sticky(result))
    return {ErrorCode::device_failed,
            text +
                " Work that was started earlier on this GPU, by heed or by anything else in this process, has failed, "
                "and from now on every call will: restart the process. compute-sanitizer finds the kernel."};
  switch (result) {
    case kOutOfMemory:
      return {ErrorCode::out_of_memory, text};
    case kNotInitialized:
    case kDeinitialized:
      return {ErrorCode::device_failed,
              text +
                  " CUDA works neither in the child of a fork() after its first use, nor while the process ends: "
                  "start workers before the first use, or by spawn."};
    case kInvalidImage:
    case kNoBinaryForGpu:
    case kInvalidPtx:
    case kUnsupportedPtxVersion:
      return {ErrorCode::unsupported,
              text +
                  " The kernel was compiled for another GPU, or by an NVRTC newer than the driver: update the driver, "
                  "or name an older NVRTC in HEED_NVRTC_PATH."};
    default:
      return {ErrorCode::device_failed, text};
  }
}

}  // namespace heed::cuda
