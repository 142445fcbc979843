// Which Hopper forward kernel a problem gets: what was measured to be the best is what runs.
#include "cuda/chosen_line.hpp"

#include <gtest/gtest.h>

namespace heed::cuda {
namespace {

Problem forward_of(std::int64_t d, const Mask& mask = Mask::none()) {
  return Problem::forward().type(bf16).batch(4).heads(16).lengths(4096, 4096).head_dims(d, d).mask(mask);
}
Problem with_block_mask(std::int64_t d, std::int64_t block_k) {
  return forward_of(d).block_mask(BlockMaskSpec{.block_q = 128, .block_k = block_k});
}
std::string hopper(const std::string& stem) { return "cuda/sm_90/hopper_fwd_" + stem; }

TEST(HopperLines, have_one_for_lengths_and_one_for_windows_at_d64) {
  for (const Mask& mask : {Mask::none(), Mask::causal()}) {
    EXPECT_EQ(line_for(forward_of(64, mask).mode(Mode::group).total_rows(16384, 16384)), hopper("d64_lengths"));
    EXPECT_EQ(line_for(forward_of(64, mask).logical_lengths(false, true)), hopper("d64_lengths"));
  }
  EXPECT_EQ(line_for(forward_of(64, Mask::window(1023, 0))), hopper("d64_256x64"));
  EXPECT_EQ(line_for(forward_of(64, Mask::window(1023, 0)).mode(Mode::group).total_rows(16384, 16384)),
            hopper("d64_256x64"));
}

TEST(HopperLines, have_wide_blocks_for_features_at_d64) {
  EXPECT_EQ(line_for(forward_of(64).alibi(Alibi::per_head)), hopper("d64_192x96"));
  EXPECT_EQ(line_for(forward_of(64).soft_cap(30)), hopper("d64_192x96"));
  EXPECT_EQ(line_for(forward_of(64).dropout(0.1)), hopper("d64_192x96"));
  EXPECT_EQ(line_for(forward_of(64).bool_mask(Broadcast{.query = true})), hopper("d64_192x96"));
}

TEST(HopperLines, have_one_for_biases_of_sixteen_bits_beside_masks_and_lengths) {
  const BiasSpec bias{bf16, {.head = true, .query = true}};
  for (const Mask& mask : {Mask::none(), Mask::causal(), Mask::window(1023, 0, 4)}) {
    EXPECT_EQ(line_for(forward_of(64, mask).bias(bias)), hopper("d64_bias"));
    EXPECT_EQ(line_for(forward_of(96, mask).bias(bias)), hopper("d96_bias"));
    EXPECT_EQ(line_for(forward_of(128, mask).bias(bias)), hopper("d128_bias"));
    EXPECT_EQ(line_for(forward_of(128, mask).bias(bias).sink(true).lse(true).heads(16, 4)), hopper("d128_bias"));
    EXPECT_EQ(line_for(forward_of(64, mask).bias(bias).logical_lengths(true, true)), hopper("d64_bias"));
    EXPECT_EQ(line_for(forward_of(128, mask).bias(bias).mode(Mode::group).total_rows(16384, 16384)),
              hopper("d128_bias"));
  }
  EXPECT_EQ(line_for(forward_of(40).bias(bias)), hopper("d64_bias"));
  EXPECT_EQ(line_for(forward_of(120).bias(bias)), hopper("d128_bias"));
  EXPECT_EQ(line_for(forward_of(192).bias(bias)), hopper("d192"));
}

TEST(HopperLines, give_other_biases_to_those_for_everything) {
  const BiasSpec bias{bf16, {.head = true, .query = true}}, wide{f32, {.head = true, .query = true}};
  EXPECT_EQ(line_for(forward_of(64).bias(wide)), hopper("d64"));
  EXPECT_EQ(line_for(forward_of(128).bias(wide)), hopper("d128"));
  EXPECT_EQ(line_for(forward_of(64).bias(bias).alibi(Alibi::per_head)), hopper("d64"));
  EXPECT_EQ(line_for(forward_of(128).bias(bias).dropout(0.1)), hopper("d128_128x64"));
  EXPECT_EQ(line_for(forward_of(128).bias(bias).bool_mask(Broadcast{.query = true})), hopper("d128_128x64"));
  // Rows that would be copied entry by entry.
  EXPECT_EQ(line_for(forward_of(64).bias(BiasSpec{bf16, {.query = true, .key = false}})), hopper("d64"));
  EXPECT_EQ(line_for(forward_of(64).bias(bias).lengths(4096, 4095)), hopper("d64"));
  EXPECT_EQ(line_for(forward_of(128).bias(bias).lengths(4096, 4095)), hopper("d128"));
}

TEST(HopperLines, have_none_for_biases_where_there_is_no_bias) {
  EXPECT_EQ(line_for(forward_of(96)), hopper("d96"));
  EXPECT_EQ(line_for(forward_of(96).alibi(Alibi::per_head)), hopper("d96"));
  EXPECT_EQ(line_for(forward_of(128, Mask::window(1023, 0)).mode(Mode::group).total_rows(16384, 16384)),
            hopper("d128"));
}

TEST(HopperLines, have_one_for_block_masks_of_whole_blocks_of_its_keys) {
  EXPECT_EQ(line_for(with_block_mask(128, 128)), hopper("d128_block_mask"));
  EXPECT_EQ(line_for(with_block_mask(128, 256)), hopper("d128_block_mask"));
  EXPECT_EQ(line_for(with_block_mask(128, 64)), hopper("d128"));
  EXPECT_EQ(line_for(with_block_mask(128, 192)), hopper("d128"));
  EXPECT_EQ(line_for(with_block_mask(64, 128)), hopper("d64_block_mask"));
  EXPECT_EQ(line_for(with_block_mask(64, 64)), hopper("d64"));
  EXPECT_EQ(line_for(forward_of(128, Mask::window(1023, 0))), hopper("d128"));
}

}  // namespace
}  // namespace heed::cuda
