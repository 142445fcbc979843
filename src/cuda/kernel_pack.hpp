#pragma once

#include "cuda/cache_entry.hpp"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace heed::cuda {

/// Compiled kernels in one file, to be carried to other machines: entries of the cache one after the other, so that
/// `cat` joins two packs.
class KernelPack {
 public:
  /// Reads what is in it, without the code. Throws Error where the file cannot be read or is not a pack.
  explicit KernelPack(std::filesystem::path file);

  const std::filesystem::path& file() const { return file_; }
  std::vector<EntryKey> keys() const;

  /// Of this source by this NVRTC if it is there, else by the newest up to `most_major`. Nothing when the pack has
  /// none; throws Error when it has one that is damaged.
  std::optional<CacheEntry> find(const std::string& source, std::optional<NvrtcVersion> preferred,
                                 int most_major = kAnyMajor) const;
  CacheEntry read(const EntryKey& key) const;

  /// Throws Error where it cannot be written.
  static void write(const std::filesystem::path& file, const std::vector<CacheEntry>& entries);

 private:
  std::filesystem::path file_;
  std::map<EntryKey, std::streamoff> at_;
};

}  // namespace heed::cuda
