/// What Problem::of makes of BackwardArgs, and what it refuses.

#include "core/expect_invalid.hpp"
#include "core/forward_buffers.hpp"

#include <heed/backward.hpp>
#include <heed/problem.hpp>
#include <heed/work.hpp>

#include <gtest/gtest.h>

#include <functional>

namespace heed {
namespace {

/// BatchBuffers with everything backward takes. b = 2, s_q = 3, s_k = 5, h = 4, h_k = 2, d = 8, d_v = 6; all f32.
struct BackwardBuffers : BatchBuffers {
  std::vector<float> d_o = o, dq = q, dk = k, dv = v, d_lse = lse, bias = std::vector<float>(4 * 3 * 5), dbias = bias;
  std::vector<float> sink = std::vector<float>(4), dsink = sink, slopes = sink, dslopes = sink;

  BackwardArgs backward_args() {
    BackwardArgs args{.forward = args_with_lse(),
                      .d_o = {d_o.data(), f32, {2, 3, 4, 6}},
                      .dq = {dq.data(), f32, {2, 3, 4, 8}},
                      .dk = {dk.data(), f32, {2, 5, 2, 8}},
                      .dv = {dv.data(), f32, {2, 5, 2, 6}},
                      .d_lse = {d_lse.data(), f32, {2, 4, 3}}};
    args.forward.bias = {bias.data(), f32, {4, 3, 5}};
    args.forward.sink = {sink.data(), f32, {4}};
    args.forward.alibi_slopes = {slopes.data(), f32, {4}};
    args.dbias = {dbias.data(), f32, {4, 3, 5}};
    args.dsink = {dsink.data(), f32, {4}};
    args.dslopes = {dslopes.data(), f32, {4}};
    return args;
  }

