#include "cuda/cache_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <tuple>

namespace heed::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEntrySuffix = ".kernel", kLockSuffix = ".lock", kTempSuffix = ".tmp";
constexpr std::size_t kSourceDigits = 64, kTempLetters = 6;  // of the SHA-256 that names a source; of mkostemps

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter_or_digit(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Removes what is at the front as long as `fits`; how much that was.
template <class Fits>
std::size_t skip(std::string_view& text, Fits fits) {
  const auto count = static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), fits) - text.begin());
  text.remove_prefix(count);
  return count;
}
bool skip_word(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

/// What stands behind "<64 hex digits>-<major>.<minor>.kernel"; nothing where that is not the name's beginning.
std::optional<std::string_view> behind_entry(std::string_view name) {
  const auto is_hex = [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); };
  if (skip(name, is_hex) != kSourceDigits || !skip_word(name, "-") || skip(name, is_digit) == 0 ||
      !skip_word(name, ".") || skip(name, is_digit) == 0 || !skip_word(name, kEntrySuffix))
    return std::nullopt;
  return name;
}

bool is_entry(const fs::path& file) { return behind_entry(file.filename().native()) == ""; }

/// An entry, a lock, or what a process that was killed left of writing one: nothing that others have put there.
bool is_heeds(const fs::path& file) {
  const std::string name = file.filename();
  const auto behind = behind_entry(name);
  if (!behind) return false;
  if (behind->empty() || *behind == kLockSuffix) return true;
  std::string_view rest = *behind;
  return skip_word(rest, ".") && skip(rest, is_letter_or_digit) == kTempLetters && rest == kTempSuffix;
}

/// A process that was stopped in the middle of a compilation must not stop all others with it.
constexpr auto kLongestWait = std::chrono::seconds(120);

std::string_view environment(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    files.push_back(it->path());
  return files;
}

/// The whole file is one entry.
std::optional<CacheEntry> read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  auto entry = read_entry(stream);
  if (!entry || stream.peek() != std::ifstream::traits_type::eof()) return std::nullopt;
  return entry;
}

/// Writes everything and makes it last; 0, or what went wrong.
int write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return fsync(file) == 0 ? 0 : errno;
}

}  // namespace

fs::path default_cache_folder() {
  if (const fs::path folder = environment("HEED_CACHE_DIR"); !folder.empty()) return folder;
  // The XDG standard says that a relative path is to be ignored.
  if (const fs::path folder = environment("XDG_CACHE_HOME"); folder.is_absolute()) return folder / "heed";
  if (const fs::path home = environment("HOME"); home.is_absolute()) return home / ".cache" / "heed";
  return {};
}

fs::path CacheFolder::file_of(const EntryKey& key) const {
  return path_ / fmt::format("{}-{}{}", key.source, key.nvrtc.to_string(), kEntrySuffix);
}

std::optional<CacheEntry> CacheFolder::load(const EntryKey& key) const {
  if (path_.empty()) return std::nullopt;
  auto entry = read_file(file_of(key));
  if (!entry || entry->key != key) return std::nullopt;
  return entry;
}

std::optional<CacheEntry> CacheFolder::load_any(const std::string& source, int most_major) const {
  std::optional<CacheEntry> best;
  for (const fs::path& file : files_in(path_)) {
    const std::string name = file.filename();
    if (!name.starts_with(source) || !name.ends_with(kEntrySuffix)) continue;
    auto entry = read_file(file);
    if (!entry || entry->key.source != source || entry->key.nvrtc.major > most_major) continue;
    if (!best || best->key.nvrtc < entry->key.nvrtc) best = std::move(entry);
  }
  return best;
}

std::string CacheFolder::store(const CacheEntry& entry) {
  if (path_.empty()) return "there is no cache folder";
  std::error_code error;
  fs::create_directories(path_, error);
  const fs::path file = file_of(entry.key);
  std::string temp = file.string() + ".XXXXXX" + std::string(kTempSuffix);
  const int descriptor = mkostemps(temp.data(), static_cast<int>(kTempSuffix.size()), O_CLOEXEC);
  if (descriptor < 0) return warn(std::strerror(errno));
  int failed = write_all(descriptor, to_bytes(entry));
  fchmod(descriptor, 0644);
  if (close(descriptor) != 0 && failed == 0) failed = errno;
  if (failed == 0 && std::rename(temp.c_str(), file.c_str()) != 0) failed = errno;
  if (failed == 0) return {};
  unlink(temp.c_str());
  return warn(std::strerror(failed));
}

std::string CacheFolder::warn(const std::string& what) {
  if (const auto log = environment("HEED_LOG"); !log.empty() && log != "0" && !warned_.exchange(true))
    fmt::print(stderr, "heed: kernel cache {}: {}; compiled kernels stay in memory\n", path_.string(), what);
  return what;
}

CacheFolder::Lock CacheFolder::lock(const EntryKey& key) {
  if (path_.empty()) return {};
  std::error_code error;
  fs::create_directories(path_, error);
  fs::path path = file_of(key);
  path += kLockSuffix;
  const auto give_up = std::chrono::steady_clock::now() + kLongestWait;
  auto pause = std::chrono::milliseconds(1);
  for (;;) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) {
      warn(std::strerror(errno));
      return {};
    }
    const bool locked = flock(file, LOCK_EX | LOCK_NB) == 0;
    const bool busy = !locked && (errno == EWOULDBLOCK || errno == EINTR);
    // Whoever held it before may have removed the file: then this lock is on a file that nobody else will open.
    struct stat mine {
    }, there{};
    if (locked && fstat(file, &mine) == 0 && stat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
        mine.st_dev == there.st_dev)
      return {file, std::move(path)};
    close(file);
    if (locked) continue;
    if (!busy || std::chrono::steady_clock::now() > give_up) return {};
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(50));
  }
}

CacheFolder::Lock::~Lock() {
  if (file_ < 0) return;
  unlink(path_.c_str());
  // By name and not by closing alone: a child that was forked meanwhile has the file open, too.
  flock(file_, LOCK_UN);
  close(file_);
}

std::vector<CacheFolder::Listed> CacheFolder::list() const {
  std::vector<Listed> list;
  for (const fs::path& file : files_in(path_)) {
    if (!is_entry(file)) continue;
    std::error_code error;
    Listed listed{.file = file, .bytes = fs::file_size(file, error), .entry = read_file(file)};
    if (error) continue;  // another process has just removed it
    if (listed.entry) listed.entry->code.clear();
    list.push_back(std::move(listed));
  }
  const auto order = [](const Listed& x) {
    return std::tuple(!x.entry, x.entry ? x.entry->kernel : "", x.entry ? x.entry->arch : "", x.file);
  };
  std::sort(list.begin(), list.end(), [&](const Listed& x, const Listed& y) { return order(x) < order(y); });
  return list;
}

CacheFolder::Files CacheFolder::count() const {
  Files counted;
  for (const fs::path& file : files_in(path_)) {
    if (!is_entry(file)) continue;
    std::error_code error;
    const std::uint64_t bytes = fs::file_size(file, error);
    if (error) continue;  // another process has just removed it
    ++counted.files;
    counted.bytes += bytes;
  }
  return counted;
}

CacheFolder::Files CacheFolder::clear() {
  Files cleared;
  for (const fs::path& file : files_in(path_)) {
    if (!is_heeds(file)) continue;
    std::error_code error;
    const std::uint64_t bytes = fs::file_size(file, error);
    if (error || !fs::remove(file, error)) continue;
    ++cleared.files;
    cleared.bytes += bytes;
  }
  return cleared;
}

}  // namespace heed::cuda
