/// A libcuda.so.1 without a GPU behind it, for the tests of what heed does with the driver's answers. Steered by the
/// environment:
///   FAKE_CUDA_VERSION=12080   what cuDriverGetVersion answers (13000)
///   FAKE_CUDA_INIT=100        what cuInit returns (0)
///   FAKE_CUDA_DEVICES=2       how many GPUs there are (2); GPU i is "Fake GPU i"
///   FAKE_CUDA_SM=75           their compute capability (90)
///   FAKE_CUDA_NO_FUNCTION=1   no module has a function
///   FAKE_CUDA_CAPTURING=1     some stream is being captured, and nobody may wait for all of a GPU's work
///   FAKE_CUDA_TIMINGS=20      there are graphs and events, and what runs takes 1 ms; after 20 timings it is an illegal
///                             address (0: there are none)
///   FAKE_CUDA_BARE=1          it can be asked for no function by version, and exports few
/// As with a real one, whoever is the child of a fork() has not initialised it.
/// Memory from 0x1000000000000 on belongs to GPU 0, from 0x2000000000000 to GPU 1; 0x3... is managed, 0x4... is pinned.
/// What is allocated is host memory that belongs to GPU 0; streams do at once what they are told. Any bytes are a
/// module, whose function computes nothing.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

constexpr int kInvalidValue = 1, kNotInitialised = 3, kInvalidContext = 201, kInvalidHandle = 400, kNotFound = 500,
              kNotSupported = 801, kCaptureUnsupported = 900;

int setting(const char* variable, int otherwise) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? otherwise : std::atoi(value);
}
int device_count() { return setting("FAKE_CUDA_DEVICES", 2); }

thread_local std::vector<void*> contexts;
int retained[16];

int get_count(int* count) {
  *count = device_count();
  return 0;
}
int get_device(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= device_count()) return 101;
  *device = ordinal;
  return 0;
}
int get_name(char* name, int size, int device) {
  std::snprintf(name, static_cast<std::size_t>(size), "Fake GPU %d", device);
  return 0;
}
int get_attribute(int* value, int attribute, int device) {
  static const std::map<int, int> kValues{{13, 1980000},  {16, 132},    {36, 3201000}, {37, 6144},
                                          {38, 60 << 20}, {81, 233472}, {97, 232448}};
  if (attribute == 75 || attribute == 76) {
    const int sm = setting("FAKE_CUDA_SM", 90);
    *value = attribute == 75 ? sm / 10 : sm % 10;
    return 0;
  }
  const auto found = kValues.find(attribute);
  if (found == kValues.end() || device >= device_count()) return kInvalidValue;
  *value = found->second;
  return 0;
}
int total_memory(std::size_t* bytes, int) {
  *bytes = std::size_t{141} << 30;
  return 0;
}
int retain(void** context, int device) {
  ++retained[device];
  *context = &retained[device];
  return 0;
}
int push(void* context) {
  contexts.push_back(context);
  return 0;
}
int pop(void** context) {
  if (contexts.empty()) return kInvalidContext;
  *context = contexts.back();
  contexts.pop_back();
  return 0;
}
int current(void** context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  return 0;
}
void (*before)(const char* function) = nullptr;  // called where a driver may wait for a GPU
void may_wait(const char* function) {
  if (before != nullptr) before(function);
}

std::mutex mutex;  // of everything below

struct Module {  // its address is also its function's
  void* context;
};
std::set<Module*> modules;
int modules_loaded = 0, launches = 0;

int load_module(void** module, const void*, unsigned, int*, void**) {
  if (contexts.empty()) return kInvalidContext;
  may_wait("cuModuleLoadDataEx");
  const std::lock_guard lock(mutex);
  auto* const made = new Module{contexts.back()};
  modules.insert(made);
  ++modules_loaded;
  *module = made;
  return 0;
}
/// Only in the context that it was loaded in.
int unload_module(void* module) {
  if (contexts.empty()) return kInvalidContext;
  const std::lock_guard lock(mutex);
  auto* const old = static_cast<Module*>(module);
  if (!modules.contains(old) || old->context != contexts.back()) return kInvalidHandle;
  modules.erase(old);
  delete old;
  return 0;
}
int get_function(void** function, void* module, const char*) {
  *function = module;
  return setting("FAKE_CUDA_NO_FUNCTION", 0) != 0 ? kNotFound : 0;
}
int set_function_attribute(void*, int, int) { return 0; }
int launch(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
           void**) {
  if (contexts.empty()) return kInvalidContext;
  const std::lock_guard lock(mutex);
  auto* const module = static_cast<Module*>(function);
  if (!modules.contains(module) || module->context != contexts.back()) return kInvalidHandle;
  ++launches;
  return 0;
}

