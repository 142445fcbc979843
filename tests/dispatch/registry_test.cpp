#include "dispatch/registry.hpp"

#include "dispatch/fakes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heed::dispatch {
namespace {

using heed::testing::error_of;
using heed::testing::FakeKernel;
using heed::testing::FakeSpec;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Registry make_registry(const std::vector<FakeSpec>& specs) {
  Registry registry;
  for (const FakeSpec& spec : specs) registry.add(std::make_shared<FakeKernel>(spec), spec.lacks);
  return registry;
}

std::vector<std::string> names(const std::vector<const Registry::Entry*>& entries) {
  std::vector<std::string> list;
  for (const auto* entry : entries) list.push_back(entry->kernel->name());
  return list;
}

const std::vector<FakeSpec> kSpecs{
    {.stem = "fwd_tile_f32", .signature = {.types = {f32, bf16}, .d = up_to(512), .d_v = up_to(512)}},
    {.stem = "fwd_tile_f32",
     .signature = {.types = {f32, bf16}, .d = up_to(512), .d_v = up_to(512)},
     .arch = CpuIsa::avx512},
    {.stem = "fwd_h",
     .signature = {.types = {f16},
                   .d = exactly(64),
                   .d_v = exactly(64),
                   .masks = {MaskClass::none, MaskClass::causal},
                   .features = {Feature::lse}},
     .arch = Sm{90}},
};

TEST(Registry, finds_a_kernel_by_its_whole_name_only) {
  const Registry registry = make_registry(kSpecs);
  ASSERT_NE(registry.find("cpu/avx512/fwd_tile_f32"), nullptr);
  EXPECT_EQ(registry.find("cpu/avx512/fwd_tile_f32")->kernel->arch(), Arch(CpuIsa::avx512));
  EXPECT_EQ(registry.find("cpu/avx512"), nullptr);
  EXPECT_EQ(registry.find("zzz"), nullptr);
  EXPECT_EQ(Registry().find(""), nullptr);
}

// Two kernels that differ in something their names leave out would hide each other.
TEST(Registry, refuses_a_second_kernel_of_the_same_name) {
  Registry registry = make_registry(kSpecs);
  const auto error = error_of([&] { registry.add(std::make_shared<FakeKernel>(kSpecs[0])); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::internal);
  EXPECT_THAT(error->what(), HasSubstr("cpu/baseline/fwd_tile_f32"));
}

TEST(Registry, lists_by_name_whatever_the_order_of_registration) {
  EXPECT_THAT(names(make_registry(kSpecs).filter("")),
              ElementsAre("cpu/avx512/fwd_tile_f32", "cpu/baseline/fwd_tile_f32", "cuda/sm_90/fwd_h"));
}

TEST(Registry, a_filter_matches_names_and_texts) {
  const Registry registry = make_registry(kSpecs);
  EXPECT_THAT(names(registry.filter("avx512")), ElementsAre("cpu/avx512/fwd_tile_f32"));
  EXPECT_THAT(names(registry.filter("cuda/*")), ElementsAre("cuda/sm_90/fwd_h"));
  EXPECT_THAT(names(registry.filter("f16*64")),
              ElementsAre("cpu/avx512/fwd_tile_f32", "cpu/baseline/fwd_tile_f32", "cuda/sm_90/fwd_h"));
  EXPECT_THAT(names(registry.filter("no such thing")), IsEmpty());
}

TEST(Registry, a_filter_for_one_head_dim_or_mask_finds_the_kernels_for_any) {
  const Registry registry = make_registry(kSpecs);
  EXPECT_THAT(names(registry.filter("d128*causal*")),
              ElementsAre("cpu/avx512/fwd_tile_f32", "cpu/baseline/fwd_tile_f32"));
  EXPECT_THAT(names(registry.filter("d64 *causal*")),
              ElementsAre("cpu/avx512/fwd_tile_f32", "cpu/baseline/fwd_tile_f32", "cuda/sm_90/fwd_h"));
  EXPECT_THAT(names(registry.filter("avx512*bf16 d64*window*dropout*accurate")),
              ElementsAre("cpu/avx512/fwd_tile_f32"));
  EXPECT_THAT(names(registry.filter("d513*causal*")), IsEmpty());
  EXPECT_THAT(names(registry.filter("d99999999999999999999")), IsEmpty());
}

TEST(Registry, knows_which_kernels_an_arch_runs) {
  const Registry registry = make_registry(kSpecs);
  EXPECT_THAT(names(registry.runnable_on(CpuIsa::avx2)), ElementsAre("cpu/baseline/fwd_tile_f32"));
  EXPECT_THAT(names(registry.runnable_on(CpuIsa::amx)),
              ElementsAre("cpu/avx512/fwd_tile_f32", "cpu/baseline/fwd_tile_f32"));
  EXPECT_THAT(names(registry.runnable_on(Sm{100})), ElementsAre("cuda/sm_90/fwd_h"));
  EXPECT_THAT(names(registry.runnable_on(Sm{80})), IsEmpty());
}

TEST(Registry, exports_json_with_wildcards_and_reasons) {
  auto specs = kSpecs;
  specs[2].lacks = "needs sm_90, this machine has sm_80";
  Registry registry = make_registry(specs);
  registry.add_missing(EngineKind::cuda, "no driver");
  const auto json = registry.to_json();

  ASSERT_EQ(json["kernels"].size(), 3u);
  const auto& cpu = json["kernels"][0];
  EXPECT_EQ(cpu["name"], "cpu/avx512/fwd_tile_f32");
  EXPECT_EQ(cpu["engine"], "cpu");
  EXPECT_EQ(cpu["family"], "forward");
  EXPECT_EQ(cpu["arch"], "avx512");
  EXPECT_EQ(cpu["runs_here"], true);
  EXPECT_FALSE(cpu.contains("lacks"));
  EXPECT_EQ(cpu["signature"]["types"], nlohmann::ordered_json({"f32", "bf16"}));
  EXPECT_EQ(cpu["signature"]["d"]["max"], 512);
  EXPECT_EQ(cpu["signature"]["masks"], "any");
  EXPECT_EQ(cpu["algorithm"]["unit"], "f32_fma");
  EXPECT_EQ(cpu["algorithm"]["tile_q"], 64);

  const auto& cuda = json["kernels"][2];
  EXPECT_EQ(cuda["runs_here"], false);
  EXPECT_EQ(cuda["lacks"], "needs sm_90, this machine has sm_80");
  EXPECT_EQ(cuda["signature"]["masks"], nlohmann::ordered_json({"none", "causal"}));
  EXPECT_EQ(json["missing_engines"][0]["engine"], "cuda");
  EXPECT_EQ(json["missing_engines"][0]["reason"], "no driver");
  EXPECT_EQ(registry.to_json("cuda*")["kernels"].size(), 1u);
}

}  // namespace
}  // namespace heed::dispatch
