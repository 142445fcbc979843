#include "core/expect_invalid.hpp"

#include <heed/types.hpp>

namespace heed {
namespace {

TEST(Types, NamesReadBack) {
  for (int number = 0; number <= static_cast<int>(DataType::u16); ++number) {
    const auto type = static_cast<DataType>(number);
    EXPECT_EQ(parse_type(name(type)), type);
    EXPECT_GT(bits(type), 0);
  }
}

TEST(Types, AliasesAreUnderstood) {
  EXPECT_EQ(parse_type("fp32"), f32);
  EXPECT_EQ(parse_type("fp16"), f16);
  EXPECT_EQ(parse_type("fp8"), DataType::fp8_e4m3);
  EXPECT_EQ(parse_type("bf8"), DataType::fp8_e5m2);
}

TEST(Types, SizesAreInBits) {
  EXPECT_EQ(bits(f32), 32);
  EXPECT_EQ(bits(bf16), 16);
  EXPECT_EQ(bits(DataType::int4), 4);
  EXPECT_EQ(bits(f64), 64);
}

TEST(Types, OtherNamesAreRefused) {
  expect_invalid([] { parse_type("float"); }, {"'float'", "f32"});
  expect_invalid([] { parse_type(""); }, {"''"});
}

}  // namespace
}  // namespace heed
