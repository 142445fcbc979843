#include "core/expect_invalid.hpp"

#include <heed/mask.hpp>

#include <random>
#include <vector>

namespace heed {
namespace {

/// One line per query row, '1' visible, '.' hidden.
std::string draw(const Mask& mask, std::int64_t s_q, std::int64_t s_k) {
  const MaskBounds bounds = mask.bounds(s_q, s_k);
  std::string picture;
  for (std::int64_t i = 0; i < s_q; ++i) {
    for (std::int64_t j = 0; j < s_k; ++j) picture += bounds.visible(i, j) ? '1' : '.';
    picture += '\n';
  }
  return picture;
}

/// The contract's own words: a window (l, r) around a diagonal that starts at column `shift`, and sink columns.
bool in_window(std::int64_t left, std::int64_t right, std::int64_t sink, std::int64_t shift, std::int64_t i,
               std::int64_t j) {
  const bool not_ahead = right < 0 || j <= i + shift + right;
  const bool not_behind = left < 0 || j >= i + shift - left;
  return not_ahead && (not_behind || j < sink);
}

TEST(Mask, CausalTopLeftOfTwoQueriesAndFiveKeys) {
  EXPECT_EQ(draw(Mask::parse("t"), 2, 5),
            "1....\n"
            "11...\n");
}

TEST(Mask, CausalBottomRightOfTwoQueriesAndFiveKeys) {
  EXPECT_EQ(draw(Mask::parse("b"), 2, 5),
            "1111.\n"
            "11111\n");
}

TEST(Mask, CausalTopLeftOfFiveQueriesAndTwoKeys) {
  EXPECT_EQ(draw(Mask::parse("t"), 5, 2),
            "1.\n"
            "11\n"
            "11\n"
            "11\n"
            "11\n");
}

TEST(Mask, CausalBottomRightOfFiveQueriesAndTwoKeysHidesEverythingFromTheFirstThree) {
  EXPECT_EQ(draw(Mask::parse("b"), 5, 2),
            "..\n"
            "..\n"
            "..\n"
            "1.\n"
            "11\n");
}

TEST(Mask, SinkColumnsStayVisibleButNeverAheadOfTheWindow) {
  EXPECT_EQ(draw(Mask::parse("t:1,0,2"), 6, 6),
            "1.....\n"
            "11....\n"
            "111...\n"
            "1111..\n"
            "11.11.\n"
            "11..11\n");
}

TEST(Mask, RawCoordinatesAreRowsThatSeeTheFirstKeyAndKeysThatTheFirstRowSees) {
  EXPECT_EQ(draw(Mask::parse("g:2,3"), 5, 6),
            "111...\n"
            "1111..\n"
            ".1111.\n"
            "..1111\n"
            "...111\n");
}

TEST(Mask, WindowsAreWhatTheContractSaysForAllSmallSizes) {
  for (const bool top_left : {true, false})
    for (std::int64_t left = -1; left < 5; ++left)
      for (std::int64_t right = -1; right < 4; ++right)
        for (std::int64_t sink = 0; sink < 4; ++sink) {
          const Mask mask = top_left ? Mask::window_top_left(left, right, sink) : Mask::window(left, right, sink);
          for (std::int64_t s_q = 0; s_q < 7; ++s_q)
            for (std::int64_t s_k = 0; s_k < 7; ++s_k) {
              const MaskBounds bounds = mask.bounds(s_q, s_k);
              const std::int64_t shift = top_left ? 0 : s_k - s_q;
              for (std::int64_t i = 0; i < s_q; ++i) {
                std::int64_t seen = 0;
                for (std::int64_t j = 0; j < s_k; ++j) {
                  const bool expected = in_window(left, right, sink, shift, i, j);
                  ASSERT_EQ(bounds.visible(i, j), expected) << mask.to_string() << " " << s_q << "x" << s_k;
                  seen += expected ? 1 : 0;
                }
                ASSERT_EQ(bounds.count(i), seen) << mask.to_string() << " " << s_q << "x" << s_k << " row " << i;
              }
            }
        }
}

TEST(Mask, BoundsAreTheFormulaForRawCoordinatesOfEitherSign) {
  for (std::int64_t y = -7; y < 9; ++y)
    for (std::int64_t x = -7; x < 9; ++x)
      for (std::int64_t s_k = 0; s_k < 6; ++s_k) {
        const MaskBounds bounds = Mask::raw(y, x).bounds(6, s_k);
        for (std::int64_t i = 0; i < 6; ++i) {
          std::int64_t seen = 0;
          for (std::int64_t j = 0; j < s_k; ++j) {
            const bool expected = i - y + 1 <= j && j < std::min(i + x, s_k);
            ASSERT_EQ(bounds.visible(i, j), expected) << y << "," << x;
            seen += expected ? 1 : 0;
          }
          ASSERT_EQ(bounds.count(i), seen) << y << "," << x;
          ASSERT_EQ(std::max<std::int64_t>(bounds.end(i) - bounds.begin(i), 0), seen);
        }
      }
}

TEST(Mask, ManyTextsSayTheSame) {
  EXPECT_EQ(Mask::parse("0"), Mask::none());
  EXPECT_EQ(Mask::parse("n"), Mask::none());
  EXPECT_EQ(Mask::parse("1"), Mask::causal_top_left());
  EXPECT_EQ(Mask::parse("t"), Mask::parse("t:-1,0"));
  EXPECT_EQ(Mask::parse("t"), Mask::parse("t:-17,0,0"));
  EXPECT_EQ(Mask::parse("2"), Mask::causal());
  EXPECT_EQ(Mask::parse("b"), Mask::parse("b:-1,0"));
  EXPECT_EQ(Mask::parse("xt:5"), Mask::parse("t:2,2"));
  EXPECT_EQ(Mask::parse("xt:4"), Mask::parse("t:2,1"));
  EXPECT_EQ(Mask::parse("xb:1"), Mask::parse("b:0,0"));
  EXPECT_EQ(Mask::parse("xb:0"), Mask::causal());
  EXPECT_EQ(Mask::parse("xt:-3"), Mask::causal_top_left());
  EXPECT_NE(Mask::causal(), Mask::causal_top_left());
}

TEST(Mask, WindowsAndRawCoordinatesAgree) {
  for (std::int64_t s_q = 1; s_q < 6; ++s_q)
    for (std::int64_t s_k = 1; s_k < 6; ++s_k) {
      EXPECT_EQ(draw(Mask::parse("t:2,1"), s_q, s_k), draw(Mask::raw(3, 2), s_q, s_k));
      EXPECT_EQ(draw(Mask::parse("b:2,1"), s_q, s_k), draw(Mask::raw(3 + s_q - s_k, 2 + s_k - s_q), s_q, s_k));
      EXPECT_EQ(draw(Mask::parse("b"), s_q, s_k), draw(Mask::raw(s_q, 1 + s_k - s_q), s_q, s_k));
      EXPECT_EQ(draw(Mask::parse("n"), s_q, s_k), draw(Mask::window(-1, -1), s_q, s_k));
      if (s_q == s_k) {
        EXPECT_EQ(draw(Mask::parse("t:1,2,1"), s_q, s_k), draw(Mask::parse("b:1,2,1"), s_q, s_k));
      }
    }
}

TEST(Mask, OnlyMasksWithoutLimitsHideNothing) {
  EXPECT_TRUE(Mask::none().hides_nothing());
  EXPECT_TRUE(Mask::window(-1, -1).hides_nothing());
  EXPECT_TRUE(Mask::window_top_left(-2, -9, 3).hides_nothing());
  EXPECT_FALSE(Mask::causal().hides_nothing());
  EXPECT_FALSE(Mask::window(1 << 20, -1).hides_nothing());
  EXPECT_FALSE(Mask::raw(1 << 20, 1 << 20).hides_nothing());
}

TEST(Mask, TextIsTheOneParsedForCommonMasks) {
  for (const char* const text : {"n", "t", "b", "t:4,0", "b:1024,0", "t:-1,3", "b:4,0,2", "t:-1,0,5", "g:3,-2"})
    EXPECT_EQ(Mask::parse(text).to_string(), text);
}

TEST(Mask, TextReadsBackToAnEqualMask) {
  std::mt19937_64 random(7);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int round = 0; round < 20000; ++round) {
    const std::int64_t size = std::int64_t{1} << pick(1, 40);
    Mask mask;
    switch (pick(0, 3)) {
      case 0:
        break;
      case 1:
        mask = Mask::window(pick(-2, size), pick(-2, size), pick(0, 1) * pick(0, size));
        break;
      case 2:
        mask = Mask::window_top_left(pick(-2, size), pick(-2, size), pick(0, 1) * pick(0, size));
        break;
      default:
        mask = Mask::raw(pick(-size, size), pick(-size, size));
    }
    ASSERT_EQ(Mask::parse(mask.to_string()), mask) << mask.to_string();
  }
}

TEST(Mask, BadTextsAreRefusedWithWhatWouldWork) {
  const auto expect = [](const char* text, std::initializer_list<const char*> pieces) {
    SCOPED_TRACE(text);
    expect_invalid([&] { Mask::parse(text); }, {text});
    expect_invalid([&] { Mask::parse(text); }, pieces);
  };
  expect("t:4", {"a window takes two numbers, 't:left,right' (for example t:4,0), or three with sink tokens"});
  expect("b:", {"'b:left,right'", "b:4,0"});
  expect("b:1,2,3,4", {"two numbers", "three with sink"});
  expect("t:4,", {"'' is not a whole number"});
  expect("t:4,x", {"'x' is not a whole number"});
  expect("t:4.5,0", {"'4.5' is not a whole number"});
  expect("t: 4,0", {"' 4' is not a whole number"});
  expect("t:99999999999999999999,0", {"99999999999999999999 is out of range", "2^40"});
  expect("xt:", {"'xt:width'", "xt:5"});
  expect("xb:3,4", {"one number"});
  expect("g:3", {"'g:y,x'"});
  expect("g:3,2,1", {"two numbers"});
  expect("q", {"is not known", "t:left,right[,sink]"});
  expect("", {"is not known"});
  expect("1:3,4", {"is not known"});
  expect("T", {"is not known"});
}

TEST(Mask, NumbersOutOfRangeAreRefused) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 40;
  EXPECT_NO_THROW(Mask::window(kLimit, kLimit, kLimit));
  EXPECT_NO_THROW(Mask::window(INT64_MIN, 0));
  EXPECT_NO_THROW(Mask::raw(-kLimit, kLimit));
  expect_invalid([] { Mask::window(kLimit + 1, 0); }, {"left = 1099511627777", "2^40"});
  expect_invalid([] { Mask::window_top_left(0, INT64_MAX); }, {"right = 9223372036854775807"});
  expect_invalid([] { Mask::window(4, 0, -1); }, {"sink = -1", "0 or more"});
  expect_invalid([] { Mask::raw(INT64_MIN, 0); }, {"y = -9223372036854775808"});
  expect_invalid([] { Mask::raw(0, kLimit + 1); }, {"x = 1099511627777"});
}

}  // namespace
}  // namespace heed
