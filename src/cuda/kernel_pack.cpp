#include "cuda/kernel_pack.hpp"

#include "core/invalid.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace heed::cuda {
namespace {

Error damaged(const std::filesystem::path& file, std::streamoff at) {
  return core::invalid(
      "kernel pack {}: what begins at byte {} is not a whole entry: the file is damaged, or was not "
      "written by 'heed cache export'.",
      file.string(), at);
}

}  // namespace

KernelPack::KernelPack(std::filesystem::path file) : file_(std::move(file)) {
  std::ifstream stream(file_, std::ios::binary);
  if (!stream) throw core::invalid("kernel pack {}: cannot be opened: {}.", file_.string(), std::strerror(errno));
  if (!std::filesystem::is_regular_file(file_)) throw core::invalid("kernel pack {}: is not a file.", file_.string());
  stream.seekg(0, std::ios::end);
  const std::streamoff end = stream.tellg();
  for (std::streamoff at = 0; at < end;) {
    stream.seekg(at);
    const auto head = read_head(stream);
    if (!head) throw damaged(file_, at);
    const std::streamoff next = std::streamoff(stream.tellg()) + std::streamoff(head->code_bytes);
    if (next > end) throw damaged(file_, at);
    at_.emplace(head->entry.key, at);
    at = next;
  }
}

std::vector<EntryKey> KernelPack::keys() const {
  std::vector<EntryKey> keys;
  for (const auto& [key, at] : at_) keys.push_back(key);
  return keys;
}

std::optional<CacheEntry> KernelPack::find(const std::string& source, std::optional<NvrtcVersion> preferred,
                                           int most_major) const {
  if (preferred && at_.count({source, *preferred}) > 0) return read({source, *preferred});
  // Sorted by source, then by version: the newest stands in front of the next source.
  auto behind = at_.upper_bound({source, {most_major, kAnyMajor}});
  if (behind == at_.begin() || (--behind)->first.source != source) return std::nullopt;
  return read(behind->first);
}

CacheEntry KernelPack::read(const EntryKey& key) const {
  const std::streamoff at = at_.at(key);
  std::ifstream stream(file_, std::ios::binary);
  stream.seekg(at);
  auto entry = read_entry(stream);
  if (!entry || entry->key != key) throw damaged(file_, at);
  return *std::move(entry);
}

void KernelPack::write(const std::filesystem::path& file, const std::vector<CacheEntry>& entries) {
  namespace fs = std::filesystem;
  std::error_code error;
  // Beside it and then in its place: who reads a pack that is written again has the old one or the new one. What is no
  // file, such as a pipe, has no place to be put into.
  const bool in_place = fs::exists(file, error) && !fs::is_regular_file(file, error);
  fs::path written = file;
  if (!in_place) written += fmt::format(".{}.tmp", getpid());
  std::ofstream stream(written, std::ios::binary | std::ios::trunc);
  for (const CacheEntry& entry : entries) stream << to_bytes(entry);
  stream.close();
  std::string reason = stream ? "" : std::strerror(errno);
  if (reason.empty() && !in_place) {
    fs::rename(written, file, error);
    if (error) reason = error.message();
  }
  if (reason.empty()) return;
  if (!in_place) fs::remove(written, error);
  throw core::invalid("kernel pack {}: cannot be written: {}.", file.string(), reason);
}

}  // namespace heed::cuda
