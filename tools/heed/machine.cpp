#include "heed/machine.hpp"

#include "core/cpu_quota.hpp"
#include "cpu/isa.hpp"
#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/nvrtc.hpp"

#include <heed/executor.hpp>

#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sys/utsname.h>
#include <unistd.h>

namespace heed::command {
namespace {

/// The value of the first "key<separator>value" line; blanks around it removed.
std::string find_line(const char* path, std::string_view key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t at = line.find(separator);
    if (at == line.npos || line.substr(0, at).find_last_not_of(" \t") + 1 != key.size()) continue;
    if (line.compare(0, key.size(), key) != 0) continue;
    const std::size_t begin = line.find_first_not_of(" \t\"", at + 1);
    if (begin == line.npos) return {};
    return line.substr(begin, line.find_last_not_of(" \t\"") + 1 - begin);
  }
  return {};
}

std::string system_text() {
  utsname names{};
  if (uname(&names) != 0) return "unknown";
  const std::string distribution = find_line("/etc/os-release", "PRETTY_NAME", '=');
  return fmt::format("{} {} {}{}{}", names.sysname, names.release, names.machine, distribution.empty() ? "" : ", ",
                     distribution);
}

std::string compiler_text() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#elif defined(__GNUC__)
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#else
  return "unknown compiler";
#endif
}

nlohmann::ordered_json or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

std::int64_t cache_bytes(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    int found = 0;
    std::string type, unit;
    std::int64_t size = 0;
    std::ifstream(folder + "level") >> found;
    std::ifstream(folder + "type") >> type;
    if (found != level || type == "Instruction") continue;
    std::ifstream(folder + "size") >> size >> unit;
    return size * (unit == "M" ? 1 << 20 : 1 << 10);
  }
  return 0;
}

}  // namespace

std::string bytes_text(double bytes) {
  if (bytes <= 0) return "?";
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(units)) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, bytes == static_cast<double>(static_cast<std::int64_t>(bytes)) ? 0 : 1,
                     units[unit]);
}

Machine this_machine() {
  Machine machine;
  machine.cpu = cpu::machine().model;
  machine.system = system_text();
  machine.compiler = compiler_text();
  machine.processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  machine.affinity = detail::affinity_cpus();
  machine.quota = detail::cgroup_cpus();
  machine.threads = usable_threads();
  machine.l1d_bytes = cache_bytes(1);
  machine.l2_bytes = cache_bytes(2);
  machine.l3_bytes = cache_bytes(3);
  machine.memory_bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  if (const cuda::Driver* const driver = cuda::Driver::get()) machine.driver = cuda::version_text(driver->version());
  if (cuda::devices().empty()) return machine;
  machine.gpu = cuda::devices().front().name;
  if (const cuda::Nvrtc* const nvrtc = cuda::Nvrtc::get()) machine.nvrtc = nvrtc->version().to_string();
  return machine;
}

double free_memory() {
  std::ifstream file("/proc/meminfo");
  double kib = 0;
  for (std::string key, unit; file >> key >> kib && std::getline(file, unit);)
    if (key == "MemAvailable:") return kib * 1024;
  return std::numeric_limits<double>::infinity();
}

double load_average() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

nlohmann::ordered_json to_json(const Machine& machine) {
  return {{"cpu", machine.cpu},
          {"processors", machine.processors},
          {"affinity", machine.affinity},
          {"quota", machine.quota ? nlohmann::ordered_json(*machine.quota) : nlohmann::ordered_json(nullptr)},
          {"threads", machine.threads},
          {"l1d_bytes", machine.l1d_bytes},
          {"l2_bytes", machine.l2_bytes},
          {"l3_bytes", machine.l3_bytes},
          {"memory_bytes", machine.memory_bytes},
          {"gpu", or_null(machine.gpu)},
          {"driver", or_null(machine.driver)},
          {"nvrtc", or_null(machine.nvrtc)},
          {"system", machine.system},
          {"compiler", machine.compiler}};
}

}  // namespace heed::command
