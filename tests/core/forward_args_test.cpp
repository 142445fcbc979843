#include "core/forward_args_checks.hpp"

#include <cstdint>
#include <vector>

namespace heed {
namespace {

// ---- what is accepted ----

TEST(ForwardArgs, PoseTheProblemThatTheBuilderWouldSay) {
  BatchBuffers buffers;
  EXPECT_EQ(Problem::of(buffers.args()),
            Problem::forward().type(f32).batch(2).heads(4, 2).lengths(3, 5).head_dims(8, 6));
}

TEST(ForwardArgs, GroupModeTakesTheLongestSequenceAndAllRows) {
  GroupBuffers buffers;
  EXPECT_EQ(Problem::of(buffers.args()), Problem::forward()
                                             .type(f32)
                                             .mode(Mode::group)
                                             .batch(3)
                                             .heads(4, 2)
                                             .lengths(3, 4)
                                             .total_rows(6, 9)
                                             .head_dims(8, 6));
}

TEST(ForwardArgs, TheLongestSequenceIsTheLongestLogicalOne) {
  const Problem p = group_accepts([](ForwardArgs& a, GroupBuffers&) {
    static constexpr std::int32_t kLengths[] = {1, 2, 3};
    a.seqlen_k = {kLengths, i32, {3}};
  });
  EXPECT_EQ(p.s_q(), 3);
  EXPECT_EQ(p.s_k(), 3);
  EXPECT_TRUE(p.logical_k());
  EXPECT_FALSE(p.logical_q());
}

TEST(ForwardArgs, EverythingOptionalBecomesAFeature) {
  const Problem p = batch_accepts([](ForwardArgs& a, BatchBuffers& m) {
    a.lse = {m.lse.data(), f32, {2, 4, 3}};
    a.bias = {m.other.data(), f32, {4, 1, 5}};
    a.bool_mask = {m.other.data(), u8, {3, 5}};
    a.block_mask = {.keep = {m.other.data(), u8, {2, 1, 2, 2}}, .block_q = 2, .block_k = 4};
    a.alibi_slopes = {m.other.data(), f32, {2, 4}};
    a.sink = {m.other.data(), f32, {4}};
    a.dropout = {.p = 0.25, .seed = 1, .randval = {m.other.data() + 512, u16, {2, 4, 3, 5}}};
    a.scale = -0.5;
    a.soft_cap = 30;
    a.math = Math::accurate;
    a.mask = Mask::window(2, 0, 1);
  });
  EXPECT_EQ(p, Problem::forward()
                   .type(f32)
                   .batch(2)
                   .heads(4, 2)
                   .lengths(3, 5)
                   .head_dims(8, 6)
                   .lse(true)
                   .bias(BiasSpec{f32, {.batch = false, .head = true, .query = false, .key = true}})
                   .bool_mask(Broadcast{.query = true})
                   .block_mask(BlockMaskSpec{2, 4, {.batch = true, .head = false, .query = true, .key = true}})
                   .alibi(Alibi::per_batch_and_head)
                   .sink(true)
                   .dropout(0.25)
                   .randval(true)
                   .scale(-0.5)
                   .soft_cap(30)
                   .math(Math::accurate)
                   .mask(Mask::window(2, 0, 1)));
}

TEST(ForwardArgs, AnyLayoutThatStridesCanTellIsTaken) {
  const Problem by_head = batch_accepts([](ForwardArgs& a, BatchBuffers& m) {
    a.q = TensorView::bhsd(m.q.data(), f32, 2, 4, 3, 8);
    a.k = TensorView::bhsd(m.k.data(), f32, 2, 2, 5, 8);
    a.v = TensorView::bhsd(m.v.data(), f32, 2, 2, 5, 6);
    a.o = OutputView::bhsd(m.o.data(), f32, 2, 4, 3, 6);
  });
  EXPECT_EQ(by_head,
            Problem::forward().type(f32).batch(2).heads(4, 2).lengths(3, 5).head_dims(8, 6).layout(Layout::bhsd));
  batch_accepts([](ForwardArgs& a, BatchBuffers&) { a.k.strides = {0, 0, 0, 1}; });
  batch_accepts([](ForwardArgs& a, BatchBuffers&) { a.v.strides = {60, 1, 30, 5}; });
  batch_accepts([](ForwardArgs& a, BatchBuffers& m) {
    a.q.data = m.q.data() + 2 * 32;  // rows from last to first
    a.q.strides[1] = -32;
  });
}

TEST(ForwardArgs, AnOutputMayLieBetweenTheInputsOfOnePackedBuffer) {
  // [b, s, 4, h, d]
  std::vector<float> packed(2 * 3 * 4 * 2 * 8);
  const auto slice = [&](int n) { return OutputView{packed.data() + n * 16, f32, {2, 3, 2, 8}, {3 * 64, 64, 8, 1}}; };
  EXPECT_NO_THROW(Problem::of({.q = slice(0), .k = slice(1), .v = slice(2), .o = slice(3)}));
  expect_invalid([&] { Problem::of({.q = slice(0), .k = slice(1), .v = slice(2), .o = slice(2)}); },
                 {"o and v overlap"});
}

TEST(ForwardArgs, EmptyTensorsNeedNoMemory) {
  EXPECT_NO_THROW(Problem::of({.q = {nullptr, f16, {0, 3, 4, 8}},
                               .k = {nullptr, f16, {0, 3, 4, 8}},
                               .v = {nullptr, f16, {0, 3, 4, 8}},
                               .o = {nullptr, f16, {0, 3, 4, 8}}}));
  const std::int32_t starts[] = {0};
  const Problem none = Problem::of({.q = {nullptr, f16, {0, 4, 8}},
                                    .k = {nullptr, f16, {0, 4, 8}},
                                    .v = {nullptr, f16, {0, 4, 8}},
                                    .o = {nullptr, f16, {0, 4, 8}},
                                    .seqstart_q = {starts, i32, {1}},
                                    .seqstart_k = {starts, i32, {1}}});
  EXPECT_EQ(none.batch(), 0);
}

// ---- what is refused: q, k, v, o ----

TEST(ForwardArgs, MissingTensorsAreNamed) {
  batch_refuses([](ForwardArgs& a, BatchBuffers&) { a.q = {}; }, {"q is not given"});
  batch_refuses([](ForwardArgs& a, BatchBuffers&) { a.o = {}; }, {"o is not given"});
  batch_refuses([](ForwardArgs& a, BatchBuffers&) { a.k.data = nullptr; }, {"k is [2, 5, 2, 8]", "null"});
  batch_refuses([](ForwardArgs& a, BatchBuffers& m) { a.lse.data = m.lse.data(); }, {"lse", "no sizes"});
}

TEST(ForwardArgs, RanksAreChecked) {
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.q = {m.q.data(), f32, {6, 4, 8}};
      },
      {"q is [6, 4, 8]", "[b, s_q, h, d]", "seqstart_q"});
  batch_refuses([](ForwardArgs& a, BatchBuffers& m) { a.v = {m.v.data(), f32, {10, 2, 6}}; }, {"v is [10, 2, 6]"});
  batch_refuses([](ForwardArgs& a, BatchBuffers& m) { a.q = {m.q.data(), f32, {1, 2, 3, 4, 8}}; }, {"q: ", "1 to 4"});
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.q = {m.q.data(), f32, {2, 3, 4, 8}, {8, 1}};
      },
      {"q: ", "as many strides"});
  group_refuses(
      [](ForwardArgs& a, GroupBuffers& m) {
        a.q = {m.q.data(), f32, {1, 6, 4, 8}};
      },
      {"q is [1, 6, 4, 8]", "[total_q, h, d]"});
}