 private:
  ForwardArgs args_with_lse() {
    ForwardArgs forward = args();
    forward.lse = {lse.data(), f32, {2, 4, 3}};
    return forward;
  }
};

void refuses(const std::function<void(BackwardArgs&, BackwardBuffers&)>& change,
             std::initializer_list<const char*> pieces) {
  BackwardBuffers buffers;
  BackwardArgs args = buffers.backward_args();
  ASSERT_NO_THROW(Problem::of(args));
  change(args, buffers);
  expect_invalid([&] { Problem::of(args); }, pieces);
}

TEST(BackwardArgs, pose_a_problem_that_knows_what_is_asked) {
  BackwardBuffers buffers;
  BackwardArgs args = buffers.backward_args();
  args.deterministic = true;
  const Problem p = Problem::of(args);
  EXPECT_EQ(p.operation(), Operation::backward);
  EXPECT_TRUE(p.lse() && p.d_lse() && p.dsink() && p.dslopes() && p.deterministic());
  EXPECT_EQ(p.dbias(), f32);
  EXPECT_EQ(p.accumulate(), f32);
  EXPECT_EQ(p.strides(Operand::dv), (Strides{60, 12, 6, 1}));
  EXPECT_EQ(Problem::from_json(p.to_json()), p);
  EXPECT_NE(Problem::from_json(p.to_json()).dslopes(false), p);
}

TEST(BackwardArgs, need_what_the_pass_reads_and_writes) {
  refuses([](BackwardArgs& a, auto&) { a.forward.lse = {}; }, {"lse is not given", "forward pass wrote"});
  refuses([](BackwardArgs& a, auto&) { a.d_o = {}; }, {"d_o is not given"});
  refuses([](BackwardArgs& a, auto&) { a.dq = {}; }, {"dq is not given"});
  refuses([](BackwardArgs& a, auto&) { a.dk = {}; }, {"dk is not given"});
  refuses([](BackwardArgs& a, auto&) { a.dv = {}; }, {"dv is not given"});
  refuses([](BackwardArgs& a, auto&) { a.forward.q = {}; }, {"q is not given"});
}

TEST(BackwardArgs, have_the_shapes_of_what_they_are_gradients_of) {
  refuses([](BackwardArgs& a, auto&) { a.d_o.sizes[1] = 2; }, {"d_o is [2, 2, 4, 6]", "[2, 3, 4, 6], like o"});
  refuses([](BackwardArgs& a, auto&) { a.d_o.rank = 3; }, {"d_o is", "like o"});
  refuses([](BackwardArgs& a, auto&) { a.dq.sizes[3] = 6; }, {"dq is", "like q"});
  refuses([](BackwardArgs& a, auto&) { a.dk.sizes[2] = 4; }, {"dk is [2, 5, 4, 8]", "[2, 5, 2, 8], like k"});
  refuses([](BackwardArgs& a, auto&) { a.dv.sizes[1] = 4; }, {"dv is", "like v"});
  refuses([](BackwardArgs& a, auto&) { a.d_lse.sizes[2] = 2; }, {"d_lse is", "like lse"});
  refuses([](BackwardArgs& a, auto&) { a.dbias.sizes[0] = 1; }, {"dbias is [1, 3, 5]", "like bias"});
  refuses([](BackwardArgs& a, auto&) { a.dsink.sizes[0] = 3; }, {"dsink is [3]", "like sink"});
  refuses([](BackwardArgs& a, auto&) { a.forward.lse.sizes[1] = 3; }, {"lse is [2, 3, 3]", "heads h of q"});
}

TEST(BackwardArgs, have_types_that_fit) {
  refuses([](BackwardArgs& a, auto&) { a.d_o.type = f16; }, {"d_o is f16", "o is f32"});
  refuses([](BackwardArgs& a, auto&) { a.dk.type = f16; }, {"dq, dk and dv are f32, f16 and f32", "one type"});
  refuses([](BackwardArgs& a, auto&) { a.dq.type = a.dk.type = a.dv.type = bf16; }, {"bf16", "q, k and v are f32"});
  refuses([](BackwardArgs& a, auto&) { a.forward.lse.type = f16; }, {"lse is f16", "must be f32"});
  refuses([](BackwardArgs& a, auto&) { a.d_lse.type = bf16; }, {"d_lse is bf16", "must be f32"});
  refuses([](BackwardArgs& a, auto&) { a.dbias.type = f16; }, {"dbias is f16", "must be f32"});
  refuses([](BackwardArgs& a, auto&) { a.dsink.type = f16; }, {"dsink is f16", "must be f32"});
  refuses([](BackwardArgs& a, auto&) { a.dq_accumulation = f16; }, {"dq_accumulation = f16", "f32"});
  refuses([](BackwardArgs& a, auto&) { a.dq_accumulation = i64; }, {"dq_accumulation = i64"});
}

TEST(BackwardArgs, ask_for_no_gradient_of_what_is_not_there) {
  refuses([](BackwardArgs& a, auto&) { a.forward.bias = {}; }, {"dbias is asked for, but there is no bias"});
  refuses([](BackwardArgs& a, auto&) { a.forward.sink = {}; }, {"dsink is asked for, but there is no sink"});
  refuses([](BackwardArgs& a, auto&) { a.forward.alibi_slopes = {}; },
          {"dslopes is asked for, but there is no alibi_slopes"});
}

TEST(BackwardArgs, keep_outputs_apart) {
  refuses([](BackwardArgs& a, auto&) { a.dq.data = const_cast<void*>(a.forward.q.data); }, {"dq and q overlap"});
  refuses([](BackwardArgs& a, BackwardBuffers& b) { a.dv.data = b.dk.data(); }, {"dk and dv overlap"});
  refuses([](BackwardArgs& a, auto&) { a.dk.data = a.forward.o.data; }, {"dk and o overlap"});
  refuses([](BackwardArgs& a, BackwardBuffers& b) { a.dsink.data = b.dslopes.data(); }, {"dsink and dslopes overlap"});
  refuses([](BackwardArgs& a, auto&) { a.dq.strides[2] = 4; }, {"dq overlaps itself"});
  refuses([](BackwardArgs& a, auto&) { a.dbias.strides[0] = 0; }, {"dbias overlaps itself"});
  refuses([](BackwardArgs& a, auto&) { a.dv.strides = {60, 1, 30, 5}; }, {"dv: the stride of the head dim is 5"});
  refuses([](BackwardArgs& a, auto&) { a.dq.data = nullptr; }, {"dq is", "its data is null"});
}

TEST(BackwardArgs, take_an_o_and_a_d_o_that_repeat_themselves) {
  BackwardBuffers buffers;
  BackwardArgs args = buffers.backward_args();
  args.d_o.strides = {0, 0, 0, 1};
  EXPECT_NO_THROW(Problem::of(args));
}

TEST(BackwardArgs, leave_the_random_words_alone) {
  BackwardBuffers buffers;
  BackwardArgs args = buffers.backward_args();
  args.forward.dropout = {.p = 0.5, .seed = 1, .offset = 2, .randval = {}};
  const Problem without = Problem::of(args);
  args.forward.dropout.randval = {buffers.other.data(), u16, {2, 4, 3, 5}};
  EXPECT_EQ(Problem::of(args), without);
}

TEST(BackwardArgs, count_five_products_for_two) {
  BackwardBuffers buffers;
  BackwardArgs args = buffers.backward_args();
  const Work forward = work_of(args.forward), backward = work_of(args);
  EXPECT_EQ(backward.visible_pairs, forward.visible_pairs);
  EXPECT_EQ(backward.flops, 2 * forward.visible_pairs * (3 * 8 + 2 * 6));
  // q, k, v, o and as many again, LSE twice, bias and dbias.
  EXPECT_EQ(backward.bytes, 4 * (2 * (192 + 160 + 120 + 144) + 2 * 24 + 2 * 60));
}

TEST(BackwardProblem, is_refused_where_it_contradicts_itself) {
  const auto broken = [](const Problem& p, const char* piece) {
    const auto error = p.validate();
    ASSERT_TRUE(error) << piece;
    EXPECT_NE(std::string(error->what()).find(piece), std::string::npos) << error->what();
  };
  EXPECT_FALSE(Problem::backward().validate());
  broken(Problem::backward().lse(false), "needs the lse");
  broken(Problem::backward().dbias(f32), "there is no bias");
  broken(Problem::backward().dsink(true), "there is no sink");
  broken(Problem::backward().dslopes(true), "no alibi_slopes");
  broken(Problem::backward().randval(true), "randval");
  broken(Problem::backward().type(f16).accumulate(bf16), "f32 or f16, the type of q");
  broken(Problem::forward().dsink(true), "this problem is forward");
}

}  // namespace
}  // namespace heed
