/// Numbers at the ends of f32, which the fuzz does not draw, on every level of this machine.

#include <heed/heed.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

namespace heed::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kMost = std::numeric_limits<float>::max();
constexpr std::int64_t kDim = 4;

class ExtremeNumbers : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    try {
      context = std::make_unique<Context>(Context::Options{.threads = 1, .max_cpu_isa = GetParam()});
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  std::unique_ptr<Context> context;
};

TensorView rows(std::vector<float>& numbers) {
  return {numbers.data(), f32, {1, static_cast<std::int64_t>(numbers.size()) / kDim, 1, kDim}};
}
OutputView written(std::vector<float>& numbers) {
  return {numbers.data(), f32, {1, static_cast<std::int64_t>(numbers.size()) / kDim, 1, kDim}};
}

// Keys are divided among parts; of the part with the infinity, every weight is too small for f32.
TEST_P(ExtremeNumbers, an_infinite_value_is_not_lost_where_its_weight_is_0) {
  constexpr std::int64_t kKeys = 2048;
  for (const std::int64_t queries : {1, 11}) {
    std::vector<float> q(queries * kDim, 1.f), k(kKeys * kDim, 1.f), v(kKeys * kDim, 1.f), o(queries * kDim);
    std::fill_n(k.begin(), k.size() / 2, -100.f);
    v[0] = kInfinity;
    context->forward({.q = rows(q), .k = rows(k), .v = rows(v), .o = written(o)});
    EXPECT_FALSE(std::isfinite(o[0])) << queries;
    EXPECT_EQ(o[1], 1.f) << queries;
  }
}

// A sink of -FLT_MAX is meant as none, one of 3e38 as all; times log2(e) neither is a float.
TEST_P(ExtremeNumbers, sinks_at_the_ends_of_f32_are_right_in_both_passes) {
  for (const float sink : {-kMost, 3e38f, kMost})
    for (const bool sees : {false, true}) {
      std::vector<float> q(3 * kDim, 1.f), k(5 * kDim, 0.5f), v(5 * kDim, 2.f), o(q.size(), kInfinity);
      std::vector<float> lse(3), d_o(q.size(), 1.f), dq(q.size()), dk(k.size()), dv(v.size()), sinks{sink}, dsink(1);
      const ForwardArgs forward{.q = rows(q),
                                .k = rows(k),
                                .v = rows(v),
                                .o = written(o),
                                .lse = {lse.data(), f32, {1, 1, 3}},
                                .mask = sees ? Mask::none() : Mask::raw(0, 0),
                                .sink = {sinks.data(), f32, {1}}};
      context->forward(forward);
      context->backward({.forward = forward,
                         .d_o = rows(d_o),
                         .dq = written(dq),
                         .dk = written(dk),
                         .dv = written(dv),
                         .dsink = {dsink.data(), f32, {1}}});
      const bool keys_count = sees && sink < 0;
      EXPECT_EQ(o[0], keys_count ? 2.f : 0.f) << sink << sees;
      if (!keys_count) {
        EXPECT_EQ(lse[0], sink) << sees;
      } else {
        EXPECT_NEAR(lse[0], 1.f + std::log(5.f), 1e-5f);
      }
      EXPECT_NEAR(dv[0], keys_count ? 0.6f : 0.f, 1e-5f) << sink << sees;
      EXPECT_EQ(dsink[0], 0.f) << sink << sees;
      EXPECT_TRUE(std::isfinite(dq[0]) && std::isfinite(dk[0])) << sink << sees;
    }
}

INSTANTIATE_TEST_SUITE_P(On, ExtremeNumbers, ::testing::Values("baseline", "avx2", "avx512", "avx512bf16"),
                         [](const auto& level) { return std::string(level.param); });

}  // namespace
}  // namespace heed::test
