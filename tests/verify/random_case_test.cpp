/// What random problems are made of: whoever changes how they are drawn sees what has become rare.

#include "verify/fuzz.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>

namespace heed::verify {
namespace {

/// As many as `make test` runs of each operation.
constexpr std::int64_t kCases = 2000;

std::int64_t count(Operation operation, const std::function<bool(const Case&)>& has) {
  std::int64_t found = 0;
  for (std::int64_t number = 0; number < kCases; ++number) found += has(random_case(1, number, operation)) ? 1 : 0;
  return found;
}

/// Some sequence is longer than these.
bool longer_than(const Case& c, std::int64_t s_q, std::int64_t s_k) {
  for (std::int64_t e = 0; e < c.b; ++e)
    if (c.logical_q(e) > s_q && c.logical_k(e) > s_k) return c.h > 0;
  return false;
}

// Strips of queries have 12, 24 or 64 rows on CPUs, chunks of keys 512.
TEST(RandomCase, of_gradients_has_several_strips_of_queries_and_several_chunks_of_keys_together) {
  EXPECT_GE(count(Operation::backward, [](const Case& c) { return longer_than(c, 64, 512); }), 12);
  EXPECT_GE(count(Operation::backward, [](const Case& c) { return longer_than(c, 128, 1024); }), 2);
}

TEST(RandomCase, of_gradients_has_wide_heads_with_more_rows_than_a_tile) {
  EXPECT_GE(count(Operation::backward, [](const Case& c) { return c.d > 128 && longer_than(c, 64, 64); }), 5);
}

TEST(RandomCase, of_gradients_has_keys_without_query_heads) {
  EXPECT_GE(count(Operation::backward, [](const Case& c) { return c.h == 0 && c.h_k > 0; }), 2);
}

TEST(RandomCase, has_what_is_seldom_in_memory) {
  for (const Operation operation : {Operation::forward, Operation::backward}) {
    EXPECT_GE(count(operation, [](const Case& c) { return c.q_around.before > 0; }), 30);
    EXPECT_GE(count(operation, [](const Case& c) { return c.k_around.behind > 0; }), 30);
    EXPECT_GE(count(operation, [](const Case& c) { return c.table_more_k > 0; }), 20);
    EXPECT_GE(count(operation, [](const Case& c) { return !c.reversed.empty(); }), 60);
    EXPECT_GE(count(operation, [](const Case& c) { return c.sink == SinkInit::holes; }), 20);
    EXPECT_GE(count(operation, [](const Case& c) { return c.bias && !c.bias->shape.key; }), 10);
  }
  EXPECT_GE(count(Operation::backward, [](const Case& c) { return c.dbias && !c.bias->shape.key; }), 5);
  EXPECT_GE(count(Operation::backward, [](const Case& c) { return c.dbias && c.table_more_k > 0; }), 5);
  EXPECT_GE(count(Operation::backward, [](const Case& c) { return c.dsink && c.sink == SinkInit::holes; }), 10);
}

}  // namespace
}  // namespace heed::verify
