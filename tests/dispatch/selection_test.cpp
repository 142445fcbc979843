#include "dispatch/selection.hpp"

#include "dispatch/fakes.hpp"
#include "dispatch/forward_family.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <limits>

namespace heed::dispatch {
namespace {

using heed::testing::error_of;
using heed::testing::FakeKernel;
using heed::testing::FakeSpec;
using ::testing::HasSubstr;
using ::testing::Not;

Registry registry_without_cuda(const std::vector<FakeSpec>& specs) {
  Registry registry;
  for (const FakeSpec& spec : specs) registry.add(std::make_shared<FakeKernel>(spec), spec.lacks);
  registry.add_missing(EngineKind::cuda, "this build has no CUDA engine");
  return registry;
}

Problem square() { return Problem::forward().type(f32).batch(1).heads(8, 8).lengths(128, 128).head_dims(64, 64); }

const std::vector<FakeSpec> kTiles{
    {.stem = "fwd_tile", .seconds = 4e-3},
    {.stem = "fwd_tile", .arch = CpuIsa::avx2, .seconds = 2e-3},
    {.stem = "fwd_tile", .arch = CpuIsa::avx512, .seconds = 1e-3},
    {.stem = "fwd_tile_bf16", .signature = {.types = {bf16}}, .arch = CpuIsa::avx512bf16, .seconds = 1e-4},
    {.stem = "fwd_tile", .arch = CpuIsa::amx, .seconds = 1e-5, .lacks = "needs amx, this machine has avx512bf16"},
};

TEST(Selection, takes_the_kernel_that_expects_to_be_fastest_of_those_that_can) {
  const Registry registry = registry_without_cuda(kTiles);
  EXPECT_EQ(kForwardFamily.select(registry, square(), {})->name(), "cpu/avx512/fwd_tile");
  EXPECT_EQ(kForwardFamily.select(registry, square().type(bf16), {})->name(), "cpu/avx512bf16/fwd_tile_bf16");
}

TEST(Selection, equal_costs_are_decided_by_name_and_not_by_the_order_of_registration) {
  const std::vector<FakeSpec> specs{{.stem = "b"}, {.stem = "c"}, {.stem = "a"}};
  EXPECT_EQ(kForwardFamily.select(registry_without_cuda(specs), square(), {})->name(), "cpu/baseline/a");
  const auto explanation = kForwardFamily.explain(registry_without_cuda(specs), square(), {});
  EXPECT_EQ(explanation.candidates[1].reason, "expected 1.00 ms like cpu/baseline/a, which comes first by name");
}

TEST(Selection, a_cost_that_is_no_number_is_a_defect_and_not_a_choice) {
  for (const double cost :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 0.0, -1.0}) {
    const auto error = error_of([&] {
      kForwardFamily.select(registry_without_cuda({{.stem = "a"}, {.stem = "b", .seconds = cost}}), square(), {});
    });
    ASSERT_TRUE(error) << cost;
    EXPECT_EQ(error->code(), ErrorCode::internal);
    EXPECT_THAT(error->what(), HasSubstr("cpu/baseline/b"));
  }
}

TEST(Selection, a_named_kernel_is_run_though_others_are_faster) {
  const Registry registry = registry_without_cuda(kTiles);
  EXPECT_EQ(kForwardFamily.select(registry, square(), {.kernel = "cpu/avx2/fwd_tile"})->name(), "cpu/avx2/fwd_tile");
}

TEST(Selection, a_named_kernel_that_cannot_fails_with_its_rule_alone) {
  const Registry registry = registry_without_cuda(kTiles);
  const auto error = error_of([&] { kForwardFamily.select(registry, square(), {.kernel = "cpu/amx/fwd_tile"}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::unsupported);
  EXPECT_EQ(std::string(error->what()),
            "not supported: " + square().to_string() +
                ".\n  cpu/amx/fwd_tile   arch   needs amx, this machine has avx512bf16; the machine must have what the "
                "kernel is written for");
}

TEST(Selection, a_name_that_no_kernel_has_is_invalid_and_not_unsupported) {
  const Registry registry = registry_without_cuda(kTiles);
  const auto error = error_of([&] { kForwardFamily.select(registry, square(), {.kernel = "fwd_tile"}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_STREQ(error->what(), "no kernel is called 'fwd_tile'; 'heed kernels' lists the names.");
}

// Without its engine nobody knows the kernel, but its name is as good as on another machine.
TEST(Selection, a_named_kernel_of_an_engine_that_is_not_here_is_unsupported_with_that_reason) {
  const Registry registry = registry_without_cuda(kTiles);
  const auto error = error_of([&] { kForwardFamily.select(registry, square(), {.kernel = "cuda/sm_90/fwd_tile"}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::unsupported);
  EXPECT_STREQ(
      error->what(),
      "not supported: cuda/sm_90/fwd_tile : its engine is not here.\n  cuda   missing   this build has no CUDA "
      "engine");
}

TEST(Selection, an_engine_that_is_not_in_the_build_is_refused_with_that_reason) {
  const Registry registry = registry_without_cuda(kTiles);
  const auto error = error_of([&] { kForwardFamily.select(registry, square(), {.engine = EngineChoice::cuda}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::unsupported);
  EXPECT_EQ(std::string(error->what()),
            "not supported: " + square().to_string() + ".\n  cuda   missing   this build has no CUDA engine");
}

TEST(Selection, unsupported_names_every_kernel_with_the_first_rule_it_failed) {
  const Registry registry = registry_without_cuda(kTiles);
  const auto error = error_of([&] { kForwardFamily.select(registry, square().type(DataType::int8), {}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::unsupported);
  const std::string text = error->what();
  EXPECT_THAT(text, HasSubstr("\n  cpu/amx/fwd_tile               arch      needs amx"));
  EXPECT_THAT(text,
              HasSubstr("\n  cpu/avx2/fwd_tile              types     q, k and v are int8, this kernel takes f32;"));
  EXPECT_THAT(text, HasSubstr("\n  cpu/avx512bf16/fwd_tile_bf16   types     "));
  EXPECT_THAT(text, HasSubstr("\n  cuda                           missing   this build has no CUDA engine"));
}

TEST(Selection, a_registry_without_kernels_says_so) {
  const auto error = error_of([] { kForwardFamily.select(Registry(), square(), {.engine = EngineChoice::cpu}); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::unsupported);
  EXPECT_THAT(error->what(), HasSubstr("no kernel"));
}

TEST(Explanation, tells_why_one_won_and_why_each_other_did_not) {
  const auto explanation = kForwardFamily.explain(registry_without_cuda(kTiles), square(), {});
  ASSERT_NE(explanation.chosen(), nullptr);
  EXPECT_EQ(explanation.chosen(), &explanation.candidates.front());
  EXPECT_EQ(explanation.to_string(), "problem     " + square().to_string() + R"(
kernel      cpu/avx512/fwd_tile
why         the fastest of those that can: expected 1.00 ms, cpu/avx2/fwd_tile 2.00 ms
algorithm   avx512, f32_fma, tiles of 64 x 128; computes nothing
computes    f32 -> f32,f16,bf16, d any, d_v any, mode any, mask any, features any, math any
not chosen
  cpu/avx2/fwd_tile              outranked   expected 2.00 ms, cpu/avx512/fwd_tile 1.00 ms
  cpu/baseline/fwd_tile          outranked   expected 4.00 ms, cpu/avx512/fwd_tile 1.00 ms
  cpu/amx/fwd_tile               arch        needs amx, this machine has avx512bf16; the machine must have what the kernel is written for
  cpu/avx512bf16/fwd_tile_bf16   types       q, k and v are f32, this kernel takes bf16; a kernel reads the types it was written for
engines that are not here
  cuda   this build has no CUDA engine
)");
}

TEST(Explanation, of_a_problem_that_nothing_can_compute_has_no_choice) {
  const auto explanation = kForwardFamily.explain(registry_without_cuda(kTiles), square().type(DataType::int8), {});
  EXPECT_EQ(explanation.chosen(), nullptr);
  EXPECT_THAT(explanation.to_string(), HasSubstr("kernel      none can compute it\n"));
  EXPECT_TRUE(nlohmann::json::parse(explanation.to_json())["chosen"].is_null());
}

TEST(Explanation, of_the_only_kernel_that_can_compares_it_with_nothing) {
  const auto explanation = kForwardFamily.explain(registry_without_cuda(kTiles), square().type(bf16), {});
  EXPECT_EQ(explanation.chosen()->reason, "the only kernel that can; expected 100 us");
}

TEST(Explanation, of_a_named_kernel_says_who_wanted_it) {
  const auto explanation =
      kForwardFamily.explain(registry_without_cuda(kTiles), square(), {.kernel = "cpu/avx2/fwd_tile"});
  EXPECT_EQ(explanation.chosen()->kernel.name, "cpu/avx2/fwd_tile");
  EXPECT_EQ(explanation.chosen()->reason, "the caller named it; expected 2.00 ms");
  EXPECT_EQ(explanation.candidates[1].rule, "kernel-name");
}

TEST(Explanation, of_a_chosen_engine_excludes_the_kernels_of_others) {
  auto specs = kTiles;
  specs.push_back({.stem = "fwd", .arch = Sm{90}, .seconds = 1e-9});
  const auto explanation =
      kForwardFamily.explain(registry_without_cuda(specs), square(), {.engine = EngineChoice::cpu});
  EXPECT_EQ(explanation.chosen()->kernel.name, "cpu/avx512/fwd_tile");
  EXPECT_EQ(explanation.candidates.back().kernel.name, "cuda/sm_90/fwd");
  EXPECT_EQ(explanation.candidates.back().rule, "engine");
  EXPECT_EQ(explanation.candidates.back().reason, "it runs on cuda; the caller chose the engine");
}

TEST(Explanation, as_json_holds_the_same) {
  const auto json =
      nlohmann::json::parse(kForwardFamily.explain(registry_without_cuda(kTiles), square(), {}).to_json());
  EXPECT_EQ(json["problem"], square().to_string());
  EXPECT_EQ(json["chosen"]["name"], "cpu/avx512/fwd_tile");
  EXPECT_EQ(json["chosen"]["engine"], "cpu");
  EXPECT_THAT(json["why"].get<std::string>(), HasSubstr("fastest"));
  ASSERT_EQ(json["others"].size(), 4u);
  EXPECT_EQ(json["others"][2]["kernel"]["name"], "cpu/amx/fwd_tile");
  EXPECT_EQ(json["others"][2]["rule"], "arch");
  EXPECT_THAT(json["others"][2]["reason"].get<std::string>(), HasSubstr("needs amx"));
  EXPECT_EQ(json["missing_engines"][0]["engine"], "cuda");
}

}  // namespace
}  // namespace heed::dispatch
