#include "cuda/hopper_backward_lines.hpp"

#include "cuda/hopper_backward.hpp"
#include "dispatch/backward_family.hpp"
#include "dispatch/registry.hpp"

#include <gtest/gtest.h>

#include <string>

namespace heed::cuda {
namespace {

std::string backward_line_for(const Problem& problem) {
  dispatch::Registry registry;
  for (const HopperBackwardLine& line : hopper_backward_lines()) registry.add(make_hopper_backward(line, nullptr));
  return dispatch::kBackwardFamily.select(registry, problem, {})->name();
}
std::string backward_line(const std::string& line) { return "cuda/sm_90/hopper_bwd_" + line; }

Problem with_bias(std::int64_t d, DataType type, const Mask& mask = Mask::none()) {
  return Problem::backward()
      .type(DataType::bf16)
      .batch(4)
      .heads(16, 16)
      .lengths(4096, 4096)
      .head_dims(d)
      .mask(mask)
      .bias(BiasSpec{type, {.head = true, .query = true}});
}

TEST(HopperBackwardLines, copy_a_bias_of_16_bits) {
  for (const Mask& mask : {Mask::none(), Mask::causal(), Mask::window(1023, 0)})
    for (const std::int64_t d : {64, 128}) {
      const std::string name = "d" + std::to_string(d) + "_bias";
      const Problem problem = with_bias(d, DataType::bf16, mask);
      EXPECT_EQ(backward_line_for(problem), backward_line(name));
      EXPECT_EQ(backward_line_for(Problem(problem).sink(true).dsink(true).dbias(DataType::bf16)), backward_line(name));
      EXPECT_EQ(backward_line_for(Problem(problem).mode(Mode::group).total_rows(16384, 16384)), backward_line(name));
    }
  EXPECT_EQ(backward_line_for(with_bias(128, DataType::bf16).deterministic(true)), backward_line("d128_bias"));
}

TEST(HopperBackwardLines, load_other_biases) {
  EXPECT_EQ(backward_line_for(with_bias(64, DataType::f32)), backward_line("d64_features"));
  EXPECT_EQ(backward_line_for(with_bias(128, DataType::f32)), backward_line("d128"));
  EXPECT_EQ(backward_line_for(with_bias(64, DataType::bf16).dropout(0.1)), backward_line("d64_features"));
  EXPECT_EQ(backward_line_for(with_bias(64, DataType::bf16).lengths(4096, 4095)), backward_line("d64_features"))
      << "rows of an odd number of keys are no whole words";
}

}  // namespace
}  // namespace heed::cuda
