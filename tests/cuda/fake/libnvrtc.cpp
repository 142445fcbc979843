/// A libnvrtc that compiles nothing and is as old as FAKE_NVRTC_VERSION=12.6 says.

#include <cstddef>
#include <cstdio>
#include <cstdlib>

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  const char* const text = std::getenv("FAKE_NVRTC_VERSION");
  return text != nullptr && std::sscanf(text, "%d.%d", major, minor) == 2 ? 0 : 1;
}
int nvrtcCreateProgram(void**, const char*, const char*, int, const char* const*, const char* const*) { return 1; }
int nvrtcDestroyProgram(void**) { return 0; }
int nvrtcCompileProgram(void*, int, const char* const*) { return 1; }
int nvrtcGetProgramLogSize(void*, std::size_t*) { return 1; }
int nvrtcGetProgramLog(void*, char*) { return 1; }
int nvrtcGetCUBINSize(void*, std::size_t*) { return 1; }
int nvrtcGetCUBIN(void*, char*) { return 1; }
int nvrtcGetPTXSize(void*, std::size_t*) { return 1; }
int nvrtcGetPTX(void*, char*) { return 1; }
const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_OUT_OF_MEMORY"; }

}  // extern "C"
