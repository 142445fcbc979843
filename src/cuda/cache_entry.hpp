#pragma once

#include "cuda/compiler.hpp"
#include "cuda/resources.hpp"
#include "cuda/sha256.hpp"

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace heed::cuda {

/// What a compiled kernel is found by: everything that it was made from, as one hash, and what made it.
struct EntryKey {
  std::string source;  ///< 64 hexadecimal digits
  NvrtcVersion nvrtc;

  friend auto operator<=>(const EntryKey&, const EntryKey&) = default;
};

struct CacheEntry {
  EntryKey key;
  std::string kernel;  ///< its name
  std::string arch;    ///< "sm_90a"
  Resources resources;
  std::vector<std::byte> code;
};

/// An entry as it lies in a file of the cache; a pack is such entries one after the other. Numbers are little-endian:
///   "heedkrn1"   8 bytes
///   sizes        of meta and of code, 8 bytes each
///   checksum     SHA-256 of the sizes, meta and code, 32 bytes
///   meta         JSON: key, kernel, arch, resources
///   code         a cubin, or PTX
std::string to_bytes(const CacheEntry& entry);

/// The part in front of the code: enough to list an entry, or to step over it.
struct EntryHead {
  CacheEntry entry;  ///< without its code
  std::uint64_t code_bytes = 0;
  Sha256::Digest checksum;  ///< as written
  Sha256 sum;               ///< of what was read
};

/// Both read from where the stream is, and return nothing where what they find there is not whole.
std::optional<EntryHead> read_head(std::istream& stream);
std::optional<CacheEntry> read_entry(std::istream& stream);

}  // namespace heed::cuda
