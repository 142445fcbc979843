#include "cuda/portable_backward.hpp"

#include "cuda/backward_params.hpp"
#include "dispatch/backward_family.hpp"
#include "dispatch/registry.hpp"

#include <heed/executor.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace heed::cuda {
namespace {

constexpr kernels::PortableDevice kHopper{90, 227 * 1024};
constexpr int kMultiprocessors = 132;

Problem problem() {
  return Problem::backward().type(DataType::bf16).batch(2).heads(8, 2).lengths(100, 200).head_dims(128);
}

std::vector<kernels::BackwardPart> parts(const Problem& p, int multiprocessors = kMultiprocessors) {
  std::vector<kernels::BackwardPart> list;
  for (const kernels::PortableBackwardConfig& config : PortableBackwardConfigs(p, kHopper, multiprocessors))
    list.push_back(config.part);
  return list;
}

TEST(PortableBackward, has_a_step_for_what_is_asked_and_no_other) {
  using enum kernels::BackwardPart;
  EXPECT_THAT(parts(problem()), testing::ElementsAre(rows, together, gather));
  EXPECT_THAT(parts(problem().head_dims(256)), testing::ElementsAre(rows, together, gather));
  const BiasSpec bias32{DataType::f32, {.head = true}};
  EXPECT_THAT(parts(problem().bias(bias32)), testing::ElementsAre(rows, together, gather));
  const Problem dbias = problem().bias(bias32).dbias(DataType::f32);
  EXPECT_THAT(parts(dbias), testing::ElementsAre(rows, together, gather, bias));
  EXPECT_THAT(parts(Problem(dbias).batch(9)), testing::ElementsAre(rows, together, gather, bias, bias_sum));
  EXPECT_THAT(parts(problem().sink(true)), testing::ElementsAre(rows, together, gather));
  EXPECT_THAT(parts(problem().sink(true).dsink(true)), testing::ElementsAre(rows, together, gather, sums));
  const Problem alibi = problem().alibi(Alibi::per_head);
  EXPECT_THAT(parts(alibi), testing::ElementsAre(rows, together, gather));
  EXPECT_THAT(parts(Problem(alibi).dslopes(true)), testing::ElementsAre(rows, keys_values, queries, sums));
}

TEST(PortableBackward, has_an_owner_for_every_row_where_the_order_matters_or_rows_are_few) {
  using enum kernels::BackwardPart;
  EXPECT_THAT(parts(problem().deterministic(true)), testing::ElementsAre(rows, keys_values, queries));
  EXPECT_THAT(parts(problem().lengths(63, 200)), testing::ElementsAre(rows, keys_values, queries));
  EXPECT_THAT(parts(problem().math(Math::accurate)), testing::ElementsAre(rows, keys_values, queries));
  EXPECT_THAT(parts(problem().output_type(DataType::f32)), testing::ElementsAre(rows, keys_values, queries));
  EXPECT_THAT(parts(problem().head_dims(256).deterministic(true)), testing::ElementsAre(rows, values, keys, queries));
}

TEST(PortableBackward, divides_sums_of_dbias_where_its_tiles_are_few) {
  const auto configs = [](const Broadcast& shape, std::int64_t s, int multiprocessors) {
    return PortableBackwardConfigs(
        problem().batch(16).lengths(s, s).bias(BiasSpec{DataType::bf16, shape}).dbias(DataType::bf16), kHopper,
        multiprocessors);
  };
  EXPECT_EQ(configs({.query = true}, 4096, kMultiprocessors).dbias_parts(), 1);
  EXPECT_EQ(configs({.query = true}, 4096, kMultiprocessors).dbias_floats(), 0);
  const PortableBackwardConfigs few = configs({.query = true}, 256, kMultiprocessors);  // 2 x 2 tiles of 128 x 128
  EXPECT_EQ(few.dbias_parts(), 32);
  EXPECT_EQ(few.dbias_floats(), 32 * 256 * 256);
  EXPECT_EQ(configs({.batch = true, .head = true, .query = true}, 64, kMultiprocessors).dbias_parts(), 1)
      << "every entry has one pair of batch entry and head";
  EXPECT_EQ(configs({.head = true, .query = true}, 100, kMultiprocessors).dbias_parts(), 16);
  EXPECT_EQ(configs({.query = true}, 256, 1).dbias_parts(), 1);
  EXPECT_EQ(configs({.query = true, .key = false}, 256, kMultiprocessors).dbias_floats(), 64 * 256 * 128)
      << "one column for all keys is one tile of them";
}

TEST(PortableBackward, copies_by_what_the_strides_allow) {
  const auto bytes = [](const Problem& p) {
    return PortableBackwardConfigs(p, kHopper, kMultiprocessors).begin()[1].row_bytes;
  };
  EXPECT_EQ(bytes(problem()), 16);
  EXPECT_EQ(bytes(problem().head_dims(100, 100)), 8);
  EXPECT_EQ(bytes(problem().head_dims(33, 33)), 2);
  EXPECT_EQ(bytes(problem().aligned(false)), 2);
  EXPECT_EQ(bytes(problem().type(DataType::f32).output_type(DataType::f32).aligned(false)), 4);
  const Strides column_major{200 * 2 * 128, 1, 200 * 128, 200};
  EXPECT_EQ(bytes(problem().strides(Operand::v, column_major)), 2);
}

TEST(PortableBackward, takes_every_problem_that_is_one) {
  for (const dispatch::BackwardKernelSpec& spec : portable_backward_specs()) {
    const auto kernel = make_portable_backward(spec, nullptr);
    Problem p = problem().head_dims(1000, 1).deterministic(true).accumulate(DataType::bf16);
    p.type(spec.signature.types.has(DataType::f32) ? DataType::f32 : DataType::bf16).output_type(p.type());
    if (!spec.signature.math.has(Math::fast)) p.math(Math::accurate);
    if (p.type() == DataType::f32) p.accumulate(DataType::f32);
    dispatch::Registry registry;
    registry.add(kernel);
    EXPECT_EQ(dispatch::kBackwardFamily.select(registry, p, {}), kernel) << spec.stem;
    EXPECT_GT(kernel->expected_seconds(p), 0.0);
  }
}

TEST(BackwardWorkspace, leaves_the_counters_alone_and_has_room_for_every_row) {
  const BackwardWorkspace plain = divide_workspace(problem(), {.row_space = packed_row_space(problem())});
  EXPECT_EQ(plain.row_space, 2 * 112);  // each sequence from a multiple of 16 on
  EXPECT_GE(plain.row_lse, kCounterBytes);
  EXPECT_EQ(plain.row_dot - plain.row_lse, std::size_t{8 * 224 * 4});
  EXPECT_EQ(plain.bytes, plain.row_lse + 2 * 8 * 224 * 4);
  const Problem with_sink = problem().sink(true).dsink(true);
  EXPECT_EQ(divide_workspace(with_sink, {.row_space = 224}).bytes, plain.row_lse + 4 * 8 * 224 * 4);
  const BackwardWorkspace behind = divide_workspace(problem(), {.begin = plain.bytes, .row_space = 224});
  EXPECT_GE(behind.row_lse, plain.bytes);
  EXPECT_EQ(behind.bytes - behind.row_lse, plain.bytes - plain.row_lse);
  EXPECT_EQ(packed_row_space(problem().mode(Mode::group).total_rows(333, 444)), 320 + 2 * 16);
  for (const std::size_t at : {plain.row_lse, plain.row_dot, plain.row_part, plain.dq_sum, plain.turns})
    EXPECT_EQ(at % 256, 0u);
}

class BackwardParamsTest : public testing::Test {
 protected:
  kernels::BackwardParams params(const BackwardArgs& args) {
    const Problem p = Problem::of(args, Memory::gpu);
    const BackwardWorkspace workspace = divide_workspace(p, {.row_space = packed_row_space(p)});
    memory_.resize(workspace.bytes);
    return backward_params(
        {.problem = p, .args = args, .workspace = memory_, .executor = executor_, .threads = 1, .prepared = nullptr},
        workspace);
  }
  /// Views of memory that nobody reads.
  TensorView view(DataType type, std::initializer_list<std::int64_t> sizes) {
    next_ += std::int64_t{1} << 30;
    return {reinterpret_cast<const void*>(next_), type, sizes};
  }
  OutputView output(DataType type, std::initializer_list<std::int64_t> sizes) {
    next_ += std::int64_t{1} << 30;
    return {reinterpret_cast<void*>(next_), type, sizes};
  }
  BackwardArgs args(std::int64_t heads = 4) {
    BackwardArgs a;
    a.forward.q = view(f16, {2, 5, heads, 64});
    a.forward.k = view(f16, {2, 7, 2, 64});
    a.forward.v = view(f16, {2, 7, 2, 32});
    a.forward.o = output(f16, {2, 5, heads, 32});
    a.forward.lse = output(f32, {2, heads, 5});
    a.d_o = view(f16, {2, 5, heads, 32});
    a.dq = output(f16, {2, 5, heads, 64});
    a.dk = output(f16, {2, 7, 2, 64});
    a.dv = output(f16, {2, 7, 2, 32});
    return a;
  }

