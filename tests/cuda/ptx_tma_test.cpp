/// The tensor copy engine: boxes with their swizzle, in both directions, alone and in a cluster.

#include "cuda/ptx_fixture.hpp"
#include "cuda/tensor_map.hpp"

#include <cstdint>

namespace heed::cuda {
namespace {

using u16 = std::uint16_t;
using u32 = std::uint32_t;

/// [batch 2, head 3, rows 20, columns 80] of 16-bit numbers that tell where they are.
constexpr int kColumns = 80, kRows = 20, kHeads = 3, kBatch = 2;
u16 value_at(int b, int h, int row, int column) {
  return static_cast<u16>(((b * kHeads + h) * kRows + row) * kColumns + column + 1);
}
std::vector<u16> tensor() {
  std::vector<u16> all;
  for (int b = 0; b < kBatch; ++b)
    for (int h = 0; h < kHeads; ++h)
      for (int row = 0; row < kRows; ++row)
        for (int column = 0; column < kColumns; ++column) all.push_back(value_at(b, h, row, column));
  return all;
}
CUtensorMap map_of(CUdeviceptr data, unsigned box_rows) {
  return map_tensor(
             reinterpret_cast<const void*>(data), DataType::f16,
             Strides{.batch = kHeads * kRows * kColumns, .sequence = kColumns, .head = kRows * kColumns, .dim = 1},
             kColumns, kRows, kHeads, kBatch, box_rows)
      .map;
}

/// Where element (row, column) of a box lies: chunks of 16 bytes change places within groups of eight rows.
std::size_t swizzled(int row, int column) {
  return static_cast<std::size_t>(row * 64 + ((column / 8) ^ (row & 7)) * 8 + column % 8);
}

TEST_F(Ptx, tma_brings_a_box_with_its_swizzle_and_zeros_outside) {
  compile("tma_load", R"(
  if (thread == 0) {
    mbarrier_init(shared + 4096, 1);
    mbarrier_init_fence();
    tma_prefetch(&map);
    mbarrier_arrive_expect(shared + 4096, 2 * 16 * 128);
    tma_load(shared, &map, shared + 4096, 0, 8, 2, 1, keep_in_l2());          // rows 8 to 23 of 20
    tma_load(shared + 2048, &map, shared + 4096, 64, -3, 1, 0, drop_from_l2());  // columns 64 to 127 of 80, rows from -3
  }
  __syncthreads();
  mbarrier_wait(shared + 4096, 0);
  for (u32 i = thread; i < 1024; i += 128)
    reinterpret_cast<u32*>(out)[i] = reinterpret_cast<u32*>(shared_memory)[i];
)",
          {.threads = 128, .shared_bytes = 4096 + 64});
  SKIP_WITHOUT_GPU();
  const std::vector<u16> in = tensor();
  std::vector<u16> out(2048, 9);
  const Memory input(in.size() * 2), output(out.size() * 2);
  input.write(in.data(), in.size() * 2);
  launch(map_of(input.address, 16), input.address, output.address);
  output.read(out.data(), out.size() * 2);
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 64; ++column) {
      EXPECT_EQ(out[swizzled(row, column)], row + 8 < kRows ? value_at(1, 2, row + 8, column) : 0)
          << row << " " << column;
      const bool inside = row - 3 >= 0 && column + 64 < kColumns;
      EXPECT_EQ(out[1024 + swizzled(row, column)], inside ? value_at(0, 1, row - 3, column + 64) : 0)
          << row << " " << column;
    }
}

TEST_F(Ptx, tma_writes_a_box_and_nothing_outside_the_tensor) {
  compile("tma_store", R"(
  for (u32 i = thread; i < 1024; i += 128)  // element (row, column) = 64 * row + column, swizzled
    *reinterpret_cast<u16*>(shared_memory + i / 64 * 128 + (((i % 64 / 8) ^ (i / 64 & 7)) * 16) + i % 8 * 2) = u16(i);
  fence_shared_for_async();
  __syncthreads();
  if (thread == 0) {
    tma_store(&map, shared, 64, 10, 1, 1);  // columns 64 to 79, rows 10 to 19 are there
    tma_store_commit();
    tma_store_wait_read<0>();
  }
)",
          {.threads = 128, .shared_bytes = 2048});
  SKIP_WITHOUT_GPU();
  std::vector<u16> out = tensor();
  const Memory output(out.size() * 2);
  output.write(out.data(), out.size() * 2);
  launch(map_of(output.address, 16), output.address, output.address);
  output.read(out.data(), out.size() * 2);
  std::size_t at = 0;
  for (int b = 0; b < kBatch; ++b)
    for (int h = 0; h < kHeads; ++h)
      for (int row = 0; row < kRows; ++row)
        for (int column = 0; column < kColumns; ++column, ++at) {
          const bool written = b == 1 && h == 1 && row >= 10 && column >= 64;
          EXPECT_EQ(out[at], written ? 64 * (row - 10) + column - 64 : value_at(b, h, row, column))
              << b << " " << h << " " << row << " " << column;
        }
}

