#pragma once

#include <array>
#include <cstdint>

namespace heed {

/// Philox4x32-10 (Salmon et al., 2011).
constexpr std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                                     std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// The map from an entry (b, h, i, j) of the score matrix to its 16 random bits; see docs/semantics.md, "Dropout".
///
/// One Philox call serves eight entries: in each 16 x 16 tile, rows {r, r + 8} by columns {2c, 2c + 1, 2c + 8, 2c + 9}
/// for r < 8, c < 4, which is what one thread of a tensor-core accumulator holds, so that no random word is wasted
/// there.
///   counter = { column group, row group, low 32 bits of b * heads + h, low 32 bits of offset }
///   key     = { low 32 bits of seed, high 32 bits of seed xor high 32 bits of offset }
///   entry   = half-word number 4 * (i / 8 % 2) + 2 * (j / 8 % 2) + j % 2 of the four words, low half first
constexpr std::uint16_t dropout_word(std::uint64_t seed, std::uint64_t offset, std::uint64_t head_index,
                                     std::uint64_t i, std::uint64_t j) {
  const auto words =
      philox4x32_10({static_cast<std::uint32_t>(j / 16 * 4 + j % 8 / 2), static_cast<std::uint32_t>(i / 16 * 8 + i % 8),
                     static_cast<std::uint32_t>(head_index), static_cast<std::uint32_t>(offset)},
                    {static_cast<std::uint32_t>(seed),
                     static_cast<std::uint32_t>(seed >> 32) ^ static_cast<std::uint32_t>(offset >> 32)});
  const std::uint64_t half = i / 8 % 2 * 4 + j / 8 % 2 * 2 + j % 2;
  return static_cast<std::uint16_t>(words[half / 2] >> (half % 2 * 16));
}

/// An entry is kept when its word is at least this. p is in [0, 1).
constexpr std::uint32_t dropout_threshold(double p) { return static_cast<std::uint32_t>(p * 65536.0 + 0.5); }

}  // namespace heed
