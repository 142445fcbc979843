#include "core/cpu_quota.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace heed::detail {
namespace {

namespace fs = std::filesystem;

enum class Version { v1, v2 };

/// One line of /proc/self/mountinfo that can hold processor quotas.
struct Mount {
  Version version;
  std::string root;   // the cgroup that is visible at `point`
  std::string point;  // where, as seen from inside `root` of the search
};

/// The cgroup of this process in each hierarchy, from /proc/self/cgroup.
struct Membership {
  std::optional<std::string> v1;
  std::optional<std::string> v2;
};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream{std::string(text)};
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool lists_cpu_controller(std::string_view comma_separated) {
  const auto names = split(comma_separated, ',');
  return std::find(names.begin(), names.end(), "cpu") != names.end();
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string> words_of(const fs::path& file) {
  std::ifstream stream(file);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// The kernel writes a space, tab, newline or backslash in a mount's path as a backslash and three octal digits.
std::string unescape(std::string_view text) {
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && octal(text[i + 1]) && octal(text[i + 2]) && octal(text[i + 3])) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

Membership membership(const fs::path& root) {
  Membership found;
  std::ifstream stream(root / "proc/self/cgroup");
  // hierarchy:controllers:path, where v2 is hierarchy 0 and names no controllers; the path may contain colons.
  for (std::string line; std::getline(stream, line);) {
    const auto first = line.find(':');
    if (first == std::string::npos) continue;
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) {
      found.v2 = line.substr(second + 1);
    } else if (lists_cpu_controller(controllers)) {
      found.v1 = line.substr(second + 1);
    }
  }
  return found;
}

std::vector<Mount> mounts(const fs::path& root) {
  std::vector<Mount> found;
  std::ifstream stream(root / "proc/self/mountinfo");
  // id parent device root point options [optional fields] - type source super-options
  for (std::string line; std::getline(stream, line);) {
    const auto separator = line.find(" - ");
    if (separator == std::string::npos) continue;
    const auto left = split(std::string_view(line).substr(0, separator), ' ');
    const auto right = split(std::string_view(line).substr(separator + 3), ' ');
    if (left.size() < 5 || right.empty()) continue;
    if (right[0] == "cgroup2") {
      found.push_back({Version::v2, unescape(left[3]), unescape(left[4])});
    } else if (right[0] == "cgroup" && right.size() >= 3 && lists_cpu_controller(right[2])) {
      found.push_back({Version::v1, unescape(left[3]), unescape(left[4])});
    }
  }
  return found;
}

/// What one directory grants, in processors.
std::optional<int> quota_in(const fs::path& directory, Version version) {
  std::vector<std::string> words;  // quota and period, both in microseconds; no limit: "max" (v2), "-1" (v1)
  if (version == Version::v2) {
    words = words_of(directory / "cpu.max");
  } else {
    words = words_of(directory / "cpu.cfs_quota_us");
    for (auto& word : words_of(directory / "cpu.cfs_period_us")) words.push_back(std::move(word));
  }
  if (words.size() != 2) return std::nullopt;
  const auto quota = whole_number(words[0]);
  const auto period = whole_number(words[1]);
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  const std::int64_t cpus = *quota / *period + (*quota % *period != 0 ? 1 : 0);
  return static_cast<int>(std::min<std::int64_t>(cpus, std::numeric_limits<int>::max()));
}

/// The directories from the process's own cgroup up to the mount point, as paths below the latter. A container usually
/// sees only its own part of the tree: then the process's path starts with the mount's root, or has nothing to do with
/// it, and the mount point itself is the closest we can get.
std::vector<fs::path> levels(const Mount& mount, const std::string& cgroup) {
  const fs::path below = fs::path(cgroup).lexically_relative(mount.root);
  std::vector<fs::path> found{fs::path()};
  if (below.empty() || *below.begin() == "." || *below.begin() == "..") return found;
  for (const auto& name : below) {
    if (name == "..") return {fs::path()};
    found.push_back(found.back() / name);
  }
  return found;
}

}  // namespace

int affinity_cpus() {
  // The kernel refuses a mask smaller than its own, whose size it does not tell.
  for (std::size_t cpus = 1024; cpus <= (std::size_t{1} << 20); cpus *= 2) {
    cpu_set_t* const mask = CPU_ALLOC(cpus);
    if (mask == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    const bool known = sched_getaffinity(0, bytes, mask) == 0;
    const bool too_small = !known && errno == EINVAL;
    const int count = known ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (known) return std::max(count, 1);
    if (!too_small) break;
  }
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

std::optional<int> cgroup_cpus(const fs::path& root) {
  const Membership self = membership(root);
  std::optional<int> least;
  for (const Mount& mount : mounts(root)) {
    const auto& cgroup = mount.version == Version::v2 ? self.v2 : self.v1;
    if (!cgroup) continue;
    for (const fs::path& level : levels(mount, *cgroup)) {
      const auto quota = quota_in(root / fs::path(mount.point).relative_path() / level, mount.version);
      if (quota) least = std::min(*quota, least.value_or(*quota));
    }
  }
  return least;
}

}  // namespace heed::detail
