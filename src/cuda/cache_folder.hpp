#pragma once

#include "cuda/cache_entry.hpp"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heed::cuda {

/// HEED_CACHE_DIR, else $XDG_CACHE_HOME/heed, else ~/.cache/heed; empty where none of them is set.
std::filesystem::path default_cache_folder();

/// Compiled kernels on disk, one file each, shared by every process that names the same folder. A folder that is
/// missing, read-only or full is no error: it then holds nothing, or nothing new.
class CacheFolder {
 public:
  /// No folder at all when the path is empty.
  explicit CacheFolder(std::filesystem::path path) : path_(std::move(path)) {}

  const std::filesystem::path& path() const { return path_; }

  /// Nothing when it is not there or not whole.
  std::optional<CacheEntry> load(const EntryKey& key) const;
  /// Of the same source by whatever NVRTC up to `most_major`, the newest of them.
  std::optional<CacheEntry> load_any(const std::string& source, int most_major = kAnyMajor) const;

  /// Writes it completely or not at all. Returns why not; empty when it did.
  std::string store(const CacheEntry& entry);

  /// Held by the one process that compiles an entry, while others wait for it.
  class Lock {
   public:
    Lock() = default;
    Lock(int file, std::filesystem::path path) : file_(file), path_(std::move(path)) {}
    Lock(Lock&& other) noexcept : file_(std::exchange(other.file_, -1)), path_(std::move(other.path_)) {}
    Lock& operator=(Lock&&) = delete;
    ~Lock();

   private:
    int file_ = -1;  ///< -1: the folder cannot be locked, and everybody compiles for themselves
    std::filesystem::path path_;
  };
  Lock lock(const EntryKey& key);

  struct Listed {
    std::filesystem::path file;
    std::uint64_t bytes = 0;
    std::optional<CacheEntry> entry;  ///< without its code; nothing where the file is damaged
  };
  /// Sorted by kernel and architecture.
  std::vector<Listed> list() const;

  struct Files {
    std::size_t files = 0;
    std::uint64_t bytes = 0;
  };
  /// How many list() would list. Opens none of them: to read and check thousands takes seconds.
  Files count() const;
  /// Removes what heed has written there, and nothing else.
  Files clear();

 private:
  std::filesystem::path file_of(const EntryKey& key) const;
  /// Says it once on stderr, with HEED_LOG=1. Returns it.
  std::string warn(const std::string& what);

  std::filesystem::path path_;
  std::atomic<bool> warned_ = false;
};

}  // namespace heed::cuda
