/// Runs the tests, or with HEED_TEST_SHARD=2/4 the second of four parts of them. gtest's own shards would send each
/// engine of a test to another process; here a sentence stays together, so that its engines are judged by the same
/// references.

#include "conformance/conformance.hpp"

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

namespace heed::conformance {
namespace {

/// Adds to gtest's filter that what belongs to other shards is not run.
void leave_to_others(int shard, int shards) {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  std::string others;
  std::set<std::string> seen;
  for (int i = 0; i < all.total_test_suite_count(); ++i)
    for (int j = 0; j < all.GetTestSuite(i)->total_test_count(); ++j) {
      const testing::TestInfo& test = *all.GetTestSuite(i)->GetTestInfo(j);
      const std::string sentence = sentence_of(test);
      if (!seen.insert(sentence).second) continue;
      const int turn = static_cast<int>((seen.size() - 1) % static_cast<std::size_t>(shards));
      if (turn + 1 != shard) others += ":" + sentence + ":" + sentence + "/*";
    }
  if (others.empty()) return;
  std::string filter = testing::GTEST_FLAG(filter);
  if (filter.find('-') == std::string::npos) others.front() = '-';
  testing::GTEST_FLAG(filter) = filter + others;
}

}  // namespace
}  // namespace heed::conformance

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const char* text = std::getenv("HEED_TEST_SHARD")) {
    int shard = 0, shards = 0;
    if (std::sscanf(text, "%d/%d", &shard, &shards) != 2 || shard < 1 || shard > shards) {
      std::fprintf(stderr, "HEED_TEST_SHARD=%s: which part of how many, for example 2/4.\n", text);
      return 2;
    }
    heed::conformance::leave_to_others(shard, shards);
  }
  return RUN_ALL_TESTS();
}
