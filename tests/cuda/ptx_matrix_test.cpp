/// Matrices: ldmatrix and stmatrix, mma.sync, and every width of wgmma in every layout of its operands.

#include "core/float_bits.hpp"
#include "cuda/ptx_fixture.hpp"

#include <cstdint>

namespace heed::cuda {
namespace {

using u16 = std::uint16_t;
using u32 = std::uint32_t;

TEST_F(Ptx, matrices_are_stored_and_loaded_as_told) {
  compile("matrices", R"(
  // Register r of lane l of a stored matrix holds elements 2 * (l % 4) and the next of row l / 4.
  store_matrix_x4(shared + thread * 16, thread, 100 + thread, 200 + thread, 300 + thread);
  __syncwarp();
  u32 x[4];
  load_matrices(x, shared + thread * 16);
  for (int i = 0; i < 4; ++i) reinterpret_cast<u32*>(out)[4 * thread + i] = x[i];
  load_transposed(x, shared + thread * 16);
  for (int i = 0; i < 4; ++i) reinterpret_cast<u32*>(out)[128 + 4 * thread + i] = x[i];
  for (int i = 0; i < 4; ++i) reinterpret_cast<u32*>(out)[256 + 4 * thread + i] = reinterpret_cast<u32*>(shared_memory)[4 * thread + i];
  const uint4 loaded = load_shared_16(shared + thread * 16);
  reinterpret_cast<u32*>(out)[384 + thread] = loaded.w;
  __syncwarp();
  if (thread == 3) store_shared_zero_16(shared + 48);
  __syncwarp();
  reinterpret_cast<u32*>(out)[416 + thread] = reinterpret_cast<u32*>(shared_memory)[thread];
  reinterpret_cast<u32*>(out)[448 + thread] = transpose_8x8(2 * thread | (2 * thread + 1) << 16);
)",
          {.threads = 32, .shared_bytes = 512});
  SKIP_WITHOUT_GPU();
  std::vector<u32> out(480, 9);
  run(std::vector<u32>{}, out);
  const auto stored = [](u32 matrix, u32 row, u32 pair) { return 100 * matrix + 4 * row + pair; };
  const auto element = [&](u32 matrix, u32 row, u32 column) {
    return stored(matrix, row, column / 2) >> (16 * (column % 2)) & 0xffff;
  };
  for (u32 lane = 0; lane < 32; ++lane)
    for (u32 matrix = 0; matrix < 4; ++matrix) {
      EXPECT_EQ(out[4 * lane + matrix], stored(matrix, lane / 4, lane % 4));
      const u32 column = lane / 4, row = 2 * (lane % 4);  // of the transposed: rows and columns change places
      EXPECT_EQ(out[128 + 4 * lane + matrix], element(matrix, row, column) | element(matrix, row + 1, column) << 16);
      EXPECT_EQ(out[256 + 4 * lane + matrix], stored(lane / 8, lane % 8, matrix));  // row `lane` in memory
    }
  for (u32 lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(out[384 + lane], stored(lane / 8, lane % 8, 3));
    EXPECT_EQ(out[416 + lane], lane / 4 == 3 ? 0 : stored(0, lane / 4, lane % 4));
    const u32 column = lane / 4, row = 2 * (lane % 4);
    EXPECT_EQ(out[448 + lane], (8 * row + column) | (8 * (row + 1) + column) << 16);
  }
}

/// Small whole numbers: every sum is exact, in f16, too.
int a_at(int row, int k) { return (row * 5 + k * 3) % 5 - 2; }
int b_at(int n, int k) { return (n * 7 + k * 2 + n / 8) % 5 - 2; }
constexpr int kK = 64, kMostN = 256;

/// [64 x 64] of A, then [256 x 64] of B as N x K.
std::vector<u16> operands(DataType type) {
  std::vector<u16> all(static_cast<std::size_t>((64 + kMostN) * kK));
  for (int i = 0; i < 64 + kMostN; ++i)
    for (int k = 0; k < kK; ++k)
      core::store(all.data(), type, i * kK + k, static_cast<float>(i < 64 ? a_at(i, k) : b_at(i - 64, k)));
  return all;
}
float product(int row, int n) {
  int sum = 0;
  for (int k = 0; k < kK; ++k) sum += a_at(row, k) * b_at(n, k);
  return static_cast<float>(sum);
}

TEST_F(Ptx, mma_multiplies_by_warps) {
  for (const bool is_f16 : {true, false}) {
    const std::string type = is_f16 ? "f16" : "bf16";
    compile("mma_" + type, R"(
  const u32* a_rows = reinterpret_cast<const u32*>(in);             // [64][32] pairs
  const u32* b_rows = reinterpret_cast<const u32*>(in) + 64 * 32;   // [n][32]
  const u32 r = thread / 4, q = thread % 4;
  float c[4] = {1000.0f, 1000.0f, 1000.0f, 1000.0f};
  for (int step = 0; step < 4; ++step) {
    const u32 a[4] = {a_rows[r * 32 + step * 8 + q], a_rows[(r + 8) * 32 + step * 8 + q],
                      a_rows[r * 32 + step * 8 + 4 + q], a_rows[(r + 8) * 32 + step * 8 + 4 + q]};
    multiply_add<)" + type + R"(>(c, a, b_rows[r * 32 + step * 8 + q], b_rows[r * 32 + step * 8 + 4 + q]);
  }
  float* y = reinterpret_cast<float*>(out);
  y[r * 8 + 2 * q] = c[0];
  y[r * 8 + 2 * q + 1] = c[1];
  y[(r + 8) * 8 + 2 * q] = c[2];
  y[(r + 8) * 8 + 2 * q + 1] = c[3];
)",
            {.threads = 32});
    if (!missing().empty()) continue;
    std::vector<float> out(16 * 8);
    run(operands(is_f16 ? f16 : bf16), out);
    for (int row = 0; row < 16; ++row)
      for (int n = 0; n < 8; ++n) EXPECT_EQ(out[static_cast<std::size_t>(row * 8 + n)], 1000 + product(row, n));
  }
  SKIP_WITHOUT_GPU();
}

