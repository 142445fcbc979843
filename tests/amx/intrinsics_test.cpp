// AMX as programs see it, whoever executes it: this CPU, or the emulator.
#include "amx/tiles.hpp"

#include "core/float_bits.hpp"
#include "cpu/isa.hpp"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

namespace heed::amx {
namespace {

using Bytes = std::vector<std::uint8_t>;

/// Not every compiler knows that these instructions read what others have written.
void settle() { asm volatile("" ::: "memory"); }

class Intrinsics : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::machine().has[static_cast<std::size_t>(dispatch::CpuIsa::amx)])
      GTEST_SKIP() << "this machine has neither AMX nor the AVX-512 BF16 to emulate it with";
  }
  void TearDown() override {
    if (!IsSkipped()) _tile_release();
  }

  /// So many rows of so many bytes in tile 0, 1 and so on.
  struct Size {
    int rows, bytes;
  };
  static TileConfig config_of(std::initializer_list<Size> sizes) {
    TileConfig config;
    config.palette = 1;
    int tile = 0;
    for (const Size size : sizes) {
      config.rows[tile] = static_cast<std::uint8_t>(size.rows);
      config.row_bytes[tile++] = static_cast<std::uint16_t>(size.bytes);
    }
    return config;
  }
  static void configure(std::initializer_list<Size> sizes) {
    const TileConfig config = config_of(sizes);
    settle();
    _tile_loadconfig(&config);
  }
  static Bytes random_bytes(std::size_t count) {
    static std::mt19937 random(2);
    Bytes bytes(count);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    return bytes;
  }
};

TEST_F(Intrinsics, AConfigurationIsKeptUntilItIsReleased) {
  const TileConfig loaded = config_of({{16, 64}, {3, 20}, {0, 0}, {1, 4}});
  TileConfig stored;
  settle();
  _tile_loadconfig(&loaded);
  _tile_storeconfig(&stored);
  settle();
  EXPECT_EQ(std::memcmp(&stored, &loaded, sizeof stored), 0);
  _tile_release();
  _tile_storeconfig(&stored);
  settle();
  const TileConfig none;
  EXPECT_EQ(std::memcmp(&stored, &none, sizeof stored), 0);
}

TEST_F(Intrinsics, WhatIsLoadedIsStoredRowByRowAndNothingBesideIt) {
  constexpr long kMostStride = 200;
  constexpr std::size_t kBytes = 2 * 16 * kMostStride;
  for (const auto [rows, bytes] : {Size{16, 64}, {1, 4}, {5, 64}, {16, 12}, {7, 36}})
    for (const long from_stride : {64l, 100l, 0l, -64l, -kMostStride})
      for (const long to_stride : {64l, 65l, kMostStride, -64l, -kMostStride}) {
        const Bytes from = random_bytes(kBytes), before = random_bytes(kBytes);
        Bytes to = before, expected = before;
        const std::uint8_t* const middle = from.data() + kBytes / 2;
        for (long row = 0; row < rows; ++row)
          std::memcpy(expected.data() + kBytes / 2 + row * to_stride, middle + row * from_stride,
                      static_cast<std::size_t>(bytes));
        configure({{rows, bytes}, {rows, bytes}});
        settle();
        _tile_loadd(0, middle, from_stride);
        _tile_stream_loadd(1, middle, from_stride);
        _tile_stored(0, to.data() + kBytes / 2, to_stride);
        settle();
        EXPECT_EQ(to, expected) << rows << " x " << bytes << ", from " << from_stride << " to " << to_stride;
        to = before;
        settle();
        _tile_stored(1, to.data() + kBytes / 2, to_stride);
        settle();
        EXPECT_EQ(to, expected) << "by way of TILELOADDT1";
      }
}

TEST_F(Intrinsics, ConfiguringAndZeroingLeavesZeros) {
  const Bytes from = random_bytes(1024), zeros(1024);
  Bytes to = random_bytes(1024);
  configure({{16, 64}, {16, 64}});
  settle();
  _tile_loadd(0, from.data(), 64);
  _tile_loadd(1, from.data(), 64);
  _tile_zero(0);
  _tile_stored(0, to.data(), 64);
  settle();
  EXPECT_EQ(to, zeros);
  configure({{16, 64}, {16, 64}});
  _tile_stored(1, to.data(), 64);
  settle();
  EXPECT_EQ(to, zeros);
}

/// sums [rows][columns] += first [rows][2 pairs] second [pairs][columns][2].
struct Factors {
  Factors(int rows_, int pairs_, int columns_) : rows(rows_), pairs(pairs_), columns(columns_) {
    first.resize(static_cast<std::size_t>(rows * pairs * 2));
    second.resize(static_cast<std::size_t>(pairs * columns * 2));
    sums.resize(static_cast<std::size_t>(rows * columns));
  }
  void multiply() {
    settle();
    _tile_loadd(0, sums.data(), columns * 4);
    _tile_loadd(1, first.data(), pairs * 4);
    _tile_loadd(2, second.data(), columns * 4);
    _tile_dpbf16ps(0, 1, 2);
    _tile_stored(0, sums.data(), columns * 4);
    settle();
  }
  int rows, pairs, columns;
  std::vector<core::Bits16> first, second;
  std::vector<float> sums;
};

