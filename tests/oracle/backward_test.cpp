/// The oracle's gradients: against finite differences of its own forward pass for each feature, and by identities.

#include "oracle/small.hpp"

#include <heed/backward.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

namespace heed::test {
namespace {

/// A small problem with everything that may have a gradient. The loss is sum(d_o * o) + sum(d_lse * lse).
struct Differentiable {
  Small small;
  std::vector<float> bias, sink, slopes;
  std::vector<double> d_o, d_lse, dq, dk, dv, dbias, dsink, dslopes;
  std::function<void(ForwardArgs&)> options = [](ForwardArgs&) {};
  std::vector<std::int64_t> bias_sizes;

  explicit Differentiable(const Small& from) : small(from) {
    small.fill();
    const auto wave = [](std::size_t n, double step) {
      std::vector<double> values(n);
      for (std::size_t i = 0; i < n; ++i) values[i] = std::sin(step * static_cast<double>(i + 1)) + 0.3;
      return values;
    };
    d_o = wave(small.o.size(), 2.3);
    d_lse = wave(small.lse.size(), 1.1);
    dq.assign(small.q.size(), NAN);
    dk.assign(small.k.size(), NAN);
    dv.assign(small.v.size(), NAN);
  }

  void add_bias(std::vector<std::int64_t> sizes) {
    bias_sizes = std::move(sizes);
    bias.resize(static_cast<std::size_t>(
        std::accumulate(bias_sizes.begin(), bias_sizes.end(), std::int64_t{1}, std::multiplies<>())));
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(std::cos(1.3 * static_cast<double>(i)));
    dbias.assign(bias.size(), NAN);
  }
  void add_sink() {
    for (std::int64_t h = 0; h < small.h; ++h) sink.push_back(0.4F + 0.3F * static_cast<float>(h));
    dsink.assign(sink.size(), NAN);
  }
  void add_slopes(bool per_entry) {
    for (std::int64_t n = 0; n < small.h * (per_entry ? small.b : 1); ++n)
      slopes.push_back(0.25F / static_cast<float>(n + 1));
    dslopes.assign(slopes.size(), NAN);
  }

  ForwardArgs forward_args() {
    ForwardArgs args = small.args();
    if (!bias.empty()) {
      args.bias = {bias.data(), f32, {bias_sizes[0], bias_sizes[1], bias_sizes[2], bias_sizes[3]}};
    }
    if (!sink.empty()) args.sink = {sink.data(), f32, {small.h}};
    if (!slopes.empty() && static_cast<std::int64_t>(slopes.size()) == small.h)
      args.alibi_slopes = {slopes.data(), f32, {small.h}};
    else if (!slopes.empty())
      args.alibi_slopes = {slopes.data(), f32, {small.b, small.h}};
    options(args);
    return args;
  }

  double loss() {
    oracle::forward(forward_args());
    double sum = 0;
    for (std::size_t i = 0; i < d_o.size(); ++i) sum += d_o[i] * small.o[i];
    for (std::size_t i = 0; i < d_lse.size(); ++i)
      if (std::isfinite(small.lse[i])) sum += d_lse[i] * small.lse[i];
    return sum;
  }

  void backward() {
    BackwardArgs args{.forward = forward_args(), .d_o = {}, .dq = {}, .dk = {}, .dv = {}};
    oracle::forward(args.forward);
    const auto like = [](std::vector<double>& values, const TensorView& view) {
      OutputView result;
      result.data = values.data(), result.type = f64, result.rank = view.rank, result.sizes = view.sizes;
      result.strides = view.strides;
      return result;
    };
    args.d_o = like(d_o, args.forward.o);
    args.d_lse = like(d_lse, args.forward.lse);
    args.dq = like(dq, args.forward.q);
    args.dk = like(dk, args.forward.k);
    args.dv = like(dv, args.forward.v);
    if (!bias.empty()) args.dbias = like(dbias, args.forward.bias);
    if (!sink.empty()) args.dsink = like(dsink, args.forward.sink);
    if (!slopes.empty()) args.dslopes = like(dslopes, args.forward.alibi_slopes);
    oracle::backward(args);
  }

  /// Of every element of an input, by five points: the error is of the fourth order of the step.
  void expect_gradient(const char* name, std::vector<float>& input, const std::vector<double>& gradient) {
    constexpr float kStep = 0x1p-7F;
    for (std::size_t i = 0; i < input.size(); ++i) {
      const float before = input[i];
      const auto at = [&](float steps) {
        input[i] = before + steps * kStep;
        return loss();
      };
      const double difference = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * static_cast<double>(kStep));
      input[i] = before;
      EXPECT_NEAR(gradient[i], difference, 2e-6 * (1 + std::abs(difference))) << name << "[" << i << "]";
    }
  }

