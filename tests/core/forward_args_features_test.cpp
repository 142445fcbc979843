#include "core/forward_args_checks.hpp"

#include <cmath>
#include <limits>

namespace heed {
namespace {

TEST(ForwardFeatures, BiasBroadcastsLikeNumPy) {
  const auto shape = [](std::initializer_list<std::int64_t> sizes) {
    return batch_accepts([&](ForwardArgs& a, BatchBuffers& m) { a.bias = {m.other.data(), f32, sizes}; }).bias()->shape;
  };
  EXPECT_EQ(shape({2, 4, 3, 5}), (Broadcast{true, true, true, true}));
  EXPECT_EQ(shape({1, 4, 1, 5}), (Broadcast{false, true, false, true}));
  EXPECT_EQ(shape({4, 3, 5}), (Broadcast{false, true, true, true}));
  EXPECT_EQ(shape({3, 1}), (Broadcast{false, false, true, false}));
  EXPECT_EQ(shape({5}), (Broadcast{false, false, false, true}));
  EXPECT_EQ(shape({1}), (Broadcast{false, false, false, false}));
}

TEST(ForwardFeatures, InGroupModeOneTableServesSequencesOfAllLengths) {
  group_accepts([](ForwardArgs& a, GroupBuffers& m) { a.bias = {m.other.data(), f32, {3, 4, 3, 4}}; });
  group_accepts([](ForwardArgs& a, GroupBuffers& m) { a.bias = {m.other.data(), f32, {7, 16}}; });
  group_accepts([](ForwardArgs& a, GroupBuffers& m) {
    a.dropout.randval = {m.other.data(), u16, {3, 4, 8, 8}};
    a.lse = {m.lse.data(), f32, {4, 6}};
  });
  group_refuses(
      [](ForwardArgs& a, GroupBuffers& m) {
        a.bias = {m.other.data(), f32, {2, 4}};
      },
      {"bias is [2, 4]", "size 2", "at least the longest s_q = 3"});
  group_refuses(
      [](ForwardArgs& a, GroupBuffers& m) {
        a.bias = {m.other.data(), f32, {2, 1, 1, 4}};
      },
      {"size 2", "b = 3"});
  group_refuses(
      [](ForwardArgs& a, GroupBuffers& m) {
        a.dropout.randval = {m.other.data(), u16, {3, 4, 3, 3}};
      },
      {"dropout.randval is [3, 4, 3, 3]", "at least the longest s_k = 4"});
}

TEST(ForwardFeatures, BiasAndMasksMustFit) {
  const auto with_bias = [](std::initializer_list<std::int64_t> sizes, Pieces pieces) {
    batch_refuses([&](ForwardArgs& a, BatchBuffers& m) { a.bias = {m.other.data(), f32, sizes}; }, pieces);
  };
  with_bias({3, 5, 5}, {"bias is [3, 5, 5]", "size 3 must be 1 or h = 4"});
  with_bias({3, 4}, {"bias is [3, 4]", "size 4 must be 1 or s_k = 5", "aligned from the right"});
  with_bias({3, 4, 3, 5}, {"size 3 must be 1 or b = 2"});
  with_bias({0}, {"bias is [0]", "size 0 must be 1 or s_k = 5"});
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.bias = {m.other.data(), bf16, {5}};
      },
      {"bias of type bf16", "f32"});
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.bool_mask = {m.other.data(), i32, {5}};
      },
      {"bool_mask is i32", "u8"});
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.bool_mask = {m.other.data(), u8, {2, 5}};
      },
      {"bool_mask is [2, 5]", "s_q = 3"});
}

