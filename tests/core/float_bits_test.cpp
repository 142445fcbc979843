#include "core/float_bits.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cfenv>
#include <cmath>
#include <limits>
#include <random>

namespace heed::core {
namespace {

// Conversions are usable at compile time.
static_assert(f16_from_f32(1.0f) == 0x3C00 && f32_from_f16(0x3C00) == 1.0f);
static_assert(bf16_from_f32(1.0f) == 0x3F80 && f32_from_bf16(0x3F80) == 1.0f);

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Format {
  const char* name;
  int exponent_bits, fraction_bits;
  float (*widen)(Bits16);
  Bits16 (*from_f32)(float);
  Bits16 (*from_f64)(double);
};
constexpr std::array kFormats{Format{"f16", 5, 10, f32_from_f16, f16_from_f32, f16_from_f64},
                              Format{"bf16", 8, 7, f32_from_bf16, bf16_from_f32, bf16_from_f64}};

/// The value of a bit pattern from the definition of the format.
double decode(const Format& format, Bits16 bits) {
  const int exponent = (bits & 0x7FFF) >> format.fraction_bits;
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << format.exponent_bits) - 1) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  const double significand = std::ldexp(fraction, -format.fraction_bits);
  return exponent == 0 ? sign * std::ldexp(significand, 1 - bias) : sign * std::ldexp(1 + significand, exponent - bias);
}

/// Round to nearest even by definition: of the two neighbours the nearer, in a tie the one with an even pattern.
Bits16 nearest(const Format& format, double value) {
  const auto sign = static_cast<Bits16>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(value);
  const int infinity = ((1 << format.exponent_bits) - 1) << format.fraction_bits;
  int low = 0, high = infinity;  // decode(low) <= magnitude < decode(high)
  if (magnitude == HUGE_VAL) return static_cast<Bits16>(sign | infinity);
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (decode(format, static_cast<Bits16>(middle)) <= magnitude ? low : high) = middle;
  }
  // For rounding the step behind the largest finite value is as wide as the one before it.
  const double below = decode(format, static_cast<Bits16>(low));
  const double above = high == infinity ? below + (below - decode(format, static_cast<Bits16>(low - 1)))
                                        : decode(format, static_cast<Bits16>(high));
  const double to_below = magnitude - below, to_above = above - magnitude;
  const bool up = to_above < to_below || (to_above == to_below && low % 2 != 0);
  return static_cast<Bits16>(sign | (up ? high : low));
}

TEST(FloatBits, EveryPatternWidensToItsValueAndComesBack) {
  for (const Format& format : kFormats)
    for (int pattern = 0; pattern < 0x10000; ++pattern) {
      const auto bits = static_cast<Bits16>(pattern);
      const double expected = decode(format, bits);
      const float value = format.widen(bits);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(value)) << format.name << " " << pattern;
        ASSERT_TRUE(std::isnan(format.widen(format.from_f32(value)))) << format.name << " " << pattern;
        ASSERT_EQ(format.from_f32(value) & 0x8000, pattern & 0x8000) << format.name;
        continue;
      }
      ASSERT_EQ(static_cast<double>(value), expected) << format.name << " " << pattern;
      ASSERT_EQ(std::signbit(value), (pattern & 0x8000) != 0) << format.name << " " << pattern;
      ASSERT_EQ(format.from_f32(value), bits) << format.name;
      ASSERT_EQ(format.from_f64(static_cast<double>(value)), bits) << format.name;
    }
}

TEST(FloatBits, TiesAndTheirNeighboursRoundToNearestEven) {
  for (const Format& format : kFormats) {
    const int infinity = ((1 << format.exponent_bits) - 1) << format.fraction_bits;
    for (int pattern = 0; pattern < infinity - 1; ++pattern) {
      const double a = decode(format, static_cast<Bits16>(pattern)),
                   b = decode(format, static_cast<Bits16>(pattern + 1));
      const double middle = (a + b) / 2;
      for (const double sign : {1.0, -1.0}) {
        for (const double value : {middle, std::nextafter(middle, 0), std::nextafter(middle, HUGE_VAL)})
          ASSERT_EQ(format.from_f64(sign * value), nearest(format, sign * value)) << format.name << " " << value;
        const auto tie = static_cast<float>(middle);  // exact: one bit more than the format
        for (const float value : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, kInf)})
          ASSERT_EQ(format.from_f32(static_cast<float>(sign) * value),
                    nearest(format, sign * static_cast<double>(value)))
              << format.name << " " << value;
      }
    }
  }
}

