#pragma once

#include <filesystem>
#include <optional>

namespace heed::detail {

/// Processors in the affinity mask of the calling thread; at least 1.
int affinity_cpus();

/// The processor quota of this process's cgroup and of all those around it (v1 and v2): the least of them in
/// processors, rounded up; empty when there is none. A container that may use 1.5 processors sees all 64 of its host in
/// the affinity mask, and a pool of 64 threads in it would spend most of its time throttled.
///
/// `root` is where /proc and /sys are looked for. What cannot be read or understood limits nothing.
std::optional<int> cgroup_cpus(const std::filesystem::path& root = "/");

}  // namespace heed::detail
