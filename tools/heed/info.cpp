/// heed info: this machine, its engines, the versions.

#include "cuda/cache_folder.hpp"
#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/nvrtc.hpp"
#include "cuda/user_lines.hpp"
#include "heed/arguments.hpp"
#include "heed/command.hpp"
#include "heed/engines.hpp"
#include "heed/machine.hpp"
#include "heed/terminal.hpp"
#include "heed/text.hpp"

#include <heed/version.h>

#include <CLI/Version.hpp>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heed::command {
namespace {

nlohmann::ordered_json versions() {
  return {{"heed", HEED_VERSION_STRING},
          {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
          {"nlohmann_json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                                        NLOHMANN_JSON_VERSION_PATCH)},
          {"CLI11", CLI11_VERSION}};
}

/// The cache folder, and how much is in it.
struct Cached {
  std::filesystem::path folder = cuda::default_cache_folder();
  cuda::CacheFolder::Files kernels = cuda::CacheFolder(folder).count();
};

/// Whose measurements kernels are chosen by.
std::string tuning_text() {
  cuda::UserTuning user = cuda::UserTuning::read();
  const std::size_t entries = cuda::UserLines::of(user).size();
  const std::size_t shipped = cuda::shipped_tuning().forward.size() + cuda::shipped_tuning().backward.size();
  if (!user.ignored.empty()) return fmt::format("{} is ignored: {}", user.path.string(), user.ignored);
  if (entries == 0) return fmt::format("{} shipped entries; 'heed sweep' makes your own", shipped);
  return fmt::format("{} entries of {} before {} shipped ones", entries, user.path.string(), shipped);
}

nlohmann::ordered_json cuda_json() {
  nlohmann::ordered_json json;
  const cuda::Driver* const driver = cuda::Driver::get();
  json["driver"] = {{"present", driver != nullptr},
                    {"cuda_version", driver != nullptr ? cuda::version_text(driver->version()) : ""},
                    {"missing", cuda::Driver::missing()}};
  json["gpus"] = nlohmann::json::array();
  for (const cuda::Device& device : cuda::devices())
    json["gpus"].push_back({{"name", device.name},
                            {"sm", device.sm},
                            {"multiprocessors", device.multiprocessors},
                            {"shared_memory_bytes", device.max_shared_memory},
                            {"l2_bytes", device.l2_bytes},
                            {"memory_bytes", device.memory_bytes}});
  const cuda::Nvrtc* const nvrtc = cuda::Nvrtc::get();
  json["nvrtc"] = {{"present", nvrtc != nullptr},
                   {"version", nvrtc != nullptr ? nvrtc->version().to_string() : ""},
                   {"path", nvrtc != nullptr ? nvrtc->path() : ""},
                   {"missing", cuda::Nvrtc::missing()}};
  const Cached cached;
  json["cache"] = {
      {"folder", cached.folder.string()}, {"kernels", cached.kernels.files}, {"bytes", cached.kernels.bytes}};
  json["tuning"] = tuning_text();
  return json;
}

template <class Line>
void print_cuda(const Line& line) {
  const cuda::Driver* const driver = cuda::Driver::get();
  line("driver", driver != nullptr ? "CUDA " + cuda::version_text(driver->version()) : cuda::Driver::missing());
  for (const cuda::Device& device : cuda::devices())
    line(fmt::format("GPU {}", device.ordinal).c_str(),
         fmt::format("{}, sm_{}, {} multiprocessors, {}, L2 {}", device.name, device.sm, device.multiprocessors,
                     bytes_text(static_cast<double>(device.memory_bytes)),
                     bytes_text(static_cast<double>(device.l2_bytes))));
  const cuda::Nvrtc* const nvrtc = cuda::Nvrtc::get();
  line("NVRTC",
       nvrtc != nullptr ? fmt::format("{}, {}", nvrtc->version().to_string(), nvrtc->path()) : cuda::Nvrtc::missing());
  const Cached cached;
  line("cache", cached.folder.empty()
                    ? "none: HEED_CACHE_DIR, XDG_CACHE_HOME and HOME are not set; compiled kernels stay in memory"
                    : fmt::format("{} kernels, {:.1f} MB in {}", cached.kernels.files,
                                  static_cast<double>(cached.kernels.bytes) / 1e6, cached.folder.string()));
  line("tuning", tuning_text());
}

nlohmann::ordered_json info_json(Context& context) {
  nlohmann::ordered_json json{{"version", HEED_VERSION_STRING}, {"machine", to_json(this_machine())}};
  for (const auto& [level, present] : isa_levels()) json["isa_levels"][level] = present;
  json["isa_in_use"] = isa_in_use("");
  for (const EngineState& engine : engines(context))
    json["engines"].push_back({{"engine", engine.name}, {"present", engine.present}, {"text", engine.text}});
  json["cuda"] = cuda_json();
  json["kernels"] = context.kernels().size();
  json["versions"] = versions();
  return json;
}

void print_info(Context& context) {
  const Style style(stdout);
  const Machine machine = this_machine();
  const auto line = [](const char* title, const std::string& text) { fmt::print("  {:<12}{}\n", title, text); };

  fmt::print("{}\n", style.bold("Machine"));
  line("processor", machine.cpu);
  line("caches", fmt::format("L1d {}, L2 {}, L3 {}", bytes_text(static_cast<double>(machine.l1d_bytes)),
                             bytes_text(static_cast<double>(machine.l2_bytes)),
                             bytes_text(static_cast<double>(machine.l3_bytes))));
  line("memory", bytes_text(static_cast<double>(machine.memory_bytes)));
  line("system", machine.system);
  line("threads",
       fmt::format("{}: {} processors, {} in the affinity mask, {}", machine.threads, machine.processors,
                   machine.affinity, machine.quota ? fmt::format("a quota of {}", *machine.quota) : "no cgroup quota"));

  fmt::print("\n{}\n", style.bold("ISA levels of the CPU engine"));
  for (const auto& [level, present] : isa_levels())
    line(level.c_str(), (present ? style.green("yes") : "no") + (level == isa_in_use("") ? "   in use" : ""));

  fmt::print("\n{}\n", style.bold("Engines"));
  for (const EngineState& engine : engines(context))
    line(engine.name.c_str(), (engine.present ? style.green("yes") : "no") + "   " + engine.text);
  std::size_t here = 0;
  const auto kernels = context.kernels();
  for (const KernelInfo& kernel : kernels) here += kernel.lacks.empty();
  line("kernels", fmt::format("{}, of which this machine runs {}", kernels.size(), here));

  fmt::print("\n{}\n", style.bold("CUDA"));
  print_cuda(line);

  fmt::print("\n{}\n", style.bold("Versions"));
  const nlohmann::ordered_json list = versions();
  for (const auto& [library, version] : list.items()) line(library.c_str(), "  " + version.get<std::string>());
  line("compiler", "  " + machine.compiler);
}

}  // namespace

int run_info(const Words& words) {
  Arguments arguments("heed info", "This machine, its ISA levels, the engines and why one is missing, the versions.");
  arguments.group("Output");
  arguments.flag("json", "as JSON");
  arguments.parse(words);
  Context context;
  if (arguments.boolean("json")) {
    fmt::print("{}", json_text(info_json(context)));
  } else {
    print_info(context);
  }
  return kValid;
}

}  // namespace heed::command
