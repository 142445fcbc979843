/// The oracle reads any view: the same numbers in another place give the same result, bit for bit. And the equivalences
/// of docs/semantics.md between masks, modes and head counts.

#include "core/float_bits.hpp"
#include "oracle/small.hpp"

#include <heed/executor.hpp>

#include <gtest/gtest.h>

#include <cmath>

namespace heed::test {
namespace {

Small with_mask(Small p, const char* mask) {
  ForwardArgs args = p.args();
  args.mask = Mask::parse(mask);
  oracle::forward(args);
  return p;
}

void expect_same(const Small& a, const Small& b, const char* what) {
  EXPECT_EQ(a.o, b.o) << what;
  EXPECT_EQ(a.lse, b.lse) << what;
}

TEST(OracleMasks, that_mean_the_same_give_the_same_bits) {
  for (const auto& [s_q, s_k] : {std::pair{7, 7}, std::pair{3, 9}, std::pair{9, 3}}) {
    const Small p = Small{.s_q = s_q, .s_k = s_k, .d = 3, .d_v = 2}.fill();
    const auto check = [&](const std::string& a, const std::string& b) {
      expect_same(with_mask(p, a.c_str()), with_mask(p, b.c_str()), (a + " and " + b).c_str());
    };
    const std::string s = std::to_string(std::max(s_q, s_k));
    check("n", "t:-1,-1");
    check("n", "b:-1,-1");
    check("n", "b:" + s + "," + s);
    check("1", "t:-1,0");
    check("t", "t:" + s + ",0");
    check("2", "b:-1,0");
    check("b", "b:" + s + ",0");
    check("b", "b:" + std::to_string(std::max(s_q, s_k) - 1) + ",0");
    check("xt:4", "t:2,1");
    check("xb:5", "b:2,2");
    check("xb:0", "b");
    check("t:2,1", "g:3,2");
    check("b:2,1", "g:" + std::to_string(3 + s_q - s_k) + "," + std::to_string(2 + s_k - s_q));
    check("b", "b:-1,0,2");
    if (s_q == s_k) check("t", "b");
  }
}

TEST(OracleMasks, keep_sink_columns_visible_but_not_the_future) {
  const Small p = Small{.s_q = 6, .s_k = 6, .d = 2, .d_v = 2}.fill();
  const Small sinks = with_mask(p, "t:1,0,3");
  std::vector<float> bias;
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 6; ++j) bias.push_back(j <= i && (j >= i - 1 || j < 3) ? 0.0F : -INFINITY);
  Small biased = p;
  ForwardArgs args = biased.args();
  args.bias = {bias.data(), f32, {6, 6}};
  oracle::forward(args);
  expect_same(sinks, biased, "t:1,0,3");
}

TEST(OracleViews, share_key_heads_as_if_they_were_repeated) {
  Small grouped = Small{.b = 2, .s_q = 3, .s_k = 5, .h = 6, .h_k = 2, .d = 4, .d_v = 3}.fill();
  Small repeated = Small{.b = 2, .s_q = 3, .s_k = 5, .h = 6, .h_k = 6, .d = 4, .d_v = 3};
  repeated.q = grouped.q;
  for (std::size_t row = 0; row < 10; ++row)
    for (std::size_t h = 0; h < 6; ++h) {
      for (std::size_t e = 0; e < 4; ++e) repeated.k[(row * 6 + h) * 4 + e] = grouped.k[(row * 2 + h / 3) * 4 + e];
      for (std::size_t e = 0; e < 3; ++e) repeated.v[(row * 6 + h) * 3 + e] = grouped.v[(row * 2 + h / 3) * 3 + e];
    }
  oracle::forward(grouped.args());
  oracle::forward(repeated.args());
  expect_same(grouped, repeated, "GQA");
}

TEST(OracleViews, read_a_column_major_V) {
  Small p = Small{.b = 2, .s_q = 3, .s_k = 5, .h = 2, .h_k = 2, .d = 4, .d_v = 3}.fill(), columns = p;
  for (std::size_t b = 0; b < 2; ++b)
    for (std::size_t j = 0; j < 5; ++j)
      for (std::size_t h = 0; h < 2; ++h)
        for (std::size_t e = 0; e < 3; ++e)
          columns.v[((b * 2 + h) * 3 + e) * 5 + j] = p.v[((b * 5 + j) * 2 + h) * 3 + e];
  oracle::forward(p.args());
  ForwardArgs args = columns.args();
  args.v = {columns.v.data(), f32, {2, 5, 2, 3}, {30, 1, 15, 5}};
  oracle::forward(args);
  expect_same(p, columns, "v");
}

TEST(OracleViews, compute_group_mode_as_each_sequence_alone) {
  const std::vector<std::int64_t> s_q{3, 0, 5, 2}, s_k{4, 6, 0, 2};
  const std::vector<std::int32_t> start_q{0, 3, 3, 8, 10}, start_k{0, 4, 10, 10, 12};
  Small all = Small{.b = 1, .s_q = 10, .s_k = 12, .h = 4, .h_k = 2, .d = 3, .d_v = 2}.fill();
  const auto run = [&](const char* mask) {
    ForwardArgs args{.q = {all.q.data(), f32, {10, 4, 3}},
                     .k = {all.k.data(), f32, {12, 2, 3}},
                     .v = {all.v.data(), f32, {12, 2, 2}},
                     .o = {all.o.data(), f64, {10, 4, 2}},
                     .lse = {all.lse.data(), f64, {4, 10}},
                     .mask = Mask::parse(mask),
                     .seqstart_q = {start_q.data(), i32, {5}},
                     .seqstart_k = {start_k.data(), i32, {5}}};
    oracle::forward(args);
    for (std::size_t n = 0; n < 4; ++n) {
      Small one{.s_q = s_q[n], .s_k = s_k[n], .h = 4, .h_k = 2, .d = 3, .d_v = 2};
      std::copy_n(all.q.begin() + start_q[n] * 12, one.q.size(), one.q.begin());
      std::copy_n(all.k.begin() + start_k[n] * 6, one.k.size(), one.k.begin());
      std::copy_n(all.v.begin() + start_k[n] * 4, one.v.size(), one.v.begin());
      one = with_mask(one, mask);
      for (std::int64_t i = 0; i < s_q[n]; ++i)
        for (std::int64_t h = 0; h < 4; ++h) {
          for (std::int64_t e = 0; e < 2; ++e)
            EXPECT_EQ(all.o_at(0, h, start_q[n] + i, e), one.o_at(0, h, i, e)) << mask << " sequence " << n;
          EXPECT_EQ(all.lse_at(0, h, start_q[n] + i), one.lse_at(0, h, i)) << mask << " sequence " << n;
        }
    }
  };
  for (const char* mask : {"n", "t", "b", "b:1,0", "t:0,1,1", "g:2,1"}) run(mask);
}

TEST(OracleViews, end_at_logical_lengths_and_leave_the_rest_alone) {
  Small p = Small{.b = 2, .s_q = 4, .s_k = 6, .d = 3, .d_v = 2}.fill(),
        shorter = Small{.s_q = 3, .s_k = 2, .d = 3, .d_v = 2};
  const std::vector<std::int64_t> lengths_q{4, 3}, lengths_k{6, 2};
  std::copy_n(p.q.begin() + 12, 9, shorter.q.begin());
  std::copy_n(p.k.begin() + 18, 6, shorter.k.begin());
  std::copy_n(p.v.begin() + 12, 4, shorter.v.begin());
  std::fill(p.k.begin() + 24, p.k.end(), NAN);
  std::fill(p.v.begin() + 16, p.v.end(), NAN);
  ForwardArgs args = p.args();
  args.mask = Mask::causal();
  args.seqlen_q = {lengths_q.data(), i64, {2}};
  args.seqlen_k = {lengths_k.data(), i64, {2}};
  oracle::forward(args);
  shorter = with_mask(shorter, "b");
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(p.o_at(1, 0, i, 0), shorter.o_at(0, 0, i, 0));
    EXPECT_EQ(p.lse_at(1, 0, i), shorter.lse_at(0, 0, i));
  }
  EXPECT_EQ(p.o_at(1, 0, 3, 0), -777);
  EXPECT_EQ(p.lse_at(1, 0, 3), -777);
}