// Of whole numbers, whose sums do not depend on their order.
TEST_F(Intrinsics, ProductsOfAllSizesAreThoseOfPlainLoops) {
  std::mt19937 random(3);
  const auto number = [&] { return static_cast<float>(static_cast<int>(random() % 33) - 16); };
  for (const auto [rows, pairs, columns] : {std::array{16, 16, 16}, {1, 1, 1}, {3, 5, 7}, {16, 1, 9}, {2, 16, 16}}) {
    Factors f(rows, pairs, columns);
    for (core::Bits16& bits : f.first) bits = core::bf16_from_f32(number());
    for (core::Bits16& bits : f.second) bits = core::bf16_from_f32(number());
    for (float& sum : f.sums) sum = number();
    std::vector<float> expected = f.sums;
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column < columns; ++column)
        for (int i = 0; i < 2 * pairs; ++i)
          expected[static_cast<std::size_t>(row * columns + column)] +=
              core::f32_from_bf16(f.first[static_cast<std::size_t>(row * 2 * pairs + i)]) *
              core::f32_from_bf16(f.second[static_cast<std::size_t>((i / 2 * columns + column) * 2 + i % 2)]);
    configure({{rows, columns * 4}, {rows, pairs * 4}, {pairs, columns * 4}});
    f.multiply();
    EXPECT_EQ(f.sums, expected) << rows << " x " << pairs << " x " << columns;
  }
}

/// sum + a b, as a tile product of one row, one column, and a pair whose other element is zero.
float product(float sum, core::Bits16 a, core::Bits16 b) {
  Factors f(1, 1, 1);
  f.sums = {sum};
  f.first = {a, 0};
  f.second = {b, 0};
  f.multiply();
  return f.sums[0];
}

TEST_F(Intrinsics, DenormalsAreZeroBeforeAndAfter) {
  configure({{1, 4}, {1, 4}, {1, 4}});
  const auto bf16_of = [](float value) { return core::bf16_from_f32(value); };
  constexpr core::Bits16 kLargestDenormal = 0x007F, kSmallestNormal = 0x0080;
  EXPECT_EQ(product(0.f, kLargestDenormal, bf16_of(0x1p100f)), 0.f);
  EXPECT_EQ(product(0.f, kSmallestNormal, bf16_of(0x1p100f)), 0x1p-26f);
  EXPECT_EQ(product(0.f, bf16_of(0x1p-70f), bf16_of(0x1p-60f)), 0.f);
  EXPECT_EQ(product(0x1p-130f, bf16_of(0.f), bf16_of(1.f)), 0.f);
}

TEST_F(Intrinsics, InfinitiesAndNanAreThoseOfF32) {
  configure({{1, 4}, {1, 4}, {1, 4}});
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr core::Bits16 kPlusInfinity = 0x7F80, kMinusInfinity = 0xFF80, kNan = 0x7FC0, kOne = 0x3F80, kMost = 0x7F7F;
  EXPECT_EQ(product(1.f, kPlusInfinity, kOne), kInfinity);
  EXPECT_EQ(product(1.f, kMinusInfinity, kOne), -kInfinity);
  EXPECT_EQ(product(0.f, kMost, kMost), kInfinity);
  EXPECT_EQ(product(kInfinity, kOne, kOne), kInfinity);
  EXPECT_TRUE(std::isnan(product(0.f, kPlusInfinity, 0)));
  EXPECT_TRUE(std::isnan(product(kInfinity, kMinusInfinity, kOne)));
  EXPECT_TRUE(std::isnan(product(0.f, kNan, 0)));
  EXPECT_TRUE(std::isnan(product(std::numeric_limits<float>::quiet_NaN(), kOne, kOne)));
}

// Two threads at once, each with its own sizes and bytes; and a third time with those of before.
TEST_F(Intrinsics, EveryThreadHasTilesOfItsOwn) {
  const auto moves_rows = [](int rows) {
    const std::size_t bytes = static_cast<std::size_t>(rows) * 64;
    const Bytes from(bytes, static_cast<std::uint8_t>(rows));
    TileConfig config;
    bool right = true;
    _tile_storeconfig(&config);
    settle();
    right &= config.palette == 0;
    configure({{rows, 64}});
    settle();
    _tile_loadd(0, from.data(), 64);
    for (int i = 0; i < 200; ++i) {
      Bytes to(bytes + 64);
      settle();
      _tile_stored(0, to.data(), 64);
      settle();
      right &= std::memcmp(to.data(), from.data(), bytes) == 0 && to[bytes] == 0;
    }
    _tile_release();
    return right;
  };
  bool right[2] = {};
  std::thread first([&] { right[0] = moves_rows(5); }), second([&] { right[1] = moves_rows(16); });
  first.join();
  second.join();
  EXPECT_TRUE(right[0]);
  EXPECT_TRUE(right[1]);
}

}  // namespace
}  // namespace heed::amx
