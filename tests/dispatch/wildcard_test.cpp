#include "dispatch/wildcard.hpp"

#include "dispatch/signature.hpp"

#include <gtest/gtest.h>

namespace heed::dispatch {
namespace {

TEST(Wildcard, a_set_holds_what_it_lists_and_any_holds_everything) {
  constexpr Set<DataType> set = {f16, bf16};
  EXPECT_TRUE(set.has(bf16));
  EXPECT_FALSE(set.has(f32));
  constexpr Set<DataType> all = any;
  EXPECT_TRUE(all.has(u16));
  EXPECT_FALSE(Set<DataType>().has(f32));
}

TEST(Wildcard, sets_print_as_lists) {
  EXPECT_EQ((Set<DataType>{f16, bf16}.to_string()), "f16,bf16");
  EXPECT_EQ(Set<DataType>(any).to_string(), "any");
  EXPECT_EQ(Set<DataType>().to_string(), "none");
  EXPECT_EQ(Set<Mode>{Mode::group}.to_string(), "group");
}

TEST(Wildcard, sizes_are_one_a_range_multiples_or_any) {
  EXPECT_TRUE(exactly(128).has(128));
  EXPECT_FALSE(exactly(128).has(127));
  EXPECT_TRUE(up_to(512).has(1));
  EXPECT_TRUE(up_to(512).has(512));
  EXPECT_FALSE(up_to(512).has(513));
  EXPECT_TRUE(multiples(8, 256).has(72));
  EXPECT_FALSE(multiples(8, 256).has(73));
  EXPECT_TRUE(Sizes(any).has(0));
  EXPECT_TRUE(Sizes(any).has(Sizes::kNoLimit));
}

TEST(Wildcard, sizes_print_briefly) {
  EXPECT_EQ(exactly(128).to_string(), "128");
  EXPECT_EQ(up_to(512).to_string(), "1..512");
  EXPECT_EQ(multiples(8, 256).to_string(), "8..256 by 8");
  EXPECT_EQ(Sizes(any).to_string(), "any");
  EXPECT_EQ((Sizes{16, Sizes::kNoLimit, 1}.to_string()), "16..");
}

}  // namespace
}  // namespace heed::dispatch
