#include "heed/prewarm.hpp"

#include "cuda/device.hpp"
#include "cuda/kernel_list.hpp"
#include "cuda/nvrtc.hpp"
#include "dispatch/glob.hpp"
#include "heed/parallel_compile.hpp"

#include <heed/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <set>

namespace heed::command {
namespace {

/// Compute capabilities: "80,90", or those of the GPUs here.
std::set<int> capabilities(const Arguments& arguments) {
  std::set<int> list;
  if (!arguments.given("sm")) {
    for (const cuda::Device& device : cuda::devices()) list.insert(device.sm);
    if (list.empty())
      throw UsageError("prewarm : this machine has no GPU to compile for; name one with -sm, for example -sm=90.");
    return list;
  }
  const std::string& text = arguments.text("sm");
  for (const char *at = text.data(), *const end = at + text.size();;) {
    int number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 80 || number > 999 || (stop != end && *stop != ','))
      bad_value("sm", text, "compute capabilities from 80 on are needed, for example -sm=90 or -sm=80,90.");
    list.insert(number);
    if (stop == end) return list;
    at = stop + 1;
  }
}

}  // namespace

void declare_prewarm(Arguments& arguments) {
  const std::vector<std::string> profiles(cuda::kProfiles.begin(), cuda::kProfiles.end());
  arguments.option("profile", "all", "which kernels: " + fmt::format("{}", fmt::join(profiles, ", ")), profiles);
  arguments.option("sm", "", "for which GPUs, by compute capability: 90 or 80,90; without it for those here");
  arguments.option("j", "0", "how many at once, also written -j8; 0: as many as heed has threads");
}

int prewarm(const std::filesystem::path& folder, const Arguments& arguments) {
  const std::set<int> sms = capabilities(arguments);
  std::error_code unwritable;
  std::filesystem::create_directories(folder, unwritable);
  if (!unwritable && access(folder.c_str(), W_OK | X_OK) != 0) unwritable = {errno, std::generic_category()};
  if (unwritable)
    throw UsageError(fmt::format("prewarm : {} cannot be written: {}; name another folder with -dir.", folder.string(),
                                 unwritable.message()));
  if (cuda::Nvrtc::get() == nullptr) throw UnsupportedError("prewarm : " + cuda::Nvrtc::missing());
  std::vector<cuda::ListedKernel> kernels;
  for (const int sm : sms)
    for (auto& each : cuda::all_kernel_sources(arguments.text("profile"), sm)) kernels.push_back(std::move(each));
  if (const std::string& filter = arguments.text("filter"); !filter.empty()) {
    std::erase_if(kernels, [&](const cuda::ListedKernel& each) {
      return !dispatch::glob_search(filter, each.source.name + " " + each.arch);
    });
    if (kernels.empty())
      throw UsageError(
          fmt::format("-filter={} : no kernel of profile {} matches; their names are like "
                      "hopper_fwd_bf16_d128_128_192x64_causal.",
                      filter, arguments.text("profile")));
  }

  auto options = cuda::JitOptions::from_environment();
  options.cache_folder = folder;
  options.pack.clear();
  cuda::Jit jit(std::move(options));

  const auto begin = std::chrono::steady_clock::now();
  const auto outcomes = compile_all(jit, kernels, static_cast<int>(arguments.integer("j", 0, 1024)), "prewarm");
  std::size_t failures = 0;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (const CompileOutcome& outcome : outcomes) {
    if (outcome.failure.empty()) continue;
    ++failures;
    fmt::print(stderr, "heed: {}\n", outcome.failure);
  }
  fmt::print("prewarm: {} kernel{} of profile {} for sm {} in {:.1f} s: {} compiled, {} were there, {} failed; {}\n",
             kernels.size(), kernels.size() == 1 ? "" : "s", arguments.text("profile"), fmt::join(sms, ", "), seconds,
             jit.compiled(), kernels.size() - static_cast<std::size_t>(jit.compiled()) - failures, failures,
             folder.string());
  return failures == 0 ? kValid : kWrong;
}

}  // namespace heed::command
