// How a process with emulated tiles goes on, and how it ends.
#include "amx/emulation.hpp"
#include "amx/tiles.hpp"

#include "cpu/isa.hpp"

#include <gtest/gtest.h>
#include <immintrin.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

namespace heed::amx {
namespace {

using dispatch::CpuIsa;

bool has(CpuIsa isa) { return cpu::machine().has[static_cast<std::size_t>(isa)]; }

class Emulation : public testing::Test {
 protected:
  void SetUp() override {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    if (!has(CpuIsa::avx512bf16)) GTEST_SKIP() << "this machine has no AVX-512 BF16";
  }
};

/// What the emulator says itself, where a CPU would only stop.
class EmulationRefuses : public Emulation {
 protected:
  void SetUp() override {
    Emulation::SetUp();
    if (!emulated() && !IsSkipped()) GTEST_SKIP() << "this machine has AMX itself";
  }
};

TileConfig full_config() {
  TileConfig config;
  config.palette = 1;
  for (int tile = 0; tile < kTiles; ++tile) config.rows[tile] = kMostRows, config.row_bytes[tile] = kRowBytes;
  return config;
}
void configure(const std::function<void(TileConfig&)>& change) {
  TileConfig config = full_config();
  change(config);
  asm volatile("" ::: "memory");
  _tile_loadconfig(&config);
}
void configure() {
  configure([](TileConfig&) {});
}

TEST_F(Emulation, HeedFindsTilesWhereThereIsAvx512Bf16) { EXPECT_TRUE(has(CpuIsa::amx)); }

TEST_F(Emulation, AnyOtherIllegalInstructionEndsTheProcess) {
  EXPECT_EXIT(asm volatile("ud2"), testing::KilledBySignal(SIGILL), "");
  EXPECT_EXIT(
      {
        configure();
        _tile_zero(0);
        asm volatile("ud2");
      },
      testing::KilledBySignal(SIGILL), "");
}

TEST_F(Emulation, ASignalSentByAProcessEndsIt) {
  EXPECT_EXIT(
      {
        raise(SIGILL);
        _exit(0);
      },
      testing::KilledBySignal(SIGILL), "");
}

TEST_F(Emulation, RowsThatNobodyMayReadEndTheProcess) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  EXPECT_DEATH(
      {
        auto* pages =
            static_cast<char*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        mprotect(pages + page, page, PROT_NONE);
        configure();
        _tile_loadd(0, pages + page - 16 * 64, 64);
        if (write(STDERR_FILENO, "the first is right", 18) != 18) _exit(0);
        _tile_loadd(0, pages + page - 15 * 64, 64);
        _exit(0);
      },
      "the first is right");
}

#ifdef __SANITIZE_ADDRESS__
TEST_F(EmulationRefuses, RowsBehindTheEndOfAnAllocation) {
  const std::vector<char> rows(16 * 64);
  configure();
  _tile_loadd(0, rows.data(), 64);
  EXPECT_DEATH(_tile_loadd(0, rows.data() + 4, 64), "heap-buffer-overflow");
}
#endif

TEST_F(EmulationRefuses, TilesWithoutConfiguration) {
  EXPECT_DEATH(_tile_zero(0), "AMX emulator: TILEZERO: tiles have no configuration in this thread");
  EXPECT_DEATH(
      {
        configure();
        _tile_release();
        _tile_dpbf16ps(0, 1, 2);
      },
      "TDPBF16PS: tiles have no configuration in this thread");
  EXPECT_DEATH(
      {
        configure([](TileConfig& c) { c.rows[1] = 0, c.row_bytes[1] = 0; });
        _tile_zero(1);
      },
      "TILEZERO: tile 1 has no rows in this configuration");
}

TEST_F(EmulationRefuses, ConfigurationsThatACpuWouldNotTake) {
  const auto refused = [](const std::function<void(TileConfig&)>& change, const char* words) {
    EXPECT_DEATH(configure(change), std::string("AMX emulator: LDTILECFG: ") + words);
  };
  refused([](TileConfig& c) { c.palette = 2; }, "palette 2; there is palette 1");
  refused([](TileConfig& c) { c.reserved[13] = 1; }, "a reserved byte is not zero");
  refused([](TileConfig& c) { c.row_bytes[kTiles] = 64; }, "a reserved byte is not zero");
  refused([](TileConfig& c) { c.rows[15] = 1; }, "a reserved byte is not zero");
  refused([](TileConfig& c) { c.rows[3] = 17; }, "tile 3 of 17 rows of 64 bytes; at most 16 rows of 64 bytes");
  refused([](TileConfig& c) { c.row_bytes[7] = 68; }, "tile 7 of 16 rows of 68 bytes; at most 16 rows of 64 bytes");
  refused([](TileConfig& c) { c.rows[0] = 0; }, "tile 0 of 0 rows of 64 bytes; either both are zero or none");
}

TEST_F(EmulationRefuses, ProductsOfTilesThatDoNotFit) {
  EXPECT_DEATH(
      {
        configure();
        asm volatile(".byte 0xC4, 0xE2, 0x72, 0x5C, 0xC1");  // TDPBF16PS tmm0, tmm1, tmm1, which assemblers refuse
      },
      "TDPBF16PS: tiles 0, 1 and 1 have to be three");
  EXPECT_DEATH(
      {
        configure([](TileConfig& c) { c.rows[0] = 8; });
        _tile_dpbf16ps(0, 1, 2);
      },
      "8 rows of 64 bytes are not the product of 16 rows of 64 and 16 rows of 64");
  EXPECT_DEATH(
      {
        configure([](TileConfig& c) { c.row_bytes[1] = 63; });
        _tile_dpbf16ps(0, 1, 2);
      },
      "tile 1 has rows of 63 bytes; 4 have to divide it");
}

}  // namespace
}  // namespace heed::amx
