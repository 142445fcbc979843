#include "dispatch/glob.hpp"

#include <gtest/gtest.h>

namespace heed::dispatch {
namespace {

TEST(Glob, a_pattern_matches_anywhere_in_the_text) {
  EXPECT_TRUE(glob_search("d128*causal*", "bf16 d128 d_v128 causal batch"));
  EXPECT_TRUE(glob_search("avx512", "cpu/avx512/fwd_tile_f32"));
  EXPECT_FALSE(glob_search("causal*d128", "bf16 d128 d_v128 causal batch"));
}

TEST(Glob, star_spans_slashes_and_nothing) {
  EXPECT_TRUE(glob_search("cpu*f32", "cpu/avx512/fwd_tile_f32"));
  EXPECT_TRUE(glob_search("cpu*/avx512", "cpu/avx512/fwd_tile_f32"));
  EXPECT_TRUE(glob_search("*", ""));
}

TEST(Glob, question_marks_and_sets_stand_for_one_character) {
  EXPECT_TRUE(glob_search("d?28 ", "d128 "));
  EXPECT_FALSE(glob_search("d?28 ", "d28 "));
  EXPECT_TRUE(glob_search("[bf]f16 ", "bf16 "));
  EXPECT_FALSE(glob_search("d[!1-5]28", "d128"));
}

TEST(Glob, case_does_not_matter_and_a_lone_bracket_is_itself) {
  EXPECT_TRUE(glob_search("AVX2", "cpu/avx2/fwd"));
  EXPECT_TRUE(glob_search("[h", "slopes [h]"));
}

}  // namespace
}  // namespace heed::dispatch
