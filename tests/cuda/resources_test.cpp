#include "cuda/resources.hpp"

#include "core/json.hpp"

#include <gtest/gtest.h>

namespace heed::cuda {
namespace {

TEST(Resources, are_read_from_the_compilers_log) {
  const Resources found = read_resources(R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'heed_kernel' for 'sm_90a'
ptxas info    : Function properties for heed_kernel
    48 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 168 registers, used 9 barriers, 1024 bytes smem, 896 bytes cmem[0]
ptxas info    : Compile time = 123.456 ms
)");
  EXPECT_EQ(found, (Resources{.registers = 168,
                              .shared_bytes = 1024,
                              .local_bytes = 48,
                              .spill_bytes = 36,
                              .serialized_wgmma = false,
                              .remarks = {}}));
}

TEST(Resources, tell_of_serialized_wgmma) {
  const Resources found = read_resources(
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
      "insufficient register resources for the wgmma pipeline in the function 'heed_kernel'\n"
      "ptxas info    : Used 255 registers\n");
  EXPECT_TRUE(found.serialized_wgmma);
  EXPECT_EQ(found.remarks.find("ptxas info    : (C7510)"), 0u);
  EXPECT_FALSE(read_resources("ptxas info    : Used 255 registers\n").serialized_wgmma);
}

TEST(Resources, tell_an_injected_wait_from_an_injected_arrive) {
  const Resources wait = read_resources(
      "ptxas info    : (C7517) warpgroup.wait is injected in around line 68 by compiler to allow use of registers "
      "defined by GMMA in function 'heed_kernel'\n");
  EXPECT_TRUE(wait.serialized_wgmma);
  const Resources arrive = read_resources(
      "ptxas info    : (C7519) warpgroup.arrive is injected in around line 95 by compiler to allow use of registers in "
      "GMMA in function 'heed_kernel'\n");
  EXPECT_FALSE(arrive.serialized_wgmma);
  EXPECT_NE(arrive.remarks, "");
}

TEST(Resources, of_a_log_that_says_nothing_are_none) { EXPECT_EQ(read_resources(""), Resources{}); }

TEST(Resources, survive_json) {
  const Resources some{1, 2, 3, 4, true, "a remark\n"};
  EXPECT_EQ(resources_from_json(to_json(some)), some);
}

}  // namespace
}  // namespace heed::cuda
