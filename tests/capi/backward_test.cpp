/// The backward pass through the C interface.

#include "capi/c_args.hpp"

#include <heed/backward.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace heed {
namespace {

using testing::c_tensor;
using testing::CProblem;
using ::testing::HasSubstr;

struct CBackward : CProblem {
  std::vector<float> lse = std::vector<float>(b * h * s), d_o = q, dq = q, dk = q, dv = q;
  heed_forward_args forward = args();

  CBackward() {
    for (std::size_t i = 0; i < q.size(); ++i)
      q[i] = static_cast<float>(i % 7) / 7, k[i] = static_cast<float>(i % 5) / 5, v[i] = static_cast<float>(i % 11),
      d_o[i] = static_cast<float>(i % 3);
    forward.lse = {lse.data(), HEED_F32, 3, {b, h, s}, {h * s, s, 1}};
    forward.mask = HEED_MASK_CAUSAL;
    EXPECT_EQ(heed_forward(nullptr, &forward, nullptr), HEED_OK) << heed_last_error();
  }
  heed_backward_args backward() {
    heed_backward_args result{};
    result.struct_size = sizeof result;
    result.forward = &forward;
    result.d_o = c_tensor(d_o, b, s, h, d);
    result.dq = c_tensor(dq, b, s, h, d);
    result.dk = c_tensor(dk, b, s, h, d);
    result.dv = c_tensor(dv, b, s, h, d);
    return result;
  }
};

TEST(CBackward, gives_what_the_oracle_gives) {
  CBackward p;
  heed_backward_args args = p.backward();
  ASSERT_EQ(heed_backward(nullptr, &args, nullptr), HEED_OK) << heed_last_error();
  const std::vector<float> dk = p.dk;
  ASSERT_EQ(heed_oracle_backward(&args, nullptr), HEED_OK) << heed_last_error();
  for (std::size_t i = 0; i < dk.size(); ++i) EXPECT_NEAR(dk[i], p.dk[i], 1e-5) << i;
}

TEST(CBackward, plans_run_in_the_callers_workspace) {
  CBackward p;
  heed_backward_args args = p.backward();
  args.deterministic = 1;
  ASSERT_EQ(heed_backward(nullptr, &args, nullptr), HEED_OK) << heed_last_error();
  const std::vector<float> expected = p.dq;
  heed_plan* plan = nullptr;
  ASSERT_EQ(heed_backward_plan_create(nullptr, &args, nullptr, &plan), HEED_OK) << heed_last_error();
  const std::size_t bytes = (heed_plan_workspace_bytes(plan) + 63) / 64 * 64;
  const std::unique_ptr<void, decltype(&std::free)> workspace(std::aligned_alloc(64, bytes), std::free);
  std::fill(p.dq.begin(), p.dq.end(), -1.0F);
  EXPECT_EQ(heed_backward_plan_run(plan, &args, workspace.get(), bytes, nullptr), HEED_OK) << heed_last_error();
  EXPECT_EQ(p.dq, expected);
  EXPECT_EQ(heed_plan_run(plan, &p.forward, workspace.get(), bytes, nullptr), HEED_INVALID_ARGUMENT);
  EXPECT_THAT(heed_last_error(), HasSubstr("the operation is forward, the plan was made for backward"));
  EXPECT_EQ(heed_backward_plan_run(plan, &args, workspace.get(), 1, nullptr), HEED_INVALID_ARGUMENT);
  EXPECT_THAT(heed_last_error(), HasSubstr("the workspace holds 1 bytes"));
  EXPECT_EQ(heed_backward_plan_run_on_stream(plan, &args, workspace.get(), bytes, nullptr), HEED_INVALID_ARGUMENT);
  heed_plan_destroy(plan);
}

TEST(CBackward, describes_its_problem) {
  CBackward p;
  heed_backward_args args = p.backward();
  char* json = nullptr;
  ASSERT_EQ(heed_backward_problem_json(&args, &json), HEED_OK) << heed_last_error();
  EXPECT_THAT(json, HasSubstr(R"("operation":"backward")"));
  heed_plan* plan = nullptr;
  EXPECT_EQ(heed_plan_create_from_json(nullptr, json, nullptr, &plan), HEED_OK) << heed_last_error();
  EXPECT_THAT(heed_plan_kernel(plan), HasSubstr("/bwd_"));
  heed_plan_destroy(plan);
  heed_string_free(json);
  ASSERT_EQ(heed_backward_explain_json(nullptr, &args, nullptr, &json), HEED_OK) << heed_last_error();
  EXPECT_THAT(json, HasSubstr("bwd_"));
  heed_string_free(json);
}

TEST(CBackward, refuses_what_means_nothing) {
  CBackward p;
  const auto refusal = [&](auto change) -> std::string {
    heed_backward_args args = p.backward();
    change(args);
    EXPECT_EQ(heed_backward(nullptr, &args, nullptr), HEED_INVALID_ARGUMENT);
    return heed_last_error();
  };
  EXPECT_THAT(refusal([](auto& a) { a.struct_size = 8; }), HasSubstr("heed_backward_args: struct_size = 8"));
  EXPECT_THAT(refusal([](auto& a) { a.forward = nullptr; }), HasSubstr("args.forward is NULL"));
  EXPECT_THAT(refusal([](auto& a) { a.d_o = {}; }), HasSubstr("d_o is not given"));
  // A rank that was forgotten: the gradient would be missed later.
  float dbias = 0;
  EXPECT_THAT(refusal([&](auto& a) {
                a.dbias = {&dbias, HEED_F32, 0, {}, {}};
              }),
              HasSubstr("dbias: a pointer with no sizes"));
  EXPECT_THAT(refusal([](auto& a) { a.deterministic = 2; }), HasSubstr("deterministic = 2"));
  EXPECT_THAT(refusal([](auto& a) { a.dq_accumulation = 2; }), HasSubstr("dq_accumulation = 2"));
  EXPECT_THAT(refusal([](auto& a) { a.dq_accumulation = HEED_DQ_16_BIT; }), HasSubstr("q is f32"));
  EXPECT_EQ(heed_backward(nullptr, nullptr, nullptr), HEED_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace heed