  void expect_gradients() {
    // On a grid, so that a step away from an input is exact in f32.
    for (auto* input : {&small.q, &small.k, &small.v, &bias, &sink, &slopes})
      for (float& each : *input) each = std::round(each * 4096) / 4096;
    backward();
    expect_gradient("q", small.q, dq);
    expect_gradient("k", small.k, dk);
    expect_gradient("v", small.v, dv);
    expect_gradient("bias", bias, dbias);
    expect_gradient("sink", sink, dsink);
    expect_gradient("slopes", slopes, dslopes);
  }
};

Small shape() { return {.b = 2, .s_q = 4, .s_k = 5, .h = 2, .h_k = 1, .d = 3, .d_v = 2}; }

TEST(OracleBackward, is_the_derivative_of_forward) { Differentiable(shape()).expect_gradients(); }

TEST(OracleBackward, is_the_derivative_under_every_kind_of_mask) {
  for (const char* mask : {"t", "b", "b:1,0", "t:1,1", "b:0,0,2", "g:2,3"}) {
    SCOPED_TRACE(mask);
    Differentiable p(shape());
    p.options = [&](ForwardArgs& args) { args.mask = Mask::parse(mask); };
    p.expect_gradients();
  }
}

TEST(OracleBackward, is_the_derivative_under_boolean_and_block_masks) {
  const std::vector<std::uint8_t> keep{1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1, 1},
      blocks{1, 0, 1, 1, 1, 0};
  Differentiable p(shape());
  p.options = [&](ForwardArgs& args) {
    args.bool_mask = {keep.data(), u8, {4, 5}};
    args.block_mask = {{blocks.data(), u8, {2, 3}}, 2, 2};
  };
  p.expect_gradients();
}

TEST(OracleBackward, is_the_derivative_with_a_bias_of_every_shape) {
  for (int own = 0; own < 16; ++own) {
    SCOPED_TRACE(own);
    Differentiable p(shape());
    p.add_bias({own & 1 ? 2 : 1, own & 2 ? 2 : 1, own & 4 ? 4 : 1, own & 8 ? 5 : 1});
    p.options = [](ForwardArgs& args) { args.mask = Mask::causal(); };
    p.expect_gradients();
  }
}

TEST(OracleBackward, is_the_derivative_with_a_soft_cap_a_scale_and_alibi) {
  for (const bool per_entry : {false, true}) {
    Differentiable p(shape());
    p.add_slopes(per_entry);
    p.options = [](ForwardArgs& args) { args.soft_cap = 1.5, args.scale = -0.7; };
    p.expect_gradients();
  }
}

TEST(OracleBackward, is_the_derivative_with_a_sink) {
  Differentiable p(shape());
  p.add_sink();
  p.add_bias({1, 2, 4, 5});
  p.options = [](ForwardArgs& args) { args.mask = Mask::parse("t:1,0"); };
  p.expect_gradients();
}

TEST(OracleBackward, is_the_derivative_with_dropout) {
  for (const double p_drop : {0.25, 0.8}) {
    Differentiable p(shape());
    p.add_sink();
    p.options = [=](ForwardArgs& args) { args.dropout = {.p = p_drop, .seed = 77, .offset = 5}; };
    p.expect_gradients();
  }
}

TEST(OracleBackward, is_the_derivative_of_packed_sequences) {
  Small packed{.b = 1, .s_q = 6, .s_k = 7, .h = 2, .h_k = 1, .d = 3, .d_v = 2};
  const std::vector<std::int32_t> starts_q{0, 2, 2, 5}, starts_k{0, 3, 4, 7}, lengths_k{2, 1, 3};
  Differentiable p(packed);
  // Rows behind the last sequence and beyond a logical length belong to nobody.
  std::fill(p.small.o.begin(), p.small.o.end(), 0.0);
  std::fill(p.small.lse.begin(), p.small.lse.end(), 0.0);
  p.dq.assign(p.dq.size(), 0), p.dk.assign(p.dk.size(), 0), p.dv.assign(p.dv.size(), 0);
  p.options = [&](ForwardArgs& args) {
    const auto flat = [](auto& view) {
      view.rank = 3;
      for (std::size_t i = 0; i < 3; ++i) view.sizes[i] = view.sizes[i + 1], view.strides[i] = view.strides[i + 1];
    };
    flat(args.q), flat(args.k), flat(args.v), flat(args.o);
    args.lse.rank = 2;
    args.lse.sizes = {2, 6}, args.lse.strides = {6, 1};
    args.seqstart_q = {starts_q.data(), i32, {4}};
    args.seqstart_k = {starts_k.data(), i32, {4}};
    args.seqlen_k = {lengths_k.data(), i32, {3}};
    args.mask = Mask::causal();
  };
  p.expect_gradients();
}

// Identities of gradients of a softmax.

TEST(OracleBackward, gives_rows_of_the_bias_gradient_that_add_up_to_nothing) {
  Differentiable p(shape());
  p.add_bias({2, 2, 4, 5});
  std::fill(p.d_lse.begin(), p.d_lse.end(), 0.0);
  p.backward();
  for (std::size_t row = 0; row < p.dbias.size() / 5; ++row)
    EXPECT_NEAR(std::accumulate(&p.dbias[row * 5], &p.dbias[row * 5] + 5, 0.0), 0, 1e-12) << row;
}

TEST(OracleBackward, gives_rows_that_add_up_to_the_gradient_of_the_LSE) {
  Differentiable p(shape());
  p.add_bias({2, 2, 4, 5});
  std::fill(p.d_o.begin(), p.d_o.end(), 0.0);
  p.backward();
  for (std::size_t row = 0; row < p.dbias.size() / 5; ++row)
    EXPECT_NEAR(std::accumulate(&p.dbias[row * 5], &p.dbias[row * 5] + 5, 0.0), p.d_lse[row], 1e-12) << row;
}

TEST(OracleBackward, gives_the_sum_of_d_o_to_the_values_of_a_single_key) {
  Differentiable p(Small{.b = 1, .s_q = 4, .s_k = 1, .h = 2, .h_k = 1, .d = 3, .d_v = 2});
  p.backward();
  for (std::size_t e = 0; e < 2; ++e) {
    double sum = 0;
    for (std::size_t row = 0; row < 8; ++row) sum += p.d_o[row * 2 + e];
    EXPECT_NEAR(p.dv[e], sum, 1e-12);
  }
}

TEST(OracleBackward, sums_the_gradients_of_keys_over_the_heads_that_share_them) {
  Differentiable shared(shape());
  shared.backward();
  // The same keys and values, repeated for each head.
  Small apart = shape();
  apart.h_k = 2;
  apart.k.resize(2 * apart.k.size()), apart.v.resize(2 * apart.v.size());
  Differentiable each(apart);
  each.small.q = shared.small.q;
  for (std::size_t row = 0; row < 10; ++row)
    for (std::size_t g = 0; g < 2; ++g) {
      for (std::size_t e = 0; e < 3; ++e) each.small.k[(row * 2 + g) * 3 + e] = shared.small.k[row * 3 + e];
      for (std::size_t e = 0; e < 2; ++e) each.small.v[(row * 2 + g) * 2 + e] = shared.small.v[row * 2 + e];
    }
  each.dk.assign(each.small.k.size(), NAN), each.dv.assign(each.small.v.size(), NAN);
  each.backward();
  for (std::size_t row = 0; row < 10; ++row) {
    for (std::size_t e = 0; e < 3; ++e)
      EXPECT_NEAR(shared.dk[row * 3 + e], each.dk[row * 6 + e] + each.dk[row * 6 + 3 + e], 1e-12);
    for (std::size_t e = 0; e < 2; ++e)
      EXPECT_NEAR(shared.dv[row * 2 + e], each.dv[row * 4 + e] + each.dv[row * 4 + 2 + e], 1e-12);
  }
}

TEST(OracleBackward, gives_exact_zeros_where_nothing_is_visible) {
  Differentiable p(shape());
  p.options = [](ForwardArgs& args) { args.mask = Mask::raw(0, -1); };  // row 0 and row 1 see nothing
  p.backward();
  for (std::size_t entry = 0; entry < 2; ++entry)
    for (std::size_t e = 0; e < 2 * 2 * 3; ++e) EXPECT_EQ(p.dq[entry * 24 + e], 0) << e;
}

TEST(OracleBackward, in_plain_arithmetic_is_close) {
  Differentiable p(shape());
  p.options = [](ForwardArgs& args) { args.mask = Mask::causal(); };
  p.backward();
  const std::vector<double> exact = p.dk;
  BackwardArgs args{.forward = p.forward_args(),
                    .d_o = {p.d_o.data(), f64, {2, 4, 2, 2}},
                    .dq = {p.dq.data(), f64, {2, 4, 2, 3}},
                    .dk = {p.dk.data(), f64, {2, 5, 1, 3}},
                    .dv = {p.dv.data(), f64, {2, 5, 1, 2}},
                    .d_lse = {p.d_lse.data(), f64, {2, 2, 4}}};
  oracle::plain_backward(args);
  double furthest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) furthest = std::max(furthest, std::abs(p.dk[i] - exact[i]));
  EXPECT_GT(furthest, 0);
  EXPECT_LT(furthest, 1e-5);
}

}  // namespace
}  // namespace heed::test
