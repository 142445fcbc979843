/// Knobs of the Hopper backward kernels: how they are written, and which combinations cannot be.

#include "cuda/hopper_backward_knobs.hpp"
#include "cuda/algo_error.hpp"
#include "cuda/hopper_backward.hpp"
#include "cuda/kernel_text.hpp"

#include <heed/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heed::cuda {
namespace {

using kernels::BackwardPipeline;
using kernels::HopperBackwardConfig;
using kernels::HopperWideBackwardConfig;
using ::testing::HasSubstr;

Problem problem(std::int64_t d, const Mask& mask = Mask::none()) {
  return Problem::backward().type(f16).batch(2).heads(8).lengths(1024, 1024).head_dims(d, d).mask(mask).lse(true);
}

/// Which limit forced knobs break for a problem.
std::string broken(const Problem& of, std::string_view algo) {
  const auto d = static_cast<int>(of.d());
  return broken_limit(forced_backward_line(d, d, HopperBackwardAlgo::parse(algo)), of);
}

std::string main_text(const HopperBackwardChoice& choice) {
  return std::visit([](const auto& config) { return kernel_source(config, HopperBackwardPart::main).text; },
                    choice.config);
}

bool of_launch(const HopperBackwardKnob& knob) { return knob.name == "section" || knob.name == "parts"; }

TEST(HopperBackwardKnobs, are_written_as_names_with_values) {
  const HopperBackwardChoice narrow =
      HopperBackwardAlgo::parse("tile_q:32,pipeline:ahead,section:1056").applied_to({HopperBackwardConfig{.d = 128}});
  EXPECT_EQ(std::get<HopperBackwardConfig>(narrow.config),
            (HopperBackwardConfig{.d = 128, .tile_q = 32, .pipeline = BackwardPipeline::ahead}));
  EXPECT_EQ(narrow.section, 1056);
  const HopperBackwardChoice wide =
      HopperBackwardAlgo::parse("q_stages:1,o_stages:2").applied_to({HopperWideBackwardConfig{.d = 256}});
  EXPECT_EQ(std::get<HopperWideBackwardConfig>(wide.config),
            (HopperWideBackwardConfig{.d = 256, .q_ring = 1, .o_ring = 2}));
  EXPECT_TRUE(HopperBackwardAlgo::parse("").empty());
}

TEST(HopperBackwardKnobs, of_a_line_read_back_are_the_same_line) {
  for (const HopperBackwardLine& line : hopper_backward_lines()) {
    const HopperBackwardChoice& told = line.choice;
    HopperBackwardChoice start{HopperBackwardConfig{.d = told.d()}};
    if (told.d() > 128) start.config = HopperWideBackwardConfig{.d = told.d()};
    const std::string text = HopperBackwardAlgo::of(told).to_string();
    EXPECT_EQ(HopperBackwardAlgo::parse(text).applied_to(start), told) << line.spec.stem;
    EXPECT_THAT(std::string(line.spec.algorithm.notes), HasSubstr(text)) << line.spec.stem;
  }
}

/// A knob that changes nothing would be parsed and ignored. One is for a bias. The section and the parts are numbers of
/// a launch, not of a kernel: HopperBackwardParts looks at the latter.
TEST(HopperBackwardKnobs, each_change_the_kernels_that_have_them) {
  for (const HopperBackwardKnob& knob : KnobsOf<HopperBackwardChoice>::all()) {
    int have_it = 0;
    for (const HopperBackwardChoice& before :
         {HopperBackwardChoice{HopperBackwardConfig{.features = {.bias = kernels::BiasType::as_input}}},
          HopperBackwardChoice{HopperWideBackwardConfig{}}}) {
      HopperBackwardChoice after = before;
      const int value = knob.get(before) == knob.least ? knob.most : knob.least;
      knob.set(after, value);
      if (knob.get(before) == HopperBackwardKnob::kNone) {
        EXPECT_EQ(before, after) << knob.name;
        continue;
      }
      ++have_it;
      EXPECT_EQ(knob.get(after), value) << knob.name;
      EXPECT_EQ(main_text(before) != main_text(after), !of_launch(knob)) << knob.name;
    }
    EXPECT_EQ(have_it, of_launch(knob) ? 2 : 1) << knob.name;
  }
}

TEST(HopperBackwardKnobs, that_are_not_understood_are_refused) {
  EXPECT_THAT(parse_error<HopperBackwardAlgo>("stages:3"),
              HasSubstr("algo stages : no such knob; there are tile_q, pipeline, bias_route, q_stages"));
  EXPECT_THAT(parse_error<HopperBackwardAlgo>("tile_q:100"), HasSubstr("tile_q takes 32, 48, 64, 96 or 128"));
  EXPECT_THAT(parse_error<HopperBackwardAlgo>("pipeline:late"), HasSubstr("pipeline takes in_step or ahead"));
  EXPECT_THAT(parse_error<HopperBackwardAlgo>("q_stages:3"), HasSubstr("q_stages takes 1 to 2"));
  EXPECT_THAT(parse_error<HopperBackwardAlgo>("section:-1"), HasSubstr("section takes 0 to 1048576"));
  EXPECT_THAT(parse_error<HopperBackwardAlgo>("section"), HasSubstr("written name:value"));
  EXPECT_THAT(parse_error<HopperBackwardAlgo>("section:1,section:2"), HasSubstr("given twice"));
  EXPECT_EQ(parse_error<HopperBackwardAlgo>("q_stages:1,section:0"), "accepted");
}

TEST(HopperBackwardKnobs, that_do_not_fit_are_named_by_the_limit_they_break) {
  EXPECT_EQ(broken(problem(64), "tile_q:96"), "");
  EXPECT_EQ(broken(problem(128), "tile_q:64,pipeline:ahead"), "");
  EXPECT_EQ(broken(problem(256), "q_stages:1,o_stages:2"), "");
  EXPECT_THAT(broken(problem(128), "tile_q:96"),
              HasSubstr("shared memory: more than the 227 KB of a multiprocessor; this takes 25"));
  EXPECT_THAT(broken(problem(64), "tile_q:32"), HasSubstr("for d = 64 a block has 64, 96 or 128 queries"));
  EXPECT_THAT(broken(problem(256), "o_stages:2"), HasSubstr("shared memory"));
  EXPECT_THAT(
      broken(problem(256), "section:400,tile_q:64"),
      HasSubstr(
          "tile_q is no knob of the backward kernels for d = 256; those have q_stages, o_stages, dq, section, parts"));
  EXPECT_THAT(broken(problem(64), "q_stages:2"), HasSubstr("those have tile_q, pipeline, bias_route, section, parts"));
  EXPECT_EQ(broken(problem(64).heads(8, 2), "parts:2"), "");
  EXPECT_EQ(broken(problem(64).heads(12, 2), "parts:4"), "parts: a group has 6 query heads, which 4 does not divide");
  EXPECT_THAT(broken(problem(64).mode(Mode::group).total_rows(2048, 2048), "section:400"),
              HasSubstr("sequences of their own lengths are taken one after the other"));
}

/// A bias of f32, and none, is computed by the kernel that is told nothing of copies.
TEST(HopperBackwardKnobs, that_copy_a_bias_change_no_other_kernel) {
  for (const kernels::BiasType bias : {kernels::BiasType::none, kernels::BiasType::f32}) {
    const HopperBackwardConfig in_step{.features = {.bias = bias}};
    HopperBackwardConfig copied = in_step;
    copied.bias_route = kernels::BiasRoute::copied;
    EXPECT_EQ(main_text({in_step}), main_text({copied}));
    EXPECT_EQ(in_step.shared_bytes(), copied.shared_bytes());
  }
}

/// What a tile leaves no registers for is refused by the rule for it: a kernel that spills is not offered.
TEST(HopperBackwardKnobs, that_are_forced_leave_room_for_what_compiles) {
  const auto too_much = [](const Problem& of, std::string_view algo) {
    const auto d = static_cast<int>(of.d());
    return make_hopper_backward(forced_backward_line(d, d, HopperBackwardAlgo::parse(algo)), nullptr)->too_much(of);
  };
  EXPECT_EQ(too_much(problem(64, Mask::window(64, 0)), "tile_q:96"), "");
  EXPECT_EQ(too_much(problem(64, Mask::window(64, 0)).soft_cap(30), "pipeline:ahead,tile_q:64"), "");
  EXPECT_EQ(too_much(problem(64).bias(BiasSpec{bf16, {}}), "bias_route:copied,tile_q:96"), "");
  EXPECT_EQ(too_much(problem(128).bias(BiasSpec{bf16, {}}), "bias_route:copied"), "");
  EXPECT_THAT(too_much(problem(128, Mask::window(64, 0)).bias(BiasSpec{bf16, {}}), "bias_route:copied"),
              HasSubstr("there is room for 2"));
  EXPECT_THAT(too_much(problem(128, Mask::window(64, 0)), "pipeline:ahead"), HasSubstr("there is room for 0"));
  EXPECT_THAT(too_much(problem(128).dropout(0.1), "tile_q:48"), HasSubstr("there is room for 1"));
}

/// What a plan on a GPU of so many multiprocessors launches.
std::vector<std::string> launches(const Problem& of, std::string_view algo = "", int multiprocessors = 132) {
  const auto d = static_cast<int>(of.d());
  const auto kernel = make_hopper_backward(forced_backward_line(d, d, HopperBackwardAlgo::parse(algo)), nullptr);
  Device device;
  device.multiprocessors = multiprocessors;
  std::vector<std::string> purposes;
  for (const auto& step : kernel->steps(of, device)) purposes.push_back(step.purpose);
  return purposes;
}

/// One head of K and V, as a model divided among eight GPUs has: 64 tiles of keys for 132 multiprocessors.
TEST(HopperBackwardParts, are_made_where_tiles_are_too_few) {
  const Problem one_head = problem(128, Mask::causal()).batch(1).heads(8, 1).lengths(8192, 8192);
  EXPECT_EQ(launches(one_head),
            (std::vector<std::string>{"D and LSE of rows", "dK and dV of 8 parts of each group, and the sum of dQ",
                                      "dQ", "dK and dV"}));
  const std::vector<std::string> whole{"D and LSE of rows", "dK, dV and the sum of dQ", "dQ"};
  EXPECT_EQ(launches(Problem(one_head).heads(8, 8)), whole);  // nothing to divide
  EXPECT_EQ(launches(Problem(one_head).batch(64)), whole);    // tiles enough
  EXPECT_EQ(launches(one_head, "", 2), whole);                // for so small a GPU, too
  EXPECT_EQ(launches(one_head, "parts:1"), whole);            // told so
  // A launch more would cost more than it saves.
  EXPECT_EQ(launches(Problem(one_head).heads(2, 1).lengths(64, 64)), whole);
  // With an order of sums one sequence decides, so that the batch changes no bit.
  const Problem ordered = Problem(one_head).deterministic(true);
  EXPECT_EQ(launches(Problem(ordered).batch(64)), launches(ordered));
  EXPECT_EQ(launches(ordered).size(), 4u);
  EXPECT_EQ(launches(Problem(ordered).batch(4).mode(Mode::group).total_rows(8192, 8192)), whole);
  EXPECT_EQ(launches(one_head, "parts:2").at(1), "dK and dV of 2 parts of each group, and the sum of dQ");
}

TEST(HopperBackwardShared, gradients_have_launches_of_their_own_behind_the_others) {
  const std::vector<std::string> plain = launches(problem(64));
  const auto behind = [&](const Problem& of) {
    std::vector<std::string> list = launches(of);
    EXPECT_EQ(std::vector(list.begin(), list.begin() + 3), plain);
    list.erase(list.begin(), list.begin() + 3);
    return list;
  };
  const BiasSpec bias{f16, {.head = true, .query = true}};
  EXPECT_THAT(behind(problem(64).bias(bias)), testing::IsEmpty());
  EXPECT_THAT(behind(problem(64).bias(bias).dbias(f16)), testing::ElementsAre("LSE and D of rows", "dBias"));
  EXPECT_THAT(behind(problem(64).sink(true).dsink(true)), testing::ElementsAre("LSE and D of rows", "sums over rows"));
  EXPECT_THAT(behind(problem(64).bias(bias).dbias(f16).sink(true).dsink(true)),
              testing::ElementsAre("LSE and D of rows", "dBias", "sums over rows"));
}

}  // namespace
}  // namespace heed::cuda