 private:
  std::int64_t next_ = 0;
  std::vector<std::byte> memory_;
  SerialExecutor executor_;
};

TEST_F(BackwardParamsTest, tell_the_sizes_of_a_bias_that_was_broadcast) {
  BackwardArgs a = args();
  a.forward.bias = view(f16, {4, 1, 7});  // [h, 1, s_k]: no batch
  a.dbias = output(f32, {4, 1, 7});
  const kernels::BackwardParams p = params(a);
  EXPECT_EQ(p.d_bias_batch, 1);
  EXPECT_EQ(p.d_bias_heads, 4);
  EXPECT_EQ(p.d_bias_rows, 1);
  EXPECT_EQ(p.d_bias_columns, 7);
  EXPECT_EQ(p.d_bias_steps.head, 7);
  EXPECT_EQ(p.d_bias_steps.column, 1);
  EXPECT_EQ(p.forward.group, 2);
}

// There are keys, and their gradients must be written.
TEST_F(BackwardParamsTest, let_keys_without_query_heads_have_heads_without_rows) {
  const kernels::BackwardParams p = params(args(0));
  EXPECT_EQ(p.forward.heads, 2);
  EXPECT_EQ(p.forward.group, 1);
  EXPECT_EQ(p.forward.s_q, 0);
  EXPECT_EQ(p.forward.longest_q, 0);
}

}  // namespace
}  // namespace heed::cuda
