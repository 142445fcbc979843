#include "cpu/isa.hpp"

#include <heed/plan.hpp>

#include <gtest/gtest.h>

namespace heed::cpu {
namespace {

TEST(Isa, ALevelIsThereOnlyWithAllThoseBelowIt) {
  const Machine& here = machine();
  EXPECT_TRUE(here.has[0]);
  for (std::size_t level = 1; level < here.has.size(); ++level) {
    if (!here.has[level]) continue;
    EXPECT_TRUE(here.has[level - 1]) << level;
  }
  EXPECT_FALSE(here.model.empty());
}

TEST(Isa, AThreadsShareOfTheCachesIsAMatterOfMegabytesWhereItIsKnown) {
  const std::int64_t bytes = machine().cache_bytes;
  if (bytes == 0) GTEST_SKIP() << machine().model << " does not tell";
  EXPECT_GE(bytes, 128 << 10);
  EXPECT_LE(bytes, std::int64_t{1} << 30);
}

TEST(Isa, AContextUsesNoLevelAboveItsLimit) {
  const auto problem = Problem::forward().type(bf16).heads(2).lengths(100, 100);
  EXPECT_EQ(Context({.max_cpu_isa = "baseline"}).plan(problem).kernel(), "cpu/baseline/fwd_tile_f32");
}

TEST(Isa, ALevelLeftAsideIsNotCalledMissing) {
  Context limited({.max_cpu_isa = "baseline"});
  for (const KernelInfo& kernel : limited.kernels()) {
    EXPECT_EQ(kernel.lacks.empty(), kernel.arch == "baseline") << kernel.name << ": " << kernel.lacks;
  }
}

}  // namespace
}  // namespace heed::cpu