TEST(ForwardArgs, SizesMustAgree) {
  const auto with_k = [](std::initializer_list<std::int64_t> sizes, Pieces pieces) {
    batch_refuses([&](ForwardArgs& a, BatchBuffers& m) { a.k = {m.k.data(), f32, sizes}; }, pieces);
  };
  with_k({1, 5, 2, 8}, {"k is [1, 5, 2, 8]", "first size, 1, must be 2", "stride of 0"});
  with_k({2, 4, 2, 8}, {"v is [2, 5, 2, 6]", "second size, 5, must be 4, the rows of k"});
  with_k({2, 5, 1, 8}, {"v is [2, 5, 2, 6]", "third size, 2, must be 1, the heads h_k of k"});
  with_k({2, 5, 2, 7}, {"k is [2, 5, 2, 7]", "fourth size, 7, must be 8, the head dim d of q"});
  with_k({2, 5, 2, -8}, {"k is [2, 5, 2, -8]", "from 0 to 2^40"});
  const auto with_o = [](std::initializer_list<std::int64_t> sizes, Pieces pieces) {
    batch_refuses([&](ForwardArgs& a, BatchBuffers& m) { a.o = {m.o.data(), f32, sizes}; }, pieces);
  };
  with_o({1, 3, 4, 6}, {"o is [1, 3, 4, 6]", "must be 2"});
  with_o({2, 2, 4, 6}, {"o is [2, 2, 4, 6]", "must be 3, the rows of q"});
  with_o({2, 3, 2, 6}, {"o is [2, 3, 2, 6]", "must be 4, the heads h of q"});
  with_o({2, 3, 4, 8}, {"o is [2, 3, 4, 8]", "must be 6, the head dim d_v of v"});
  group_refuses(
      [](ForwardArgs& a, GroupBuffers& m) {
        a.v = {m.v.data(), f32, {8, 2, 6}};
      },
      {"v is [8, 2, 6]", "must be 9"});
}

