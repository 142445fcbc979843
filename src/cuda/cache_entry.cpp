#include "cuda/cache_entry.hpp"

#include "core/json.hpp"

#include <heed/error.hpp>

#include <array>
#include <bit>
#include <cstring>
#include <istream>
#include <string_view>

namespace heed::cuda {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "heedkrn1";
// Far above anything real: a damaged size must not make us ask for all memory.
constexpr std::uint64_t kMostMeta = 1 << 20, kMostCode = 1 << 28;

struct Fixed {
  std::array<char, 8> magic;
  std::uint64_t meta_bytes, code_bytes;
  Sha256::Digest checksum;
};
static_assert(sizeof(Fixed) == 56);

Sha256 sum_of(const Fixed& fixed, std::string_view meta) {
  Sha256 sum;
  sum.add(fixed.meta_bytes).add(fixed.code_bytes).add(meta);
  return sum;
}

CacheEntry from_meta(const std::string& meta) {
  const core::Json json = core::parse_json(meta, "cache entry");
  const core::Json& nvrtc = json.at("nvrtc");
  return {.key = {json.at("source").get<std::string>(), {nvrtc.at(0).get<int>(), nvrtc.at(1).get<int>()}},
          .kernel = json.at("kernel").get<std::string>(),
          .arch = json.at("arch").get<std::string>(),
          .resources = resources_from_json(json.at("resources")),
          .code = {}};
}

}  // namespace

std::string to_bytes(const CacheEntry& entry) {
  const core::Json json{{"kernel", entry.kernel},
                        {"arch", entry.arch},
                        {"source", entry.key.source},
                        {"nvrtc", {entry.key.nvrtc.major, entry.key.nvrtc.minor}},
                        {"resources", to_json(entry.resources)}};
  const std::string meta = json.dump(-1, ' ', false, core::Json::error_handler_t::replace);
  Fixed fixed{.magic = {}, .meta_bytes = meta.size(), .code_bytes = entry.code.size(), .checksum = {}};
  std::memcpy(fixed.magic.data(), kMagic.data(), kMagic.size());
  fixed.checksum = sum_of(fixed, meta).add(entry.code).digest();

  std::string bytes(reinterpret_cast<const char*>(&fixed), sizeof fixed);
  bytes.reserve(sizeof fixed + meta.size() + entry.code.size());
  bytes += meta;
  bytes.append(reinterpret_cast<const char*>(entry.code.data()), entry.code.size());
  return bytes;
}

std::optional<EntryHead> read_head(std::istream& stream) {
  Fixed fixed{};
  if (!stream.read(reinterpret_cast<char*>(&fixed), sizeof fixed)) return std::nullopt;
  if (std::string_view(fixed.magic.data(), fixed.magic.size()) != kMagic) return std::nullopt;
  if (fixed.meta_bytes > kMostMeta || fixed.code_bytes > kMostCode) return std::nullopt;
  std::string meta(fixed.meta_bytes, '\0');
  if (!stream.read(meta.data(), static_cast<std::streamsize>(meta.size()))) return std::nullopt;
  try {
    return EntryHead{from_meta(meta), fixed.code_bytes, fixed.checksum, sum_of(fixed, meta)};
  } catch (const Error&) {
  } catch (const core::Json::exception&) {
  }
  return std::nullopt;
}

std::optional<CacheEntry> read_entry(std::istream& stream) {
  auto head = read_head(stream);
  if (!head) return std::nullopt;
  std::vector<std::byte>& code = head->entry.code;
  code.resize(head->code_bytes);
  if (!stream.read(reinterpret_cast<char*>(code.data()), static_cast<std::streamsize>(code.size())))
    return std::nullopt;
  if (head->sum.add(code).digest() != head->checksum) return std::nullopt;
  return std::move(head->entry);
}

}  // namespace heed::cuda
