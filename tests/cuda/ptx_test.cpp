/// Arithmetic, barriers and roles of the instruction layer, one by one.

#include "core/float_bits.hpp"
#include "cuda/ptx_fixture.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

namespace heed::cuda {
namespace {

using u32 = std::uint32_t;

TEST_F(Ptx, exponentials_logarithms_and_reciprocals_are_near) {
  compile("math", R"(
  const float x = reinterpret_cast<const float*>(in)[thread];
  float* y = reinterpret_cast<float*>(out) + 3 * thread;
  y[0] = exp2_approx(x);
  y[1] = log2_approx(fabsf(x) + 0.5f);
  y[2] = reciprocal(x + 200.0f);
)",
          {.threads = 128});
  SKIP_WITHOUT_GPU();
  std::vector<float> in(128), out(3 * 128);
  for (int i = 0; i < 128; ++i) in[static_cast<std::size_t>(i)] = static_cast<float>(i - 64) * 1.37f;
  in[0] = -std::numeric_limits<float>::infinity();
  run(in, out);
  EXPECT_EQ(out[0], 0.0f);
  for (std::size_t i = 1; i < in.size(); ++i) {
    const double x = in[i];
    EXPECT_NEAR(out[3 * i] / std::exp2(x), 1, 4e-7) << x;
    EXPECT_NEAR(out[3 * i + 1], std::log2(std::abs(x) + 0.5), 1e-6) << x;
    EXPECT_NEAR(out[3 * i + 2] * (x + 200), 1, 4e-7) << x;
  }
}

TEST_F(Ptx, conversions_round_to_nearest_even) {
  compile("cvt", R"(
  const float* x = reinterpret_cast<const float*>(in) + 2 * thread;
  u32* y = reinterpret_cast<u32*>(out) + 6 * thread;
  y[0] = pack<f16>(x[0], x[1]);
  y[1] = pack<bf16>(x[0], x[1]);
  y[2] = from_float<f16>(x[0]);
  y[3] = from_float<bf16>(x[0]);
  y[4] = __float_as_uint(to_float<f16>(u16(y[2])));
  y[5] = __float_as_uint(to_float<bf16>(u16(y[3])));
)",
          {.threads = 32});
  SKIP_WITHOUT_GPU();
  std::vector<float> in{1.0f,        -2.5f, 1.00048828125f, 1.00146484375f, 65504.0f, 65520.0f, 1e-7f, 6e-8f,
                        1.00390625f, 3e38f, -0.0f,          0.1f,           1e5f,     -1e-5f,   3.14f, 2.71f};
  while (in.size() < 64) in.push_back(in[in.size() - 16] * 1.01f);
  std::vector<u32> out(6 * 32);
  run(in, out);
  for (std::size_t i = 0; i < 32; ++i) {
    const float low = in[2 * i], high = in[2 * i + 1];
    const u32 f16_low = core::f16_from_f32(low), bf16_low = core::bf16_from_f32(low);
    EXPECT_EQ(out[6 * i], f16_low | u32{core::f16_from_f32(high)} << 16) << low << " " << high;
    EXPECT_EQ(out[6 * i + 1], bf16_low | u32{core::bf16_from_f32(high)} << 16) << low << " " << high;
    EXPECT_EQ(out[6 * i + 2], f16_low) << low;
    EXPECT_EQ(out[6 * i + 3], bf16_low) << low;
    EXPECT_EQ(out[6 * i + 4], std::bit_cast<u32>(core::f32_from_f16(static_cast<core::Bits16>(f16_low)))) << low;
    EXPECT_EQ(out[6 * i + 5], std::bit_cast<u32>(core::f32_from_bf16(static_cast<core::Bits16>(bf16_low)))) << low;
  }
}

TEST_F(Ptx, one_thread_of_a_warp_is_elected) {
  compile("elect", R"(
  const u32 elected = __ballot_sync(0xffffffffu, elect_one());
  if (thread % 32 == 0) reinterpret_cast<u32*>(out)[thread / 32] = __popc(elected);
  reinterpret_cast<u32*>(out)[4 + thread] = warp_uniform(thread);
)",
          {.threads = 128});
  SKIP_WITHOUT_GPU();
  std::vector<u32> out(4 + 128);
  run(std::vector<u32>{}, out);
  for (std::size_t warp = 0; warp < 4; ++warp) EXPECT_EQ(out[warp], 1u);
  for (u32 thread = 0; thread < 128; ++thread) EXPECT_EQ(out[4 + thread], thread / 32 * 32);
}

TEST_F(Ptx, an_mbarrier_changes_phase_when_all_have_arrived) {
  compile("mbarrier", R"(
  u32* y = reinterpret_cast<u32*>(out);
  if (thread == 0) {
    mbarrier_init(shared, 2);
    mbarrier_init(shared + 8, 128);
    mbarrier_init_fence();
    mbarrier_arrive(shared);
    y[0] = mbarrier_try_wait(shared, 0);  // one of two: the phase goes on
    y[1] = mbarrier_try_wait(shared, 1);  // the phase before the first counts as ended
    mbarrier_arrive(shared);
    y[2] = mbarrier_try_wait(shared, 0);
    y[3] = mbarrier_try_wait(shared, 1);
  }
  __syncthreads();
  // What was written before an arrival is seen after the wait: thread t reads what t + 1 wrote, phase by phase.
  volatile u32* board = reinterpret_cast<volatile u32*>(shared_memory + 64);
  u32 sum = 0;
  for (u32 phase = 0; phase < 4; ++phase) {
    board[(phase % 2) * 128 + thread] = 1000 * phase + thread;
    mbarrier_arrive(shared + 8);
    mbarrier_wait(shared + 8, phase & 1);
    sum += board[(phase % 2) * 128 + (thread + 1) % 128];
  }
  y[4 + thread] = sum;
)",
          {.threads = 128, .shared_bytes = 64 + 1024});
  SKIP_WITHOUT_GPU();
  std::vector<u32> out(4 + 128, 77);
  run(std::vector<u32>{}, out);
  EXPECT_EQ(out[0], 0u);
  EXPECT_EQ(out[1], 1u);
  EXPECT_EQ(out[2], 1u);
  EXPECT_EQ(out[3], 0u);
  for (u32 thread = 0; thread < 128; ++thread) EXPECT_EQ(out[4 + thread], 6000 + 4 * ((thread + 1) % 128)) << thread;
}