// The dense strides of such sizes do not fit 64 bits; nothing may be computed from them before the sizes are refused.
TEST(ForwardArgs, SizesBeyondAnyMemoryAreRefused) {
  BatchBuffers m;
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  const OutputView huge{m.q.data(), f32, {kHuge, kHuge, kHuge, 8}};
  expect_invalid([&] { Problem::of({.q = huge, .k = huge, .v = huge, .o = huge}); }, {"2^56"});
  const OutputView larger{m.q.data(), f32, {2, 3, 4, kHuge + 1}};
  expect_invalid([&] { Problem::of({.q = larger, .k = larger, .v = larger, .o = larger}); }, {"1099511627777", "2^40"});
}

TEST(ForwardArgs, HeadsMustBeShareable) {
  BatchBuffers m;
  expect_invalid(
      [&] {
        Problem::of({.q = {m.q.data(), f32, {1, 1, 6, 8}},
                     .k = {m.k.data(), f32, {1, 1, 4, 8}},
                     .v = {m.v.data(), f32, {1, 1, 4, 8}},
                     .o = {m.o.data(), f32, {1, 1, 6, 8}}});
      },
      {"h = 6", "h_k = 4", "1, 2, 3 or 6"});
}

TEST(ForwardArgs, TypesMustAgree) {
  batch_refuses([](ForwardArgs& a, BatchBuffers&) { a.k.type = f16; }, {"f32, f16 and f32", "one type"});
  batch_refuses([](ForwardArgs& a, BatchBuffers&) { a.q.type = a.k.type = a.v.type = i32; }, {"cannot be i32"});
  batch_refuses([](ForwardArgs& a, BatchBuffers&) { a.o.type = i32; }, {"o cannot be i32"});
  batch_refuses([](ForwardArgs& a, BatchBuffers&) { a.o.type = static_cast<DataType>(99); }, {"type number 99"});
  EXPECT_EQ(batch_accepts([](ForwardArgs& a, BatchBuffers&) { a.o.type = bf16; }).output_type(), bf16);
}

TEST(ForwardArgs, InnermostStridesAreChecked) {
  batch_refuses([](ForwardArgs& a, BatchBuffers&) { a.q.strides[3] = 2; }, {"q: the stride of the head dim is 2"});
  batch_refuses([](ForwardArgs& a, BatchBuffers&) { a.k.strides[3] = 0; }, {"k: the stride of the head dim is 0"});
  batch_refuses([](ForwardArgs& a, BatchBuffers&) { a.v.strides = {60, 12, 6, 2}; }, {"v: the strides", "2 and 12"});
  batch_refuses([](ForwardArgs& a, BatchBuffers&) { a.k.strides[0] = INT64_MIN; },
                {"k: strides -9223372036854775808", "2^56"});
}

