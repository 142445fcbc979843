#include "cuda/tensor_map.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace heed::cuda {
namespace {

const void* at(std::uintptr_t address) { return reinterpret_cast<const void*>(address); }

TEST(TensorMap, takes_memory_in_steps_of_sixteen_bytes) {
  const Strides dense{.batch = 4 * 128 * 136, .sequence = 136, .head = 128 * 136};
  EXPECT_TRUE(can_map(at(4096), dense));
  EXPECT_TRUE(can_map(at(4112), dense));
  EXPECT_TRUE(can_map(at(4096), {.batch = 0, .sequence = 0, .head = 0})) << "steps that are never taken";
  EXPECT_FALSE(can_map(at(4098), dense));
  for (const std::int64_t step : {std::int64_t{135}, std::int64_t{140}, std::int64_t{-136}, std::int64_t{1} << 39}) {
    Strides odd = dense;
    odd.sequence = step;
    EXPECT_FALSE(can_map(at(4096), odd)) << step;
    odd = dense, odd.head = step;
    EXPECT_FALSE(can_map(at(4096), odd)) << step;
    odd = dense, odd.batch = step;
    EXPECT_FALSE(can_map(at(4096), odd)) << step;
  }
  Strides transposed = dense;
  transposed.dim = 8;
  EXPECT_FALSE(can_map(at(4096), transposed));
}

}  // namespace
}  // namespace heed::cuda