TEST_F(Ptx, a_named_barrier_joins_those_who_wait_with_those_who_only_arrive) {
  compile("named_barrier", R"(
  volatile u32* board = reinterpret_cast<volatile u32*>(shared_memory);
  u32* y = reinterpret_cast<u32*>(out);
  if (thread < 32) {  // writes, arrives, does not wait
    __nanosleep(20000);
    board[thread] = 7 * thread;
    barrier_arrive(1, 64);
  } else if (thread < 64) {
    barrier_sync(1, 64);
    y[thread - 32] = board[thread - 32];
  } else {  // another barrier is another one
    barrier_sync(2, 64);
    y[thread - 32] = thread;
  }
)",
          {.threads = 128, .shared_bytes = 256});
  SKIP_WITHOUT_GPU();
  std::vector<u32> out(96, 1);
  run(std::vector<u32>{}, out);
  for (u32 i = 0; i < 32; ++i) EXPECT_EQ(out[i], 7 * i);
  for (u32 i = 32; i < 96; ++i) EXPECT_EQ(out[i], i + 32);
}

/// Three warpgroups of 168 registers: one gives to the two others, which then keep 200 values each.
TEST_F(Ptx, warpgroups_pass_registers_on) {
  compile("registers", R"(
  if (thread < 128) {
    fewer_registers<40>();
    reinterpret_cast<float*>(out)[thread] = float(thread);
    return;
  }
  more_registers<232>();
  float x[200];
#pragma unroll
  for (int i = 0; i < 200; ++i) x[i] = reinterpret_cast<const float*>(in)[i] + float(thread);
#pragma unroll
  for (int i = 0; i < 200; ++i) asm volatile("" : "+f"(x[i]));  // all are there at once
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 200; ++i) sum = __fmaf_rn(x[i], float(i % 3), sum);
  reinterpret_cast<float*>(out)[thread] = sum;
)",
          {.threads = 384});
  SKIP_WITHOUT_GPU();
  std::vector<float> in(200), out(384);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 7);
  run(in, out);
  for (int thread = 0; thread < 384; ++thread) {
    float expected = thread < 128 ? static_cast<float>(thread) : 0;
    for (int i = 0; thread >= 128 && i < 200; ++i) expected += static_cast<float>((i % 7 + thread) * (i % 3));
    EXPECT_EQ(out[static_cast<std::size_t>(thread)], expected) << thread;
  }
}

TEST_F(Ptx, asynchronous_copies_fill_up_with_zeros) {
  compile("cp_async", R"(
  copy_16(shared + 16 * thread, in + 16 * thread, thread % 2 == 0 ? 16 : 6);
  copy<8>(shared + 512 + 8 * thread, in + 8 * thread, thread % 2 == 0 ? 8 : 0);
  close_copies();
  copy<4>(shared + 768 + 4 * thread, in + 4 * thread, 4);
  close_copies();
  wait_copies<0>();
  __syncthreads();
  for (int i = 0; i < 28; ++i) out[28 * thread + i] = shared_memory[28 * thread + i];
)",
          {.threads = 32, .shared_bytes = 1024});
  SKIP_WITHOUT_GPU();
  std::vector<unsigned char> in(512), out(896);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * 7 + 1);
  run(in, out);
  for (std::size_t i = 0; i < 512; ++i) EXPECT_EQ(out[i], i / 16 % 2 == 0 || i % 16 < 6 ? in[i] : 0) << i;
  for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(out[512 + i], i / 8 % 2 == 0 ? in[i] : 0) << i;
  for (std::size_t i = 0; i < 128; ++i) EXPECT_EQ(out[768 + i], in[i]) << i;
}

TEST_F(Ptx, an_mbarrier_waits_for_asynchronous_copies) {
  compile("cp_async_mbarrier", R"(
  if (thread == 0) mbarrier_init(shared, 32);
  __syncthreads();
  if (thread < 32) {
    for (int i = 0; i < 8; ++i) copy<16>(shared + 64 + 512 * i + 16 * thread, in + 512 * i + 16 * thread, 16);
    arrive_after_copies(shared);
  }
  mbarrier_wait(shared, 0);
  for (int i = 0; i < 64; ++i) out[64 * thread + i] = shared_memory[64 + (64 * thread + 2048 + i) % 4096];
)",
          {.threads = 64, .shared_bytes = 64 + 4096});
  SKIP_WITHOUT_GPU();
  std::vector<unsigned char> in(4096), out(4096);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * 7 + i / 256);
  run(in, out);
  for (std::size_t i = 0; i < in.size(); ++i) EXPECT_EQ(out[i], in[(i + 2048) % 4096]) << i;
}

}  // namespace
}  // namespace heed::cuda
