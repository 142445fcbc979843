#include "core/cpu_quota.hpp"

#include <heed/error.hpp>
#include <heed/executor.hpp>

#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace heed::detail {
namespace {

namespace fs = std::filesystem;

/// A directory with a /proc and a /sys of our own making.
class CgroupQuota : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "heed-cgroup-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) {
    const fs::path path = root_ / file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  void v2(const std::string& cgroup, const std::string& mount_root = "/") {
    write("proc/self/cgroup", "0::" + cgroup + "\n");
    write("proc/self/mountinfo",
          "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
          "31 23 0:28 " +
              mount_root + " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  }

  void v1(const std::string& cgroup, const std::string& mount_root = "/") {
    write("proc/self/cgroup", "5:memory:/elsewhere\n3:cpuset:/wrong\n2:cpu,cpuacct:" + cgroup + "\n1:name=systemd:/\n");
    write("proc/self/mountinfo", "33 31 0:30 " + mount_root +
                                     " /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
                                     "34 31 0:31 " +
                                     mount_root + " /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
  }

  std::optional<int> cpus() const { return cgroup_cpus(root_); }

  fs::path root_;
};

TEST_F(CgroupQuota, NothingToReadMeansNoLimit) { EXPECT_EQ(cpus(), std::nullopt); }

TEST_F(CgroupQuota, V2QuotaIsRoundedUp) {
  v2("/app");
  write("sys/fs/cgroup/app/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpus(), 2);
  write("sys/fs/cgroup/app/cpu.max", "400000 100000\n");
  EXPECT_EQ(cpus(), 4);
  write("sys/fs/cgroup/app/cpu.max", "1000 100000\n");
  EXPECT_EQ(cpus(), 1);
}

TEST_F(CgroupQuota, V2MaxMeansNoLimit) {
  v2("/app");
  write("sys/fs/cgroup/app/cpu.max", "max 100000\n");
  EXPECT_EQ(cpus(), std::nullopt);
}

TEST_F(CgroupQuota, TheTightestOfNestedQuotasCounts) {
  v2("/slice/service/worker");
  write("sys/fs/cgroup/slice/cpu.max", "300000 100000\n");
  write("sys/fs/cgroup/slice/service/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/slice/service/worker/cpu.max", "800000 100000\n");
  EXPECT_EQ(cpus(), 3);
  write("sys/fs/cgroup/slice/service/worker/cpu.max", "100000 50000\n");
  EXPECT_EQ(cpus(), 2);
}

TEST_F(CgroupQuota, AQuotaOnASiblingDoesNotCount) {
  v2("/slice/mine");
  write("sys/fs/cgroup/slice/theirs/cpu.max", "100000 100000\n");
  write("sys/fs/cgroup/slice/mine/below/cpu.max", "100000 100000\n");
  EXPECT_EQ(cpus(), std::nullopt);
}

TEST_F(CgroupQuota, AContainerWithItsOwnCgroupNamespaceReadsTheMountPoint) {
  v2("/");
  write("sys/fs/cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(cpus(), 3);
}

TEST_F(CgroupQuota, V1QuotaIsRoundedUp) {
  v1("/app");
  write("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "250000\n");
  write("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpus(), 3);
}

TEST_F(CgroupQuota, V1MinusOneMeansNoLimit) {
  v1("/app");
  write("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpus(), std::nullopt);
}

// Docker on v1: the process sees its path on the host, but only the part of the tree below the container.
TEST_F(CgroupQuota, APathThatStartsWithTheMountRootIsTakenRelativeToIt) {
  v1("/docker/abc/inner", "/docker/abc");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "600000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpus(), 6);
  write("sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_quota_us", "500000\n");
  write("sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpus(), 5);
}

TEST_F(CgroupQuota, APathOutsideTheMountFallsBackToTheMountPoint) {
  for (const char* cgroup : {"/docker/abcdef", "/../../elsewhere", "/"}) {
    SCOPED_TRACE(cgroup);
    v2(cgroup, "/docker/abc");
    write("sys/fs/cgroup/cpu.max", "700000 100000\n");
    EXPECT_EQ(cpus(), 7);
  }
}

TEST_F(CgroupQuota, OfBothVersionsAtOnceTheTighterCounts) {
  write("proc/self/cgroup", "1:cpu:/one\n0::/two\n");
  write("proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  write("sys/fs/cgroup/cpu/one/cpu.cfs_quota_us", "400000");
  write("sys/fs/cgroup/cpu/one/cpu.cfs_period_us", "100000");
  write("sys/fs/cgroup/unified/two/cpu.max", "500000 100000");
  EXPECT_EQ(cpus(), 4);
}

TEST_F(CgroupQuota, MountPointsWithSpacesAndCgroupsWithColonsAreUnderstood) {
  write("proc/self/cgroup", "0::/a:b\n");
  write("proc/self/mountinfo", "31 23 0:28 / /my\\040cgroups rw - cgroup2 cgroup2 rw\n");
  write("my cgroups/a:b/cpu.max", "200000 100000\n");
  EXPECT_EQ(cpus(), 2);
}

TEST_F(CgroupQuota, GarbageLimitsNothing) {
  v2("/app");
  for (const char* text : {"", "\n", "max", "150000", "a b", "150000 0", "150000 -1", "-5 100000", "0 100000", "1.5 1",
                           "150000us 100000us", "99999999999999999999 100000", "1 2 3", "\xff\xfe"}) {
    SCOPED_TRACE(text);
    write("sys/fs/cgroup/app/cpu.max", text);
    EXPECT_EQ(cpus(), std::nullopt);
  }
  write("sys/fs/cgroup/app/cpu.max", "100000 100000");
  EXPECT_EQ(cpus(), 1);
  for (const char* text : {"", "0", "0:", ":::", "0:/app", "garbage\n\n"}) {
    SCOPED_TRACE(text);
    write("proc/self/cgroup", text);
    EXPECT_EQ(cpus(), std::nullopt);
  }
  v2("/app");
  for (const char* text : {"", " - ", "a - cgroup2", "1 2 3 4 - cgroup2 c rw", "1 2 3 / /sys/fs/cgroup rw - ", "\\"}) {
    SCOPED_TRACE(text);
    write("proc/self/mountinfo", text);
    EXPECT_EQ(cpus(), std::nullopt);
  }
}

TEST(UsableThreads, AffinityMaskIsCounted) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(affinity_cpus(), CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(affinity_cpus(), 1);
  unsetenv("HEED_NUM_THREADS");
  EXPECT_EQ(usable_threads(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(UsableThreads, EnvironmentOverridesWhatTheSystemSays) {
  setenv("HEED_NUM_THREADS", "17", 1);
  EXPECT_EQ(usable_threads(), 17);
  EXPECT_EQ(ThreadPool().concurrency(), 17);
  EXPECT_EQ(ThreadPool(3).concurrency(), 3);
  unsetenv("HEED_NUM_THREADS");
}

TEST(UsableThreads, AnEmptyVariableIsNotSet) {
  unsetenv("HEED_NUM_THREADS");
  const int threads = usable_threads();
  EXPECT_GE(threads, 1);
  EXPECT_LE(threads, affinity_cpus());
  setenv("HEED_NUM_THREADS", "", 1);
  EXPECT_EQ(usable_threads(), threads);
  unsetenv("HEED_NUM_THREADS");
}

TEST(UsableThreads, AVariableThatIsNoNumberOfThreadsIsRefusedByName) {
  for (const char* text : {"banana", "0", "-1", "4x", " 4", "1e3", "4097", "99999999999999999999"}) {
    SCOPED_TRACE(text);
    setenv("HEED_NUM_THREADS", text, 1);
    try {
      usable_threads();
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("HEED_NUM_THREADS=" + std::string(text)), std::string::npos);
    }
  }
  unsetenv("HEED_NUM_THREADS");
}

}  // namespace
}  // namespace heed::detail