/// A in shared memory and in registers, B stored as N x K (as K is) and as K x N (as V is): four products of each
/// width.
constexpr const char* kWgmma = R"(
// An operand [rows x 64] into panels of 64 columns with 128-byte swizzle.
HEED_DEVICE void put(u8* to, int row, int column, u16 x) {
  *reinterpret_cast<u16*>(to + row * 128 + (((column / 8) ^ (row & 7)) * 16) + column % 8 * 2) = x;
}
// Element (row, column) of a product, by registers: rows lane / 4 and + 8 of the warp's 16, columns in groups of 8.
template <int N>
HEED_DEVICE void store(float* y, const float (&c)[N / 2]) {
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < N / 2; ++i) y[(row + (i >> 1 & 1) * 8) * N + i / 4 * 8 + column + (i & 1)] = c[i];
}
template <int N>
HEED_DEVICE void store(float* y, const u32 (&c)[N / 4]) {
  float wide[N / 2];
#pragma unroll
  for (int i = 0; i < N / 4; ++i) {
    wide[2 * i] = to_float<f16>(u16(c[i]));
    wide[2 * i + 1] = to_float<f16>(u16(c[i] >> 16));
  }
  store<N>(y, wide);
}
template <class Mma, class X, int N, int R>
HEED_DEVICE void all_products(const u8* in, u8* shared_memory, u32 shared, float* y) {
  const u16* a = reinterpret_cast<const u16*>(in);
  const u16* b = a + 64 * 64;
  u8* const b_at = shared_memory + 8192;          // [N x 64]
  u8* const t_at = shared_memory + 8192 + 32768;  // [64 x N], panels of 64 of its columns
  __syncthreads();
  for (int i = threadIdx.x; i < 64 * 64; i += 128) put(shared_memory, i / 64, i % 64, a[i]);
  for (int i = threadIdx.x; i < N * 64; i += 128) {
    put(b_at, i / 64, i % 64, b[i]);
    put(t_at + i / 64 / 64 * 8192, i % 64, i / 64 % 64, b[i]);
  }
  fence_shared_for_async();
  __syncthreads();
  const u64 a_operand = swizzled_operand(shared, 16), b_operand = swizzled_operand(shared + 8192, 16);
  const u64 t_operand = swizzled_operand(shared + 8192 + 32768, 8192);
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  u32 registers[4][4];
  for (int i = 0; i < 4; ++i)
    load_matrices(registers[i], shared + (warp * 16 + (lane & 15)) * 128 + (((2 * i + (lane >> 4)) ^ (lane & 7)) * 16));
#pragma unroll
  for (int which = 0; which < 4; ++which) {
    X c[R];
#pragma unroll
    for (int i = 0; i < R; ++i) c[i] = X(0);
    pin(c);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (which == 0) Mma::template shared_shared<false>(c, a_operand + 2 * i, b_operand + 2 * i, i > 0);
      if (which == 1) Mma::template shared_shared<true>(c, a_operand + 2 * i, t_operand + i * 128, i > 0);
      if (which == 2)
        Mma::template registers_shared<false>(c, registers[i][0], registers[i][1], registers[i][2], registers[i][3],
                                              b_operand + 2 * i, i > 0);
      if (which == 3)
        Mma::template registers_shared<true>(c, registers[i][0], registers[i][1], registers[i][2], registers[i][3],
                                             t_operand + i * 128, i > 0);
    }
    wgmma_commit();
    wgmma_wait<0>(c);
    store<N>(y + which * 64 * N, c);
  }
}
)";

