#include "cuda/cache_folder.hpp"
#include "cuda/jit_fixture.hpp"

namespace heed::cuda::test {
namespace {

TEST(DefaultCacheFolder, follows_the_environment) {
  const Environment home("HOME", "/home/somebody"), xdg("XDG_CACHE_HOME", ""), heed("HEED_CACHE_DIR", "");
  EXPECT_EQ(default_cache_folder(), "/home/somebody/.cache/heed");
  {
    const Environment relative("XDG_CACHE_HOME", "relative");
    EXPECT_EQ(default_cache_folder(), "/home/somebody/.cache/heed");
  }
  const Environment set("XDG_CACHE_HOME", "/var/cache");
  EXPECT_EQ(default_cache_folder(), "/var/cache/heed");
  const Environment own("HEED_CACHE_DIR", "own/folder");
  EXPECT_EQ(default_cache_folder(), "own/folder");
}

TEST(DefaultCacheFolder, is_none_where_nothing_is_set) {
  const Environment home("HOME", ""), xdg("XDG_CACHE_HOME", ""), heed("HEED_CACHE_DIR", "");
  EXPECT_EQ(default_cache_folder(), "");
}

using CacheFolderTest = JitTest;

TEST_F(CacheFolderTest, lists_what_it_holds_and_what_is_damaged) {
  Jit jit(options());
  jit.get(kernel, "sm_90a");
  jit.get(kernel, "sm_80");
  put(folder.path() / "cache" / (std::string(64, '0') + "-13.0.kernel"), "damaged");
  put(folder.path() / "cache" / "not ours", "");
  put(folder.path() / "cache" / "not ours.kernel", "");
  const CacheFolder cache(folder.path() / "cache");
  const auto list = cache.list();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].entry->arch, "sm_80");
  EXPECT_EQ(list[1].entry->arch, "sm_90a");
  EXPECT_EQ(list[1].entry->kernel, "example");
  EXPECT_FALSE(list[2].entry);
  EXPECT_EQ(list[2].bytes, 7u);
  EXPECT_EQ(cache.count().files, 3u);
  EXPECT_EQ(cache.count().bytes, list[0].bytes + list[1].bytes + 7);
}

TEST_F(CacheFolderTest, clearing_removes_what_heed_has_written_and_nothing_else) {
  const fs::path cache = folder.path() / "cache";
  Jit(options()).get(kernel, "sm_90a");
  const std::string entry = std::string(64, '0') + "-13.0.kernel";
  put(cache / (entry + ".abcDE1.tmp"), "left by a process that was killed");
  put(cache / (entry + ".lock"), "");
  put(cache / "not ours", "");
  put(cache / "not ours.kernel", "");
  put(cache / (entry + ".bak"), "");
  EXPECT_EQ(CacheFolder(cache).clear().files, 3u);
  EXPECT_THAT(files_in(cache),
              ::testing::UnorderedElementsAre(cache / "not ours", cache / "not ours.kernel", cache / (entry + ".bak")));
}

TEST_F(CacheFolderTest, that_is_missing_lists_counts_and_clears_nothing) {
  CacheFolder missing(folder.path() / "no/such");
  EXPECT_TRUE(missing.list().empty());
  EXPECT_EQ(missing.count().files, 0u);
  EXPECT_EQ(missing.clear().files, 0u);
}

}  // namespace
}  // namespace heed::cuda::test