TEST(OracleViews, read_f16_and_bf16_exactly) {
  for (const DataType type : {f16, bf16}) {
    Small p = Small{.s_q = 3, .s_k = 4, .d = 2, .d_v = 2}.fill();
    std::vector<std::vector<std::uint16_t>> bits(3);
    std::size_t tensor = 0;
    for (auto* values : {&p.q, &p.k, &p.v}) {
      auto& out = bits[tensor++];
      out.resize(values->size());
      for (std::size_t i = 0; i < out.size(); ++i) {
        core::store(out.data(), type, static_cast<std::int64_t>(i), (*values)[i]);
        (*values)[i] = core::load_f32(out.data(), type, static_cast<std::int64_t>(i));
      }
    }
    Small narrow = p;
    ForwardArgs args = narrow.args();
    args.q = {bits[0].data(), type, {1, 3, 1, 2}};
    args.k = {bits[1].data(), type, {1, 4, 1, 2}};
    args.v = {bits[2].data(), type, {1, 4, 1, 2}};
    oracle::forward(p.args());
    oracle::forward(args);
    expect_same(p, narrow, std::string(name(type)).c_str());
  }
}

TEST(OracleViews, give_the_same_bits_on_every_number_of_threads) {
  Small p = Small{.b = 2, .s_q = 37, .s_k = 41, .h = 4, .h_k = 2, .d = 5, .d_v = 3}.fill(), threaded = p;
  oracle::forward(p.args());
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    oracle::forward(threaded.args(), {.rows = {}, .executor = &pool});
    expect_same(p, threaded, "threads");
  }
}

}  // namespace
}  // namespace heed::test