std::map<std::uint64_t, std::size_t> allocated;  // bytes by address
int allocations = 0;

int allocate(std::uint64_t* pointer, std::size_t bytes) {
  if (contexts.empty()) return kInvalidContext;
  may_wait("cuMemAlloc");
  constexpr std::size_t kAlignment = 256;
  *pointer = reinterpret_cast<std::uint64_t>(
      std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment));
  const std::lock_guard lock(mutex);
  allocated[*pointer] = bytes;
  ++allocations;
  return 0;
}
int free_memory(std::uint64_t pointer) {
  const std::lock_guard lock(mutex);
  if (contexts.empty() || allocated.erase(pointer) == 0) return contexts.empty() ? kInvalidContext : kInvalidValue;
  std::free(reinterpret_cast<void*>(pointer));
  return 0;
}
bool is_allocated(std::uint64_t pointer) {
  const std::lock_guard lock(mutex);
  const auto behind = allocated.upper_bound(pointer);
  return behind != allocated.begin() && pointer < std::prev(behind)->first + std::prev(behind)->second;
}
int copy(std::uint64_t to, std::uint64_t from, std::size_t bytes, void*) {
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return 0;
}
int set_bytes(std::uint64_t memory, unsigned char value, std::size_t bytes, void*) {
  std::memset(reinterpret_cast<void*>(memory), value, bytes);
  return 0;
}
int make_stream(void** stream, unsigned) {
  *stream = &allocations;
  return contexts.empty() ? kInvalidContext : 0;
}
int not_capturing(void*, int* status) {
  *status = 0;
  return 0;
}
int exchange_mode(int*) { return 0; }
int synchronize() {
  if (contexts.empty()) return kInvalidContext;
  may_wait("cuCtxSynchronize");
  return setting("FAKE_CUDA_CAPTURING", 0) != 0 ? kCaptureUnsupported : 0;
}
int do_nothing(void*) { return contexts.empty() ? kInvalidContext : 0; }

pid_t initialised_by = 0;

int pointer_attributes(unsigned count, const int* which, void** values, std::uint64_t pointer) {
  if (initialised_by != getpid()) return kNotInitialised;
  const auto place = is_allocated(pointer) ? 1 : pointer >> 48;
  for (unsigned i = 0; i < count; ++i) {
    if (which[i] == 2) *static_cast<unsigned*>(values[i]) = place == 0 ? 0 : place == 4 ? 1 : 2;
    if (which[i] == 8) *static_cast<unsigned*>(values[i]) = place == 3;
    if (which[i] == 9) *static_cast<int*>(values[i]) = place == 1 ? 0 : place == 2 ? 1 : place == 0 ? -2 : 0;
  }
  return 0;
}
int error_name(int result, const char** text) {
  static const std::map<int, const char*> kNames{
      {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {100, "CUDA_ERROR_NO_DEVICE"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}};
  const auto found = kNames.find(result);
  *text = found == kNames.end() ? nullptr : found->second;
  return found == kNames.end() ? kInvalidValue : 0;
}
int error_string(int, const char** text) {
  *text = "in words";
  return 0;
}
int unsupported() { return kNotSupported; }

int succeed() { return 0; }
int make_handle(void** handle) {
  *handle = &allocations;
  return 0;
}
int end_capture(void*, void** graph) { return make_handle(graph); }
int elapsed(float* milliseconds, void*, void*) {
  constexpr int kIllegalAddress = 700;
  static int timings = 0;
  *milliseconds = 1;
  return ++timings > setting("FAKE_CUDA_TIMINGS", 0) ? kIllegalAddress : 0;
}
const std::map<std::string, void*> kTiming{{"cuTensorMapEncodeTiled", reinterpret_cast<void*>(&succeed)},
                                           {"cuStreamBeginCapture", reinterpret_cast<void*>(&succeed)},
                                           {"cuStreamEndCapture", reinterpret_cast<void*>(&end_capture)},
                                           {"cuGraphInstantiateWithFlags", reinterpret_cast<void*>(&make_handle)},
                                           {"cuGraphLaunch", reinterpret_cast<void*>(&succeed)},
                                           {"cuGraphDestroy", reinterpret_cast<void*>(&succeed)},
                                           {"cuGraphExecDestroy", reinterpret_cast<void*>(&succeed)},
                                           {"cuEventCreate", reinterpret_cast<void*>(&make_handle)},
                                           {"cuEventRecord", reinterpret_cast<void*>(&succeed)},
                                           {"cuEventSynchronize", reinterpret_cast<void*>(&succeed)},
                                           {"cuEventElapsedTime", reinterpret_cast<void*>(&elapsed)},
                                           {"cuEventDestroy", reinterpret_cast<void*>(&succeed)}};

}  // namespace

