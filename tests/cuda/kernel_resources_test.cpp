/// Every kernel of the tables compiles, without a spill, without local memory, without a serialised wgmma. No GPU
/// needed.

#include "cuda/kernel_list.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
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
      const auto& [source, arch, shared_bytes, kernel] = kernels[mine];
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

/// One of so many kernels is compiled by default, under HEED_TEST_SCALE=small; all are under HEED_TEST_SCALE=full.
struct OneOf {
  std::size_t by_default, small;
};

/// f16 and bf16 take the same registers, so that one of them will do. `first`: where to begin to count.
std::vector<ListedKernel> chosen(std::vector<ListedKernel> list, OneOf one_of, std::size_t first = 0) {
  std::erase_if(list, [](const ListedKernel& kernel) { return kernel.source.name.find("_f16_") != std::string::npos; });
  const char* const variable = std::getenv("HEED_TEST_SCALE");
  const std::string_view scale = variable == nullptr ? "" : variable;
  const std::size_t step = scale == "full" ? 1 : scale == "small" ? one_of.small : one_of.by_default;
  std::vector<ListedKernel> some;
  for (std::size_t i = first % step; i < list.size(); i += step) some.push_back(std::move(list[i]));
  return some;
}

bool is_portable_backward(const ListedKernel& kernel) { return kernel.source.name.starts_with("portable_bwd_"); }

/// Those of the portable family's backward pass, or all others.
std::vector<ListedKernel> listed(std::string_view profile, int sm, bool portable_backward) {
  std::vector<ListedKernel> list = all_kernel_sources(profile, sm);
  std::erase_if(list, [&](const ListedKernel& kernel) { return is_portable_backward(kernel) != portable_backward; });
  return list;
}

constexpr OneOf kForward{.by_default = 3, .small = 30};
/// There are a thousand for each architecture.
constexpr OneOf kBackward{.by_default = 60, .small = 400};

TEST(KernelResources, hopper_kernels_have_what_they_need) {
  const std::vector<ListedKernel> list = listed("all", 90, false);
  EXPECT_GT(list.size(), 200u);
  for (const std::string& complaint : complaints(chosen(list, kForward))) ADD_FAILURE() << complaint;
}

TEST(KernelResources, portable_kernels_compile_for_every_architecture) {
  for (const int sm : {80, 86, 89, 100, 120}) {
    for (const std::string& complaint : complaints(chosen(listed("flash", sm, false), kForward)))
      ADD_FAILURE() << complaint;
  }
}

TEST(KernelResources, portable_backward_kernels_have_what_they_need_on_every_architecture) {
  for (const int sm : {80, 86, 89, 90, 100, 120}) {
    const std::vector<ListedKernel> list = listed("all", sm, true);
    EXPECT_GT(list.size(), 500u) << "sm_" << sm;
    for (const std::string& complaint : complaints(chosen(list, kBackward, static_cast<std::size_t>(sm))))
      ADD_FAILURE() << complaint;
  }
}

}  // namespace
}  // namespace heed::cuda