TEST(FloatBits, AnyF32RoundsToNearestEven) {
  std::mt19937 random(1);
  for (int round = 0; round < 400000; ++round) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(value)) continue;
    for (const Format& format : kFormats)
      ASSERT_EQ(format.from_f32(value), nearest(format, static_cast<double>(value))) << format.name << " " << value;
  }
}

// 1 + 2^-11 + 2^-40 is just above a tie of f16. Rounding to f32 first would drop the 2^-40 and then tie to even.
TEST(FloatBits, F64RoundsOnceNotTwice) {
  const double above_tie = 1 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(f16_from_f32(static_cast<float>(above_tie)), 0x3C00);
  EXPECT_EQ(f16_from_f64(above_tie), 0x3C01);
  EXPECT_EQ(f16_from_f64(-above_tie), 0xBC01);
  EXPECT_EQ(bf16_from_f64(1 + 0x1p-8 + 0x1p-50), 0x3F81);
  EXPECT_EQ(bf16_from_f64(1 + 0x1p-8), 0x3F80);
}

TEST(FloatBits, TheEndsOfTheRangeAreKept) {
  EXPECT_EQ(f16_from_f32(65504.0f), 0x7BFF);
  EXPECT_EQ(f16_from_f32(65519.99f), 0x7BFF);
  EXPECT_EQ(f16_from_f32(65520.0f), 0x7C00);
  EXPECT_EQ(f16_from_f32(-kInf), 0xFC00);
  EXPECT_EQ(f16_from_f32(0x1p-24f), 0x0001);
  EXPECT_EQ(f16_from_f32(0x1p-25f), 0x0000);
  EXPECT_EQ(f16_from_f32(-0x1.000002p-25f), 0x8001);
  EXPECT_EQ(bf16_from_f32(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(f16_from_f64(1e300), 0x7C00);
  EXPECT_EQ(bf16_from_f64(-1e300), 0xFF80);
  EXPECT_EQ(f16_from_f64(-1e-300), 0x8000);
  EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f64(std::nan("")))));
  EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f64(std::nan("")))));
  // A payload in the low bits only must not vanish and leave an infinity.
  EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(std::bit_cast<float>(0x7F800001u)))));
  EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(std::bit_cast<float>(0xFF800001u)))));
}

TEST(FloatBits, ElementsAreReadAndWrittenAtAnyAlignment) {
  std::array<unsigned char, 64> memory{};
  for (const DataType type : {DataType::f64, DataType::f32, DataType::f16, DataType::bf16}) {
    memory.fill(0xEE);
    void* const odd = memory.data() + 1;
    store(odd, type, 0, 1.5);
    store(odd, type, 2, -0.25f);
    EXPECT_EQ(load(odd, type, 0), 1.5) << name(type);
    EXPECT_EQ(load_f32(odd, type, 2), -0.25f) << name(type);
    // Neither the element between nor a byte around is touched.
    const std::size_t size = static_cast<std::size_t>(bits(type)) / 8;
    EXPECT_EQ(memory[0], 0xEE);
    EXPECT_TRUE(std::all_of(memory.begin() + 1 + static_cast<std::ptrdiff_t>(size),
                            memory.begin() + 1 + static_cast<std::ptrdiff_t>(2 * size),
                            [](unsigned char byte) { return byte == 0xEE; }));
    EXPECT_EQ(memory[1 + 3 * size], 0xEE);
  }
}

TEST(FloatBits, AnElementOfAnotherTypeIsADefectAndSaysSo) {
  std::int32_t value = 0;
  EXPECT_THROW(load(&value, DataType::i32, 0), Error);
  EXPECT_THROW(store(&value, DataType::u16, 0, 1.0), Error);
}

}  // namespace
}  // namespace heed::core