extern "C" {

int cuInit(unsigned) {
  initialised_by = getpid();
  return setting("FAKE_CUDA_INIT", 0);
}
int cuDriverGetVersion(int* version) {
  *version = setting("FAKE_CUDA_VERSION", 13000);
  return 0;
}

int cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t, int*) {
  *function = nullptr;
  if (setting("FAKE_CUDA_BARE", 0) != 0 || version > setting("FAKE_CUDA_VERSION", 13000)) return kNotFound;
  static const std::map<std::string, void*> kFunctions{
      {"cuInit", reinterpret_cast<void*>(&cuInit)},
      {"cuDriverGetVersion", reinterpret_cast<void*>(&cuDriverGetVersion)},
      {"cuDeviceGetCount", reinterpret_cast<void*>(&get_count)},
      {"cuDeviceGet", reinterpret_cast<void*>(&get_device)},
      {"cuDeviceGetName", reinterpret_cast<void*>(&get_name)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(&get_attribute)},
      {"cuDeviceTotalMem", reinterpret_cast<void*>(&total_memory)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(&retain)},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(&push)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(&pop)},
      {"cuCtxGetCurrent", reinterpret_cast<void*>(&current)},
      {"cuCtxSynchronize", reinterpret_cast<void*>(&synchronize)},
      {"cuPointerGetAttributes", reinterpret_cast<void*>(&pointer_attributes)},
      {"cuModuleLoadDataEx", reinterpret_cast<void*>(&load_module)},
      {"cuModuleUnload", reinterpret_cast<void*>(&unload_module)},
      {"cuModuleGetFunction", reinterpret_cast<void*>(&get_function)},
      {"cuFuncSetAttribute", reinterpret_cast<void*>(&set_function_attribute)},
      {"cuLaunchKernel", reinterpret_cast<void*>(&launch)},
      {"cuMemAlloc", reinterpret_cast<void*>(&allocate)},
      {"cuMemFree", reinterpret_cast<void*>(&free_memory)},
      {"cuMemcpyHtoDAsync", reinterpret_cast<void*>(&copy)},
      {"cuMemcpyDtoHAsync", reinterpret_cast<void*>(&copy)},
      {"cuMemsetD8Async", reinterpret_cast<void*>(&set_bytes)},
      {"cuStreamCreate", reinterpret_cast<void*>(&make_stream)},
      {"cuStreamIsCapturing", reinterpret_cast<void*>(&not_capturing)},
      {"cuThreadExchangeStreamCaptureMode", reinterpret_cast<void*>(&exchange_mode)},
      {"cuStreamDestroy", reinterpret_cast<void*>(&do_nothing)},
      {"cuStreamSynchronize", reinterpret_cast<void*>(&do_nothing)},
      {"cuGetErrorName", reinterpret_cast<void*>(&error_name)},
      {"cuGetErrorString", reinterpret_cast<void*>(&error_string)}};
  if (setting("FAKE_CUDA_TIMINGS", 0) != 0 && kTiming.contains(name)) {
    *function = kTiming.at(name);
    return 0;
  }
  const auto found = kFunctions.find(name);
  *function = found == kFunctions.end() ? reinterpret_cast<void*>(&unsupported) : found->second;
  return 0;
}

/// How often the primary context of a GPU was retained.
int fake_cuda_retained(int device) { return retained[device]; }
/// How often memory was allocated, and how many pieces of it there are now.
int fake_cuda_allocations() { return allocations; }
int fake_cuda_allocated() { return static_cast<int>(allocated.size()); }
/// How often a module was loaded, and how many there are now.
int fake_cuda_modules_loaded() { return modules_loaded; }
int fake_cuda_modules() { return static_cast<int>(modules.size()); }
/// Has `call` called before everything that may wait for a GPU, by the thread that would; null: nothing.
void fake_cuda_before(void (*call)(const char* function)) { before = call; }
/// How often a kernel was launched.
int fake_cuda_launches() { return launches; }

}  // extern "C"
