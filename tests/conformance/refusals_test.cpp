/// Bad input is refused before anything is written, with a text that names what is wrong.

#include "conformance/conformance.hpp"

#include <heed/error.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace heed::conformance {
namespace {

class Refusals : public Conformance {
 public:
  /// Changes the arguments of a good call and expects the refusal to speak of `word`.
  void expect_refused(const Case& c, const std::function<void(ForwardArgs&)>& spoil, const std::string& word) const {
    Buffers buffers(c);
    spoil(buffers.args());
    buffers.remember_inputs();
    try {
      target().forward(buffers, buffers.args());
      ADD_FAILURE() << "accepted: " << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), testing::HasSubstr(word));
    }
    EXPECT_TRUE(buffers.outputs_untouched()) << word;
    EXPECT_TRUE(buffers.check_guards().empty()) << word;
  }
};

#define REFUSAL(sentence) TEST_P(Refusals, sentence)

Case grouped() {
  Case c = small();
  c.mode = Mode::group;
  c.b = 3;
  c.s_q = {5, 9, 4}, c.s_k = {12, 3, 20};
  c.index_type = i64;
  return c;
}

void set_index(TensorView& view, std::int64_t at, std::int64_t value) {
  static_cast<std::int64_t*>(const_cast<void*>(view.data))[at] = value;
}

REFUSAL(heads_that_cannot_be_shared) {
  Case c = small();
  expect_refused(
      c, [](ForwardArgs& args) { args.k.sizes[2] = args.v.sizes[2] = 3; }, "h = 4");
}

REFUSAL(tensors_that_do_not_fit_together) {
  const Case c = small();
  expect_refused(
      c, [](ForwardArgs& args) { args.k.sizes[3] = 15; }, "k is");
  expect_refused(
      c, [](ForwardArgs& args) { args.v.sizes[1] = 69; }, "v is");
  expect_refused(
      c, [](ForwardArgs& args) { args.o.sizes[1] = 32; }, "o is");
  expect_refused(
      c, [](ForwardArgs& args) { args.k.sizes[0] = 1; }, "k is");
  expect_refused(
      c, [](ForwardArgs& args) { args.q.rank = 3; }, "q is");
  expect_refused(
      c, [](ForwardArgs& args) { args.k.type = f16; }, "of one type");
  expect_refused(
      c, [](ForwardArgs& args) { args.q.sizes[1] = -1; }, "q is");
  expect_refused(
      c, [](ForwardArgs& args) { args.lse.sizes[2] = 32; }, "lse is");
  expect_refused(
      c, [](ForwardArgs& args) { args.lse.type = f16; }, "lse is");
  expect_refused(
      c, [](ForwardArgs& args) { args.q = {}; }, "q is not given");
  expect_refused(
      c, [](ForwardArgs& args) { args.v.data = nullptr; }, "null");
}

REFUSAL(strides_that_no_kernel_reads_and_outputs_that_overlap) {
  const Case c = small();
  expect_refused(
      c, [](ForwardArgs& args) { args.q.strides[3] = 2; }, "stride of the head dim is 2");
  expect_refused(
      c, [](ForwardArgs& args) { args.v.strides[3] = 2; }, "must be 1");
  expect_refused(
      c, [](ForwardArgs& args) { args.o.strides[0] = 0; }, "overlaps itself");
  expect_refused(
      c, [](ForwardArgs& args) { args.lse.strides[1] = 0; }, "overlaps itself");
  expect_refused(
      c, [](ForwardArgs& args) { args.o.data = const_cast<void*>(args.q.data); }, "overlap");
}

REFUSAL(numbers_out_of_range) {
  const Case c = small();
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, infinity, -infinity})
    expect_refused(
        c, [=](ForwardArgs& args) { args.scale = bad; }, "scale");
  for (const double bad : {nan, infinity, -1.0})
    expect_refused(
        c, [=](ForwardArgs& args) { args.soft_cap = bad; }, "soft_cap");
  for (const double bad : {nan, 1.0, 1.5, -0.1})
    expect_refused(
        c, [=](ForwardArgs& args) { args.dropout.p = bad; }, "dropout");
}

REFUSAL(features_of_the_wrong_shape_or_type) {
  Case c = small();
  c.bias = BiasSpec{f32, {.head = true, .query = true}};
  c.bool_mask = Broadcast{.query = true};
  c.alibi = Alibi::per_batch_and_head;
  c.sink = SinkInit::normal;
  c.block_mask = BlockMaskSpec{16, 16, {.query = true}};
  c.p_drop = 0.5;
  c.randval = true;
  expect_refused(
      c, [](ForwardArgs& args) { args.bias.sizes[3] = 69; }, "bias");
  expect_refused(
      c, [](ForwardArgs& args) { args.bias.sizes[1] = 2; }, "bias");
  expect_refused(
      c, [](ForwardArgs& args) { args.bias.type = f16; }, "bias");
  expect_refused(
      c, [](ForwardArgs& args) { args.bool_mask.type = i32; }, "bool_mask");
  expect_refused(
      c, [](ForwardArgs& args) { args.bool_mask.sizes[2] = 32; }, "bool_mask");
  expect_refused(
      c, [](ForwardArgs& args) { args.alibi_slopes.sizes[1] = 3; }, "alibi_slopes");
  expect_refused(
      c, [](ForwardArgs& args) { args.sink.sizes[0] = 3; }, "sink");
  expect_refused(
      c, [](ForwardArgs& args) { args.block_mask.block_q = 0; }, "block_mask");
  expect_refused(
      c, [](ForwardArgs& args) { args.block_mask.block_k = 8; }, "block_mask");
  expect_refused(
      c, [](ForwardArgs& args) { args.dropout.randval.sizes[3] = 69; }, "randval");
}

