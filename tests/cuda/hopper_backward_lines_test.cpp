#include "cuda/hopper_backward_lines.hpp"

#include "cuda/backward_kernel.hpp"
#include "cuda/hopper_backward.hpp"
#include "dispatch/backward_family.hpp"
#include "dispatch/registry.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace heed::cuda {
namespace {

std::shared_ptr<const CudaBackwardKernel> backward_kernel_for(const Problem& problem) {
  dispatch::Registry registry;
  for (const HopperBackwardLine& line : hopper_backward_lines()) registry.add(make_hopper_backward(line, nullptr));
  return std::dynamic_pointer_cast<const CudaBackwardKernel>(dispatch::kBackwardFamily.select(registry, problem, {}));
}
std::string backward_line_for(const Problem& problem) { return backward_kernel_for(problem)->name(); }
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

TEST(HopperBackwardLines, have_owners_of_dq_for_one_order_and_for_few_keys) {
  for (const std::int64_t d : {192, 256}) {
    const std::string added = backward_line("d" + std::to_string(d)), owned = added + "_owned";
    const Problem plain = Problem::backward().type(DataType::f16).batch(4).heads(8, 8).head_dims(d).lse(true);
    const auto of = [&](std::int64_t s, const Mask& mask) { return Problem(plain).lengths(s, s).mask(mask); };
    EXPECT_EQ(backward_line_for(of(512, Mask::none())), owned);
    EXPECT_EQ(backward_line_for(of(1024, Mask::causal())), owned);
    EXPECT_EQ(backward_line_for(of(1024, Mask::none())), added);
    EXPECT_EQ(backward_line_for(of(4096, Mask::causal())), added);
    for (const Mask& mask : {Mask::none(), Mask::causal(), Mask::window(1023, 0)})
      EXPECT_EQ(backward_line_for(of(8192, mask).deterministic(true)), owned);
  }
}

TEST(HopperBackwardLines, have_an_order_for_dq_under_windows_without_sinks) {
  for (const std::int64_t d : {64, 128}) {
    const Problem plain =
        Problem::backward().type(DataType::f16).batch(4).heads(8, 8).head_dims(d).lengths(4096, 4096).lse(true);
    for (const Mask& mask : {Mask::window(1023, 0), Mask::window(100, 100), Mask::window(100, Mask::kUnlimited)}) {
      const Problem ordered = Problem(plain).mask(mask).deterministic(true);
      EXPECT_EQ(backward_line_for(ordered), backward_line_for(Problem(plain).mask(mask)));
    }
    const Problem with_sink = Problem(plain).mask(Mask::window(1023, 0, 4));
    EXPECT_NE(backward_line_for(Problem(with_sink).deterministic(true)), backward_line_for(with_sink));
  }
}

/// A tile of more columns than a head has costs more than it can save.
TEST(HopperBackwardLines, are_those_of_the_head_dim_at_every_length) {
  for (const std::int64_t d : {64, 128, 192, 256})
    for (const std::int64_t s : {64, 256, 512, 1024, 4096, 16384})
      for (const Mask& mask : {Mask::none(), Mask::causal()}) {
        const Problem problem = Problem::backward()
                                    .type(DataType::f16)
                                    .batch(4)
                                    .heads(8, 8)
                                    .head_dims(d)
                                    .lengths(s, s)
                                    .mask(mask)
                                    .lse(true);
        EXPECT_EQ(backward_line_for(problem).find(backward_line("d" + std::to_string(d))), 0u) << d << " " << s;
        EXPECT_EQ(backward_line_for(Problem(problem).deterministic(true)).find(backward_line("d" + std::to_string(d))),
                  0u);
      }
}

/// What the launches of a pass are for, one behind the other.
std::vector<std::string> purposes(const Problem& problem) {
  std::vector<std::string> list;
  for (const CudaBackwardKernel::Step& step : backward_kernel_for(problem)->steps(problem, Device{}))
    list.push_back(step.purpose);
  return list;
}

constexpr Broadcast kOwn{.batch = true, .head = true, .query = true};

TEST(HopperBackwardLines, store_dbias_beside_the_other_gradients_where_nobody_shares_it) {
  const std::vector<std::string> stored{"D and LSE of rows", "dK, dV, dBias and the sum of dQ", "dQ",
                                        "LSE and D of rows, if TMA cannot write dBias",
                                        "dBias, if TMA cannot write dBias"};
  for (const Mask& mask : {Mask::none(), Mask::causal(), Mask::window(1023, 0)})
    for (const std::int64_t d : {64, 128}) {
      const Problem problem = with_bias(d, DataType::bf16, mask).dbias(DataType::bf16);
      EXPECT_EQ(purposes(Problem(problem).bias(BiasSpec{DataType::bf16, kOwn})), stored);
      EXPECT_EQ(purposes(Problem(problem).batch(1)), stored) << "[1, h, s_q, s_k] of one batch entry";
      EXPECT_EQ(purposes(Problem(problem).batch(1).heads(1, 1).bias(BiasSpec{DataType::bf16, {.query = true}})),
                stored);
    }
  const Problem with_sink =
      with_bias(128, DataType::bf16).bias(BiasSpec{DataType::bf16, kOwn}).dbias(DataType::bf16).sink(true).dsink(true);
  EXPECT_EQ(purposes(with_sink),
            (std::vector<std::string>{"D and LSE of rows", "dK, dV, dBias and the sum of dQ", "dQ", "LSE and D of rows",
                                      "dBias, if TMA cannot write dBias", "sums over rows"}));
}

TEST(HopperBackwardLines, leave_other_gradients_of_biases_to_a_kernel_behind) {
  const std::vector<std::string> behind{"D and LSE of rows", "dK, dV and the sum of dQ", "dQ", "LSE and D of rows",
                                        "dBias"};
  for (const std::int64_t d : {64, 128}) {
    const Problem own = with_bias(d, DataType::bf16).bias(BiasSpec{DataType::bf16, kOwn}).dbias(DataType::bf16);
    const auto shared = [&](const Broadcast& shape) { return Problem(own).bias(BiasSpec{DataType::bf16, shape}); };
    EXPECT_EQ(purposes(shared({.head = true, .query = true})), behind) << "by the batch";
    EXPECT_EQ(purposes(shared({.batch = true, .query = true})), behind) << "by the heads";
    EXPECT_EQ(purposes(shared({.batch = true, .head = true})), behind) << "by the queries";
    EXPECT_EQ(purposes(shared({.batch = true, .head = true, .query = true, .key = false})), behind) << "by the keys";
    EXPECT_EQ(purposes(Problem(own).dbias(DataType::f32)), behind);
    EXPECT_EQ(purposes(Problem(own).bias(BiasSpec{DataType::f32, kOwn}).dbias(DataType::f32)), behind);
    EXPECT_EQ(purposes(Problem(own).lengths(4096, 4092)), behind) << "rows begin between multiples of 16 bytes";
    EXPECT_EQ(purposes(Problem(own).mode(Mode::group).total_rows(16384, 16384)), behind);
    EXPECT_EQ(purposes(Problem(own).logical_lengths(false, true)), behind);
    EXPECT_EQ(purposes(Problem(own).soft_cap(30)), behind);
    EXPECT_EQ(purposes(Problem(own).dropout(0.1)), behind);
    EXPECT_EQ(purposes(Problem(own).dbias(std::nullopt)),
              (std::vector<std::string>{"D and LSE of rows", "dK, dV and the sum of dQ", "dQ"}));
  }
}

TEST(HopperBackwardLines, leave_a_dbias_that_keys_share_alone_where_the_bias_is_told_to_be_copied) {
  const HopperBackwardLine copied = forced_backward_line(64, 64, HopperBackwardAlgo::parse("bias_route:copied"));
  const auto stores_dbias = [&](const Broadcast& shape) {
    const Problem problem = with_bias(64, DataType::bf16).bias(BiasSpec{DataType::bf16, shape}).dbias(DataType::bf16);
    return std::get<kernels::HopperBackwardConfig>(hopper_backward_choice(copied, problem).config).stores_dbias;
  };
  EXPECT_TRUE(stores_dbias(kOwn));
  EXPECT_FALSE(stores_dbias({.batch = true, .head = true, .query = true, .key = false}));
}

// Where nothing is told of the longest sequence, each of many may be as long as all of them together.
TEST(HopperBackwardLines, have_owners_of_dq_for_as_many_rows_as_a_launch_has_thread_blocks_for) {
  const Problem many = Problem::backward()
                           .type(DataType::bf16)
                           .mode(Mode::group)
                           .batch(70000)
                           .heads(32, 8)
                           .head_dims(256)
                           .total_rows(131072, 131072)
                           .lengths(131072, 131072)
                           .lse(true);
  for (const HopperBackwardLine& line : hopper_backward_lines()) {
    if (line.choice.d() != 256) continue;
    const bool owned = line.spec.stem.ends_with("_owned");
    const auto kernel = make_hopper_backward(line, nullptr);
    EXPECT_EQ(kernel->too_much(many) != "", owned) << line.spec.stem;
    EXPECT_EQ(kernel->too_much(Problem(many).lengths(64, 64)), "") << line.spec.stem;
  }
}

// There is no row whose launch would write them.
TEST(HopperBackwardLines, leave_what_an_empty_batch_shares_to_the_portable_family) {
  for (const HopperBackwardLine& line : hopper_backward_lines()) {
    const auto kernel = make_hopper_backward(line, nullptr);
    const Problem empty =
        Problem::backward().type(DataType::bf16).batch(0).heads(8, 8).lengths(512, 512).head_dims(line.choice.d());
    const BiasSpec bias{DataType::bf16, {.query = true}};
    if (!line.only_narrow_biases) {
      EXPECT_EQ(kernel->too_much(empty), "") << line.spec.stem;
    }
    EXPECT_NE(kernel->too_much(Problem(empty).bias(bias).dbias(DataType::bf16)), "") << line.spec.stem;
    EXPECT_NE(kernel->too_much(Problem(empty).sink(true).dsink(true)), "") << line.spec.stem;
  }
}

}  // namespace
}  // namespace heed::cuda
