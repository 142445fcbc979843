#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace heed::cuda {

/// SHA-256 (FIPS 180-4): names kernels by what they are made of, and tells a damaged file from a whole one.
class Sha256 {
 public:
  using Digest = std::array<std::uint8_t, 32>;

  Sha256& add(std::span<const std::byte> bytes);
  Sha256& add(std::string_view text) { return add(std::as_bytes(std::span(text))); }
  Sha256& add(std::uint64_t number);

  /// Of everything added; nothing may be added afterwards.
  Digest digest();

 private:
  void take_block(const std::uint8_t* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> block_{};
  std::uint64_t bytes_ = 0;
};

std::string to_hex(const Sha256::Digest& digest);

}  // namespace heed::cuda
