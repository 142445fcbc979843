/// Knobs of the Hopper forward kernels: how they are written, and which combinations cannot be.

#include "cuda/hopper_knobs.hpp"
#include "cuda/algo_error.hpp"
#include "cuda/hopper_lines.hpp"
#include "cuda/kernel_text.hpp"

#include <heed/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heed::cuda {
namespace {

using kernels::HopperConfig;
using ::testing::HasSubstr;

TEST(HopperKnobs, are_written_as_names_with_values) {
  const HopperConfig c =
      HopperAlgo::parse("stages:3,tile_k:128,tile_q:128,turns:softmax,persistence:static,lazy_maximum:0")
          .applied_to({});
  EXPECT_EQ(c.k_stages, 3);
  EXPECT_EQ(c.v_stages, 3);
  EXPECT_EQ(c.tile_k, 128);
  EXPECT_EQ(c.warpgroups, 2);
  EXPECT_EQ(c.turns, kernels::Turns::softmax);
  EXPECT_EQ(c.persistence, kernels::Persistence::fixed);
  EXPECT_FALSE(c.lazy_maximum);
  EXPECT_TRUE(HopperAlgo::parse("").empty());
}

TEST(HopperKnobs, of_a_configuration_read_back_are_the_same_configuration) {
  for (const HopperLine& line : hopper_lines()) {
    HopperConfig start;
    start.d = line.config.d;
    start.d_v = line.config.d_v;
    EXPECT_EQ(HopperAlgo::parse(HopperAlgo::of(line.config).to_string()).applied_to(start), line.config)
        << line.spec.stem;
  }
}

/// A knob that changes nothing in the compiled text would be parsed and ignored.
TEST(HopperKnobs, each_change_the_kernel) {
  const Problem few_queries =
      Problem::forward().type(DataType::f16).batch(2).heads(32, 8).lengths(4, 1000).head_dims(128, 128);
  const auto source = [&](const HopperConfig& config) {
    HopperLine line = forced_line(128, 128, {});
    line.config = config;
    return kernel_source(hopper_config(line, few_queries)).text;
  };
  for (const HopperKnob& knob : KnobsOf<HopperConfig>::all()) {
    const HopperConfig before;
    HopperConfig after;
    knob.set(after, knob.get(before) == knob.least ? knob.most : knob.least);
    EXPECT_NE(source(before), source(after)) << knob.name;
    EXPECT_NE(knob.get(before), knob.get(after)) << knob.name;
  }
}

TEST(HopperKnobs, that_are_not_understood_are_refused) {
  EXPECT_THAT(parse_error<HopperAlgo>("stag:3"), HasSubstr("algo stag : no such knob; there are tile_q, warpgroups"));
  EXPECT_THAT(parse_error<HopperAlgo>("stages:0"), HasSubstr("stages takes 1 to 8"));
  EXPECT_THAT(parse_error<HopperAlgo>("stages:3x"), HasSubstr("stages takes 1 to 8"));
  EXPECT_THAT(parse_error<HopperAlgo>("turns:1"), HasSubstr("turns takes free, products or softmax"));
  EXPECT_THAT(parse_error<HopperAlgo>("tile_q:100"), HasSubstr("tile_q takes 64, 128, 192 or 256"));
  EXPECT_THAT(parse_error<HopperAlgo>("stages"), HasSubstr("written name:value"));
  EXPECT_THAT(parse_error<HopperAlgo>("stages:3,"), HasSubstr("written name:value"));
  EXPECT_THAT(parse_error<HopperAlgo>("stages:3,stages:4"), HasSubstr("given twice"));
  EXPECT_THAT(parse_error<HopperAlgo>("tile_q:128,warpgroups:3"), HasSubstr("tile_q:128 contradicts"));
}

TEST(HopperKnobs, that_do_not_fit_are_named_by_the_limit_they_break) {
  const auto broken = [](std::string_view algo) {
    return broken_limit(forced_line(128, 128, HopperAlgo::parse(algo)).config);
  };
  EXPECT_EQ(broken("stages:3"), "");
  EXPECT_THAT(broken("stages:8"), HasSubstr("shared memory: more than the 227 KB of a multiprocessor; this takes 35"));
  EXPECT_THAT(broken("tile_k:128"),
              HasSubstr("registers: O, S and P of a warpgroup exceed its share; they take 160 of 160"));
  EXPECT_THAT(broken("tile_k:72"), HasSubstr("a block has 32 keys, or 64 to 176"));
  EXPECT_THAT(broken("rescale_threshold:0"), HasSubstr("the lazy maximum needs a rescale threshold above 0"));
  EXPECT_THAT(broken("cluster:2"), HasSubstr("persistence is static or off"));
  EXPECT_THAT(broken("cluster:2,persistence:static,warpgroups:4,tile_k:32"), HasSubstr("registers: four warpgroups"));
  EXPECT_THAT(broken("specialised:0,turns:products"), HasSubstr("without a copying warp turns"));
  EXPECT_THAT(broken("sums_in:f16"), HasSubstr("sums in f16 overflow unless weights are at most 1"));
  EXPECT_THAT(broken("scores_in:f16,warpgroups:2,tile_k:80,stages:2"), HasSubstr("blocks of 32 keys"));
  EXPECT_THAT(broken("warpgroups:1,turns:products"), HasSubstr("turns need two warpgroups"));
}

}  // namespace
}  // namespace heed::cuda
