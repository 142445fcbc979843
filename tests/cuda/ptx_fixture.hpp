#pragma once

#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/jit.hpp"
#include "cuda/loaded_kernel.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace heed::cuda {

/// Runs small kernels over the instruction layer of src/kernels. They are compiled wherever there is an NVRTC; where
/// there is no GPU of sm_90, the test then ends as skipped.
class Ptx : public testing::Test {
 protected:
  struct Launch {
    unsigned threads = 32, blocks = 1;
    int shared_bytes = 0;
    std::string attributes = {};  ///< of the kernel: "__cluster_dims__(2, 1, 1)"
  };

  /// Compiles a kernel whose body sees `map` (a TensorMap), `in` and `out` (const u8*, u8*), `shared` (aligned to 1024)
  /// and `thread` (threadIdx.x). `before` stands in front of it.
  void compile(const std::string& name, const std::string& body, const Launch& launch, const std::string& before = "") {
    const std::string text = R"(#include "ptx.cuh"
#include "mma.cuh"
#include "wgmma.cuh"
using namespace heed::kernels;
)" + before + "\nextern \"C\" __global__ void __launch_bounds__(" +
                             std::to_string(launch.threads) + ", 1) " + launch.attributes + R"(
    heed_kernel(const __grid_constant__ TensorMap map, const u8* in, u8* out) {
  extern __shared__ __align__(1024) u8 shared_memory[];
  const u32 shared = shared_address(shared_memory);
  [[maybe_unused]] const u32 thread = threadIdx.x;
)" + body + "\n}\n";
    launch_ = launch;
    static Jit jit(JitOptions::from_environment());
    const auto code = jit.get({"ptx_" + name, text}, "sm_90a");
    kernel_ = std::make_unique<LoadedKernel>("ptx_" + name, code, launch.shared_bytes);
  }
  /// Why the kernel cannot be run here; empty when it can.
  static std::string missing() {
    if (devices().empty()) return "compiled, not run: there is no GPU here";
    if (devices().front().sm != 90) return "compiled, not run: the GPU is not sm_90";
    return "";
  }

  /// `in` in, `out` out: what was in it before is there, too. A map, if given, is made for GPU memory.
  template <class In, class Out>
  void run(const std::vector<In>& in, std::vector<Out>& out, const CUtensorMap& map = {}) {
    const Memory input(in.size() * sizeof(In)), output(out.size() * sizeof(Out));
    input.write(in.data(), in.size() * sizeof(In));
    output.write(out.data(), out.size() * sizeof(Out));
    launch(map, input.address, output.address);
    output.read(out.data(), out.size() * sizeof(Out));
  }
  void launch(const CUtensorMap& map, CUdeviceptr in, CUdeviceptr out) {
    const DeviceGuard guard(0);
    CUtensorMap passed = map;
    void* parameters[] = {&passed, &in, &out};
    kernel_->launch(0, launch_.blocks, launch_.threads, nullptr, parameters);
    check(Driver::get()->cuCtxSynchronize(), "running a kernel of a test");
  }

  /// GPU memory for one test.
  struct Memory {
    explicit Memory(std::size_t bytes) : guard(0) {
      check(Driver::get()->cuMemAlloc(&address, bytes == 0 ? 16 : bytes), "allocating for a test");
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() { Driver::get()->cuMemFree(address); }
    void write(const void* from, std::size_t bytes) const {
      check(Driver::get()->cuMemcpyHtoD(address, from, bytes), "copying for a test");
    }
    void read(void* to, std::size_t bytes) const {
      check(Driver::get()->cuMemcpyDtoH(to, address, bytes), "copying for a test");
    }
    DeviceGuard guard;
    CUdeviceptr address = 0;
  };

 private:
  Launch launch_;
  std::unique_ptr<LoadedKernel> kernel_;
};

#define SKIP_WITHOUT_GPU() \
  if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why

}  // namespace heed::cuda
