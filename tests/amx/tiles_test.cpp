// The emulator's registers from inside: what programs cannot see of them, and in which order products are summed up.
#include "amx/tiles.hpp"

#include "core/float_bits.hpp"
#include "cpu/isa.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace heed::amx {
namespace {

std::uint64_t place(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

/// Tile 0 for sums [rows][columns], 1 and 2 for the factors [rows][pairs] and [pairs][columns].
TileConfig config_of(int rows, int pairs, int columns) {
  TileConfig config;
  config.palette = 1;
  const int sizes[3][2] = {{rows, columns}, {rows, pairs}, {pairs, columns}};
  for (int tile = 0; tile < 3; ++tile) {
    config.rows[tile] = static_cast<std::uint8_t>(sizes[tile][0]);
    config.row_bytes[tile] = static_cast<std::uint16_t>(4 * sizes[tile][1]);
  }
  return config;
}

TEST(Tiles, LoadsZeroWhatIsBehindTheirRowsAndColumns) {
  std::vector<std::uint8_t> data(1000, 7);
  Tiles tiles;
  tiles.config = config_of(3, 5, 16);
  std::memset(tiles.bytes, 0xFF, sizeof tiles.bytes);
  execute({.operation = Operation::load, .tile = 1, .address = place(data.data()), .row_stride = 20}, tiles);
  for (int row = 0; row < kMostRows; ++row)
    for (int i = 0; i < kRowBytes; ++i) {
      EXPECT_EQ(tiles.bytes[1][row][i], row < 3 && i < 20 ? 7 : 0) << row << ", " << i;
      EXPECT_EQ(tiles.bytes[0][row][i], 0xFF);
    }
}

TEST(Tiles, LoadsAndStoresGoOnAtTheStartRowAndForgetIt) {
  const std::vector<std::uint8_t> data(kMostRows * kRowBytes, 7);
  std::vector<std::uint8_t> to(data.size());
  Tiles tiles;
  tiles.config = config_of(16, 16, 16);
  tiles.config.start_row = 5;
  execute({.operation = Operation::load, .tile = 0, .address = place(data.data()), .row_stride = kRowBytes}, tiles);
  EXPECT_EQ(tiles.config.start_row, 0);
  for (int row = 0; row < kMostRows; ++row) EXPECT_EQ(tiles.bytes[0][row][0], row < 5 ? 0 : 7);
  std::memset(tiles.bytes, 9, sizeof tiles.bytes);
  tiles.config.start_row = 5;
  execute({.operation = Operation::store, .tile = 0, .address = place(to.data()), .row_stride = kRowBytes}, tiles);
  EXPECT_EQ(tiles.config.start_row, 0);
  for (std::size_t row = 0; row < kMostRows; ++row) EXPECT_EQ(to[row * kRowBytes], row < 5 ? 0 : 9);
}

class Products : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::machine().has[static_cast<std::size_t>(dispatch::CpuIsa::avx512)])
      GTEST_SKIP() << "products are emulated with AVX-512, which this machine lacks";
  }

  void multiply(int rows, int pairs, int columns) {
    tiles.config = config_of(rows, pairs, columns);
    execute({.operation = Operation::products, .tile = 0, .first = 1, .second = 2}, tiles);
  }
  void put_bf16(int tile, int row, int i, float value) {
    const core::Bits16 bits = core::bf16_from_f32(value);
    std::memcpy(tiles.bytes[tile][row] + 2 * i, &bits, sizeof bits);
  }
  float bf16_at(int tile, int row, int i) const {
    core::Bits16 bits = 0;
    std::memcpy(&bits, tiles.bytes[tile][row] + 2 * i, sizeof bits);
    return core::f32_from_bf16(bits);
  }
  void put_f32(int row, int i, float value) { std::memcpy(tiles.bytes[0][row] + 4 * i, &value, sizeof value); }
  float f32_at(int row, int i) const {
    float value = 0;
    std::memcpy(&value, tiles.bytes[0][row] + 4 * i, sizeof value);
    return value;
  }

  Tiles tiles;
};

TEST_F(Products, SumEvenAndOddElementsApartAndAddThemToTheTileLast) {
  put_bf16(1, 0, 0, 0x1p24f);  // even: 2^24 + 1 is rounded to 2^24
  put_bf16(1, 0, 1, 1.f);      // odd: 1 + 1
  put_bf16(1, 0, 2, 1.f);
  put_bf16(1, 0, 3, 1.f);
  for (int pair = 0; pair < 2; ++pair)
    for (int i = 0; i < 2; ++i) put_bf16(2, pair, i, 1.f);
  put_f32(0, 0, -0x1p24f);
  multiply(1, 2, 1);
  EXPECT_EQ(f32_at(0, 0), 2.f);  // 0 if all were added one by one from zero, 3 if they were added to the tile
}

TEST_F(Products, HaveTheBitsOfPlainLoops) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const auto [rows, pairs, columns] : {std::array{16, 16, 16}, {1, 1, 1}, {3, 5, 7}, {16, 1, 9}, {2, 16, 16}}) {
    for (int row = 0; row < kMostRows; ++row)
      for (int i = 0; i < kRowBytes / 2; ++i) {
        put_bf16(1, row, i, normal(random));
        put_bf16(2, row, i, normal(random));
        if (i % 2 == 0) put_f32(row, i / 2, normal(random));
      }
    float expected[kMostRows][kRowBytes / 4] = {};
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column < columns; ++column) {
        float sum[2] = {};
        for (int i = 0; i < 2 * pairs; ++i)
          sum[i % 2] = std::fma(bf16_at(1, row, i), bf16_at(2, i / 2, 2 * column + i % 2), sum[i % 2]);
        expected[row][column] = f32_at(row, column) + (sum[0] + sum[1]);
      }
    multiply(rows, pairs, columns);
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column < kRowBytes / 4; ++column)
        EXPECT_EQ(std::bit_cast<std::uint32_t>(f32_at(row, column)),
                  std::bit_cast<std::uint32_t>(expected[row][column]))
            << rows << " x " << pairs << " x " << columns << " at " << row << ", " << column;
  }
}

}  // namespace
}  // namespace heed::amx