TEST(ForwardArgs, OutputsThatOverlapAreRefused) {
  batch_refuses([](ForwardArgs& a, BatchBuffers&) { a.o.strides[2] = 0; }, {"o overlaps itself", "72, 24, 0, 1"});
  batch_refuses([](ForwardArgs& a, BatchBuffers&) { a.o.strides[1] = 23; }, {"o overlaps itself", "72, 23, 6, 1"});
  batch_refuses([](ForwardArgs& a, BatchBuffers& m) { a.o.data = m.q.data(); }, {"o and q overlap", "0 bytes after"});
  batch_refuses([](ForwardArgs& a, BatchBuffers& m) { a.o.data = m.k.data() + 1; },
                {"o and k overlap", "(k begins 4 bytes before o)"});
  batch_refuses([](ForwardArgs& a, BatchBuffers& m) { a.lse = {m.o.data(), f32, {2, 4, 3}}; }, {"o and lse overlap"});
  batch_refuses([](ForwardArgs& a, BatchBuffers& m) { a.lse = {m.v.data(), f32, {2, 4, 3}}; }, {"lse and v overlap"});
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.lse = {m.lse.data(), f32, {2, 4, 3}, {0, 3, 1}};
      },
      {"lse overlaps itself", "[2, 4, 3]"});
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.dropout.randval = {m.other.data(), u16, {2, 4, 3, 5}, {60, 15, 4, 1}};
      },
      {"dropout.randval overlaps itself"});
}

// ---- what is refused: sequences ----

TEST(ForwardArgs, OffsetsAreChecked) {
  group_refuses([](ForwardArgs& a, GroupBuffers&) { a.seqstart_k = {}; }, {"seqstart_q is given without seqstart_k"});
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.seqstart_k = {m.other.data(), i32, {3}};
      },
      {"seqstart_k is given without seqstart_q"});
  group_refuses(
      [](ForwardArgs&, GroupBuffers& m) {
        m.starts_q = {0, 3, 2, 5};
      },
      {"seqstart_q[2] = 2", "seqstart_q[1] = 3", "may not decrease"});
  group_refuses([](ForwardArgs&, GroupBuffers& m) { m.starts_k[0] = -1; }, {"seqstart_k[0] = -1", "0 or more"});
  group_refuses([](ForwardArgs&, GroupBuffers& m) { m.starts_k[3] = 10; }, {"seqstart_k[3] = 10", "9 rows of k"});
  group_refuses([](ForwardArgs& a, GroupBuffers&) { a.seqstart_q.type = f32; }, {"seqstart_q is f32", "i32 or i64"});
  group_refuses([](ForwardArgs& a, GroupBuffers&) { a.seqstart_q.rank = 2; }, {"seqstart_q is [4, 0]"});
  group_refuses(
      [](ForwardArgs& a, GroupBuffers& m) {
        a.seqstart_q = {m.starts_q.data(), i32, {3}};
      },
      {"3 and 4 entries"});
  group_refuses(
      [](ForwardArgs& a, GroupBuffers& m) {
        a.seqstart_q = {m.starts_q.data(), i32, {0}};
      },
      {"seqstart_q is empty", "b + 1"});
}

TEST(ForwardArgs, LogicalLengthsAreChecked) {
  static constexpr std::int32_t kTooLong[] = {3, 6}, kNegative[] = {-1, 0}, kFine[] = {0, 5};
  const auto with = [](const std::int32_t* lengths, std::int64_t count) {
    return [=](ForwardArgs& a, BatchBuffers&) { a.seqlen_k = {lengths, i32, {count}}; };
  };
  EXPECT_EQ(batch_accepts(with(kFine, 2)).s_k(), 5);
  batch_refuses(with(kTooLong, 2), {"seqlen_k[1] = 6", "from 0 to 5"});
  batch_refuses(with(kNegative, 2), {"seqlen_k[0] = -1", "from 0 to 5"});
  batch_refuses(with(kFine, 1), {"seqlen_k has 1 entries", "batch of 2"});
  batch_refuses([](ForwardArgs& a, BatchBuffers&) { a.seqlen_q = {kFine, u16, {2}}; }, {"seqlen_q is u16"});
  group_refuses(
      [](ForwardArgs& a, GroupBuffers&) {
        static constexpr std::int64_t kLengths[] = {3, 1, 2};
        a.seqlen_q = {kLengths, i64, {3}};
      },
      {"seqlen_q[1] = 1", "0 rows"});
}

}  // namespace
}  // namespace heed
