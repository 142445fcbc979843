/// Every kernel of the tables compiles, without a spill, without local memory, without a serialised wgmma. No GPU
/// needed.

#include "cuda/kernel_list.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace heed::cuda {
namespace {

/// Compiles them all on the cores that there are; one sentence for each that does not please.
std::vector<std::string> complaints(const std::vector<ListedKernel>& kernels) {
  Jit jit(JitOptions::from_environment());
  std::mutex mutex;
  std::size_t next = 0;
  std::vector<std::string> list;
  const auto work = [&] {
    while (true) {
      std::size_t mine;
      {
        const std::lock_guard lock(mutex);
        if (next == kernels.size()) return;
        mine = next++;
      }
      const auto& [source, arch] = kernels[mine];
      std::string complaint;
      try {
        const Resources resources = jit.get(source, arch)->resources;
        if (resources.spill_bytes > 0 || resources.local_bytes > 0)
          complaint = "spills " + std::to_string(resources.spill_bytes) + " bytes";
        if (resources.serialized_wgmma) complaint += " has serialised wgmma: " + resources.remarks;
      } catch (const Error& error) {
        complaint = error.what();
      }
      if (complaint.empty()) continue;
      const std::lock_guard lock(mutex);
      list.push_back(source.name + " for " + arch + ": " + complaint);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return list;
}

/// f16 and bf16 take the same registers: one of them will do.
std::vector<ListedKernel> without_f16(std::vector<ListedKernel> list) {
  std::erase_if(list, [](const ListedKernel& kernel) { return kernel.source.name.find("_f16_") != std::string::npos; });
  return list;
}

TEST(KernelResources, hopper_kernels_have_what_they_need) {
  const auto kernels = without_f16(all_kernel_sources("all", 90));
  EXPECT_GT(kernels.size(), 100u);
  for (const std::string& complaint : complaints(kernels)) ADD_FAILURE() << complaint;
}

TEST(KernelResources, portable_kernels_compile_for_every_architecture) {
  for (const int sm : {80, 86, 89, 100, 120}) {
    std::vector<ListedKernel> kernels = without_f16(all_kernel_sources("flash", sm));
    for (const std::string& complaint : complaints(kernels)) ADD_FAILURE() << complaint;
  }
}

}  // namespace
}  // namespace heed::cuda