/// Two sequences have rows that do not count.
Case padded() {
  Case c = grouped();
  c.s_qpad = {6, 9, 5}, c.s_kpad = {12, 4, 20};
  return c;
}

REFUSAL(museum_17_lists_that_do_not_fit_the_tensors) {
  const Case c = grouped();
  expect_refused(
      c, [](ForwardArgs& args) { args.seqstart_k = {}; }, "without seqstart_k");
  expect_refused(
      c, [](ForwardArgs& args) { args.seqstart_k.sizes[0] = 3; }, "seqstart");
  expect_refused(
      c, [](ForwardArgs& args) { args.seqstart_q.type = f32; }, "seqstart_q");
  expect_refused(
      padded(), [](ForwardArgs& args) { args.seqlen_k.sizes[0] = 2; }, "seqlen_k has 2 entries");
  expect_refused(
      c, [](ForwardArgs& args) { args.max_s_q = -5; }, "max_s_q = -5");
  expect_refused(
      small(), [](ForwardArgs& args) { args.max_s_k = 70; }, "max_s_k = 70");
}

/// Offsets and lengths of `padded` that make no sense, each with what a refusal says of it.
const std::vector<std::pair<std::function<void(ForwardArgs&)>, std::string>>& senseless_lists() {
  static const std::vector<std::pair<std::function<void(ForwardArgs&)>, std::string>> list{
      {[](ForwardArgs& args) { set_index(args.seqstart_q, 1, 18); }, "may not decrease"},
      {[](ForwardArgs& args) { set_index(args.seqstart_k, 0, -1); }, "seqstart_k[0] = -1"},
      {[](ForwardArgs& args) { set_index(args.seqstart_k, 3, 37); }, "beyond the 36 rows"},
      {[](ForwardArgs& args) { set_index(args.seqstart_q, 3, std::int64_t{1} << 40); }, "beyond the 20 rows"},
      {[](ForwardArgs& args) { set_index(args.seqlen_q, 0, 7); }, "seqlen_q[0] = 7"},
      {[](ForwardArgs& args) { set_index(args.seqlen_q, 2, 1000); }, "seqlen_q[2] = 1000"},
      {[](ForwardArgs& args) { set_index(args.seqlen_k, 1, -2); }, "seqlen_k[1] = -2"},
  };
  return list;
}

REFUSAL(museum_17_offsets_and_lengths_that_make_no_sense) {
  if (on_gpu()) GTEST_SKIP() << "nobody reads them before the kernel does";
  for (const auto& [spoil, word] : senseless_lists()) expect_refused(padded(), spoil, word);
  expect_refused(
      grouped(), [](ForwardArgs& args) { args.max_s_k = 19; }, "max_s_k = 19");
}

// What is in GPU memory is read by kernels alone: they cut it, and touch nothing beyond the tensors.
REFUSAL(museum_17_lists_in_GPU_memory_reach_no_further_than_the_tensors) {
  if (!on_gpu()) GTEST_SKIP() << "what lies in host memory is checked";
  for (const auto& [spoil, word] : senseless_lists()) {
    Buffers buffers(padded());
    spoil(buffers.args());
    buffers.remember_inputs();
    target().forward(buffers, buffers.args());
    for (const std::string& change : buffers.check_guards())
      EXPECT_THAT(change, testing::AnyOf(testing::StartsWith("o changed at"), testing::StartsWith("lse changed at")))
          << word;
    expect_matches_oracle(padded());
  }
}

// A sequence that is longer than what was told has more queries and keys than the tensors over scores.
REFUSAL(museum_17_sequences_longer_than_told_reach_no_further_than_the_tensors) {
  if (!on_gpu()) GTEST_SKIP() << "what lies in host memory is checked";
  Case c = grouped();
  c.p_drop = 0.5, c.randval = true;
  c.bias = BiasSpec{f32, {.batch = true, .head = true, .query = true}};
  for (const auto& [at_q, at_k] : {std::pair{14, 12}, std::pair{5, 35}, std::pair{14, 35}}) {
    Buffers buffers(c);
    set_index(buffers.args().seqstart_q, 1, at_q);
    set_index(buffers.args().seqstart_k, 1, at_k);
    buffers.remember_inputs();
    target().forward(buffers, buffers.args());
    for (const std::string& change : buffers.check_guards())
      EXPECT_THAT(change, testing::AnyOf(testing::StartsWith("o changed at"), testing::StartsWith("lse changed at"),
                                         testing::StartsWith("randval changed at")));
    expect_matches_oracle(c);
  }
}

INSTANTIATE_TEST_SUITE_P(On, Refusals, testing::ValuesIn(engines()),
                         [](const testing::TestParamInfo<Engine>& each) { return each.param.name; });

}  // namespace
}  // namespace heed::conformance