/// Heads 0 to 3 as two groups of two: a box of 16 has both heads of eight rows.
TEST_F(Ptx, tma_brings_and_writes_the_heads_of_a_group_side_by_side) {
  constexpr int kGroup = 2, kFour = 4;
  compile("tma_groups", R"(
  if (thread == 0) {
    mbarrier_init(shared + 4096, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect(shared + 4096, 16 * 128);
    tma_load(shared, &map, shared + 4096, 0, 0, 3, 1, 0, keep_in_l2());  // rows 3 to 10 of heads 2 and 3
    mbarrier_wait(shared + 4096, 0);
    tma_store(&map, shared, 0, 0, 16, 0, 0);  // to rows 16 to 19 of heads 0 and 1; there are no more
    tma_store_commit();
    tma_store_wait_read<0>();
  }
  __syncthreads();
  for (u32 i = thread; i < 512; i += 128)
    reinterpret_cast<u32*>(out)[i] = reinterpret_cast<u32*>(shared_memory)[i];
)",
          {.threads = 128, .shared_bytes = 4096 + 64});
  SKIP_WITHOUT_GPU();
  const std::vector<u16> in = tensor();  // read as one batch entry with four heads
  std::vector<u16> after(in.size()), out(1024, 9);
  const Memory input(in.size() * 2), output(out.size() * 2);
  input.write(in.data(), in.size() * 2);
  const CUtensorMap map = map_groups(reinterpret_cast<const void*>(input.address), DataType::f16,
                                     Strides{.batch = 0, .sequence = kColumns, .head = kRows * kColumns, .dim = 1},
                                     kColumns, kRows, kFour, kGroup, 1, 16)
                              .map;
  launch(map, input.address, output.address);
  output.read(out.data(), out.size() * 2);
  input.read(after.data(), after.size() * 2);
  const auto at = [&](const std::vector<u16>& from, int head, int row, int column) {
    return from[static_cast<std::size_t>((head * kRows + row) * kColumns + column)];
  };
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 64; ++column)
      EXPECT_EQ(out[swizzled(row, column)], at(in, 2 + row % 2, 3 + row / 2, column)) << row << " " << column;
  for (int head = 0; head < kFour; ++head)
    for (int row = 0; row < kRows; ++row)
      for (int column = 0; column < kColumns; ++column) {
        const bool written = head < 2 && row >= 16 && column < 64;
        EXPECT_EQ(at(after, head, row, column),
                  written ? at(in, 2 + head, 3 + row - 16, column) : at(in, head, row, column))
            << head << " " << row << " " << column;
      }
}

/// Two blocks, each loading half of the rows for both; each gives its memory back to both.
TEST_F(Ptx, blocks_of_a_cluster_load_for_each_other) {
  compile("cluster", R"(
  const u32 rank = cluster_rank(), full = shared + 2048, empty = shared + 2056;
  if (thread == 0) {
    mbarrier_init(full, 1);
    mbarrier_init(empty, 2);
    mbarrier_init_fence();
  }
  cluster_sync();
  u32* y = reinterpret_cast<u32*>(out) + rank * (2 * 512 + 1);
  for (u32 turn = 0; turn < 2; ++turn) {
    if (thread == 0) {
      if (turn > 0) mbarrier_wait(empty, 0);  // both blocks have read the turn before
      mbarrier_arrive_expect(full, 16 * 128);
      tma_load_to_all(shared + rank * 1024, &map, full, 0, int(8 * rank + 2 * turn), 0, 1, 3, keep_in_l2());
    }
    mbarrier_wait(full, turn);
    for (u32 i = thread; i < 512; i += 128) y[turn * 512 + i] = reinterpret_cast<u32*>(shared_memory)[i];
    __syncthreads();
    if (thread < 2) mbarrier_arrive_at(empty, thread);
  }
  if (thread == 0) y[1024] = rank;
  cluster_sync();
)",
          {.threads = 128, .blocks = 2, .shared_bytes = 2048 + 64, .attributes = "__cluster_dims__(2, 1, 1)"});
  SKIP_WITHOUT_GPU();
  const std::vector<u16> in = tensor();
  std::vector<u16> out(2 * 2 * (2 * 512 + 1), 9);
  const Memory input(in.size() * 2), output(out.size() * 2);
  input.write(in.data(), in.size() * 2);
  launch(map_of(input.address, 8), input.address, output.address);
  output.read(out.data(), out.size() * 2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const u16* const mine = out.data() + rank * 2 * (2 * 512 + 1);
    EXPECT_EQ(mine[2048], rank);
    for (int turn = 0; turn < 2; ++turn)
      for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 64; ++column) {
          // Each half is a box of its own, so that its rows are counted from 0 in the swizzle; eight rows are one turn
          // of it.
          const int from = row + 2 * turn;
          EXPECT_EQ(mine[static_cast<std::size_t>(turn) * 1024 + swizzled(row, column)],
                    from < kRows ? value_at(1, 0, from, column) : 0)
              << rank << " " << turn << " " << row << " " << column;
        }
  }
}

}  // namespace
}  // namespace heed::cuda
