#include "dispatch/arch.hpp"

#include <heed/error.hpp>

#include "dispatch/fakes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heed::dispatch {
namespace {

using heed::testing::error_of;

TEST(Arch, every_isa_level_is_read_back_from_its_name) {
  for (int i = 0; i < kCpuIsaCount; ++i) {
    const auto isa = static_cast<CpuIsa>(i);
    EXPECT_EQ(parse_cpu_isa(name(isa), "test"), isa);
  }
}

TEST(Arch, an_unknown_level_is_refused_with_the_names_that_exist) {
  const auto error = error_of([] { parse_cpu_isa("avx", "HEED_MAX_CPU_ISA"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_STREQ(error->what(),
               "HEED_MAX_CPU_ISA=avx : the CPU's instruction sets are called baseline, avx2, avx512, avx512bf16, amx.");
}

TEST(Arch, a_machine_runs_its_own_level_and_those_below) {
  EXPECT_EQ(lacks(CpuIsa::avx2, CpuIsa::avx512), "");
  EXPECT_EQ(lacks(CpuIsa::avx512, CpuIsa::avx512), "");
  EXPECT_EQ(lacks(CpuIsa::amx, CpuIsa::avx512), "needs amx, this machine has avx512");
}

TEST(Arch, a_gpu_does_not_run_what_is_written_for_a_cpu) {
  EXPECT_EQ(lacks(CpuIsa::baseline, Sm{90}), "needs baseline, this machine has sm_90");
  EXPECT_EQ(lacks(Sm{80}, Sm{90}), "");
  EXPECT_EQ(lacks(Sm{90}, Sm{80}), "needs sm_90, this machine has sm_80");
}

}  // namespace
}  // namespace heed::dispatch
