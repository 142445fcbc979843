/// A libnvrtc that is as old as FAKE_NVRTC_VERSION=12.6 says. It compiles nothing, or with FAKE_NVRTC_COMPILES=1
/// whatever it is given, to a byte that is no code.

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace {

int done() {
  const char* const text = std::getenv("FAKE_NVRTC_COMPILES");
  return text != nullptr && std::atoi(text) != 0 ? 0 : 1;
}
int one_byte(std::size_t* bytes) {
  *bytes = 1;
  return done();
}
int give(char* byte) {
  *byte = '\0';
  return done();
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  const char* const text = std::getenv("FAKE_NVRTC_VERSION");
  return text != nullptr && std::sscanf(text, "%d.%d", major, minor) == 2 ? 0 : 1;
}
int nvrtcCreateProgram(void** program, const char*, const char*, int, const char* const*, const char* const*) {
  *program = nullptr;
  return done();
}
int nvrtcDestroyProgram(void**) { return 0; }
int nvrtcCompileProgram(void*, int, const char* const*) { return done(); }
int nvrtcGetProgramLogSize(void*, std::size_t* bytes) { return one_byte(bytes); }
int nvrtcGetProgramLog(void*, char* log) { return give(log); }
int nvrtcGetCUBINSize(void*, std::size_t* bytes) { return one_byte(bytes); }
int nvrtcGetCUBIN(void*, char* code) { return give(code); }
int nvrtcGetPTXSize(void*, std::size_t* bytes) { return one_byte(bytes); }
int nvrtcGetPTX(void*, char* code) { return give(code); }
const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_OUT_OF_MEMORY"; }

}  // extern "C"