class PtxWgmma : public Ptx {
 protected:
  void expect_products(const std::string& name, DataType type, const std::vector<int>& widths, bool half) {
    std::string body = "float* y = reinterpret_cast<float*>(out);\n";
    std::size_t total = 0;
    for (const int n : widths) {
      const std::string width = std::to_string(n);
      const std::string mma = half ? "WgmmaHalf<" + width + ">, u32, " + width + ", " + std::to_string(n / 4)
                                   : "Wgmma<" + std::string(type == f16 ? "f16" : "bf16") + ", " + width +
                                         ">, float, " + width + ", " + std::to_string(n / 2);
      body += "all_products<" + mma + ">(in, shared_memory, shared, y);\n";
      body += "y += 4 * 64 * " + width + ";\n";
      total += static_cast<std::size_t>(4 * 64 * n);
    }
    compile(name, body, {.threads = 128, .shared_bytes = 8192 + 2 * 32768}, kWgmma);
    if (!missing().empty()) return;
    std::vector<float> out(total, -1);
    run(operands(type), out);
    std::size_t at = 0;
    for (const int n : widths)
      for (int which = 0; which < 4; ++which) {
        int wrong = 0;
        for (int row = 0; row < 64; ++row)
          for (int column = 0; column < n; ++column, ++at) wrong += out[at] != product(row, column);
        EXPECT_EQ(wrong, 0) << name << " N = " << n << ", A in " << (which < 2 ? "shared memory" : "registers")
                            << ", B " << (which % 2 == 0 ? "N x K" : "K x N");
      }
  }
};

TEST_F(PtxWgmma, multiplies_f16_at_every_width) {
  expect_products("wgmma_f16", f16, {32, 64, 80, 96, 112, 128}, false);
  expect_products("wgmma_f16_wide", f16, {160, 176, 192, 256}, false);
  SKIP_WITHOUT_GPU();
}
TEST_F(PtxWgmma, multiplies_bf16_at_every_width) {
  expect_products("wgmma_bf16", bf16, {32, 64, 80, 96, 112, 128}, false);
  expect_products("wgmma_bf16_wide", bf16, {160, 176, 192, 256}, false);
  SKIP_WITHOUT_GPU();
}
TEST_F(PtxWgmma, accumulates_in_f16) {
  expect_products("wgmma_half", f16, {32, 64, 96, 128, 160, 192, 256}, true);
  SKIP_WITHOUT_GPU();
}

}  // namespace
}  // namespace heed::cuda