TEST(ForwardFeatures, BlockMasksMustFit) {
  const auto with = [](std::initializer_list<std::int64_t> sizes, std::int64_t block_q, std::int64_t block_k,
                       Pieces pieces) {
    batch_refuses(
        [&](ForwardArgs& a, BatchBuffers& m) {
          a.block_mask = {.keep = {m.other.data(), u8, sizes}, .block_q = block_q, .block_k = block_k};
        },
        pieces);
  };
  with({2, 2}, 0, 4, {"blocks of 0 x 4", "1 or more"});
  with({2, 2}, 2, -4, {"blocks of 2 x -4"});
  with({2, 2}, 2, 2, {"block_mask.keep is [2, 2]", "ceil(s_k / block_k) = 3"});
  with({2, 3}, 4, 2, {"block_mask.keep is [2, 3]", "ceil(s_q / block_q) = 1"});
  batch_refuses([](ForwardArgs& a, BatchBuffers&) { a.block_mask.block_q = 64; }, {"64 x 0", "no keep"});
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.block_mask = {.keep = {m.other.data(), f32, {1, 1}}, .block_q = 8, .block_k = 8};
      },
      {"block_mask.keep is f32", "u8"});
  batch_accepts([](ForwardArgs& a, BatchBuffers& m) {
    a.block_mask = {.keep = {m.other.data(), u8, {1, 1}}, .block_q = std::int64_t{1} << 40, .block_k = 8};
  });
}

TEST(ForwardFeatures, SlopesAndSinkHaveOneEntryPerQueryHead) {
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.alibi_slopes = {m.other.data(), f32, {2}};
      },
      {"alibi_slopes is [2]", "must be 4, the heads h of q"});
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.alibi_slopes = {m.other.data(), f32, {1, 4}};
      },
      {"alibi_slopes is [1, 4]", "must be 2"});
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.alibi_slopes = {m.other.data(), f32, {1, 2, 4}};
      },
      {"alibi_slopes is [1, 2, 4]", "[h] or [b, h]"});
  batch_refuses([](ForwardArgs& a, BatchBuffers& m) { a.alibi_slopes = {m.other.data(), f16, {4}}; }, {"f16", "f32"});
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.sink = {m.other.data(), f32, {3}};
      },
      {"sink is [3]", "must be 4"});
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.sink = {m.other.data(), f32, {2, 4}};
      },
      {"sink is [2, 4]", "[h]"});
  batch_refuses([](ForwardArgs& a, BatchBuffers& m) { a.sink = {m.other.data(), bf16, {4}}; }, {"sink is bf16"});
}

TEST(ForwardFeatures, FurtherOutputsMustFit) {
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.lse = {m.lse.data(), f32, {2, 3, 4}};
      },
      {"lse is [2, 3, 4]", "must be 4, the heads h of q"});
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.lse = {m.lse.data(), f32, {8, 3}};
      },
      {"lse is [8, 3]", "[b, h, s_q]"});
  batch_refuses([](ForwardArgs& a, BatchBuffers& m) { a.lse = {m.lse.data(), f16, {2, 4, 3}}; }, {"lse is f16", "f32"});
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.lse = {m.other.data(), f64, {2, 4, 3}};
      },
      {"lse is f64", "oracle"});
  group_refuses([](ForwardArgs& a, GroupBuffers& m) { a.lse = {m.lse.data(), f32, {3, 4, 2}}; }, {"[h, total_q]"});
  group_refuses(
      [](ForwardArgs& a, GroupBuffers& m) {
        a.lse = {m.lse.data(), f32, {4, 5}};
      },
      {"lse is [4, 5]", "must be 6"});
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.dropout.randval = {m.other.data(), u16, {4, 3, 5}};
      },
      {"dropout.randval is [4, 3, 5]", "[b, h, s_q, s_k]"});
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.dropout.randval = {m.other.data(), u8, {2, 4, 3, 5}};
      },
      {"u16"});
  batch_refuses(
      [](ForwardArgs& a, BatchBuffers& m) {
        a.dropout.randval = {m.other.data(), u16, {2, 4, 3, 6}};
      },
      {"size 6 must be s_k = 5"});
}

TEST(ForwardFeatures, NumbersAreChecked) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double value : {-1.0, inf, std::nan("")})
    batch_refuses([&](ForwardArgs& a, BatchBuffers&) { a.soft_cap = value; }, {"soft_cap = "});
  for (const double value : {-inf, std::nan("")})
    batch_refuses([&](ForwardArgs& a, BatchBuffers&) { a.scale = value; }, {"scale = "});
  for (const double value : {-0.5, 1.0, std::nan("")})
    batch_refuses([&](ForwardArgs& a, BatchBuffers&) { a.dropout.p = value; }, {"dropout p = "});
}

}  // namespace
}  // namespace heed
