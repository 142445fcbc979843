/// Tensors on their way to a GPU and back, on the fake of libcuda.cpp, whose memory the host can look into.

#include "verify/device_buffers.hpp"
#include "cuda/device.hpp"
#include "verify/fuzz.hpp"

#include <heed/oracle.hpp>

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace heed::verify {
namespace {

int fake_count(const char* function) {
  return reinterpret_cast<int (*)()>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), function))();
}

Case small_case() {
  Case c;
  c.mode = Mode::group;
  c.b = 2, c.h = 2, c.h_k = 1, c.s_q = {5, 3}, c.s_k = {4, 7}, c.d = c.d_v = 8;
  c.type = f16;
  c.align = 3;
  c.lse = c.randval = c.drop_state = true;
  c.p_drop = 0.5;
  c.bias = BiasSpec{f32, {.query = true}};
  c.packing = Packing::kv;
  c.q_layout = c.k_layout = c.v_layout = Layout::bshd;
  return c;
}

TEST(DeviceBuffers, hold_every_tensor_as_it_lies_on_the_host) {
  const Buffers buffers(small_case());
  DeviceBuffers device;
  device.upload(buffers);
  const ForwardArgs here = buffers.args(), there = device.translated(here);
  const auto expect_moved = [](const TensorView& from, const TensorView& to, std::size_t bytes) {
    ASSERT_NE(from.data, nullptr);
    EXPECT_EQ(cuda::place_of(to.data).kind, cuda::PointerPlace::device);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(from.data) % 64, reinterpret_cast<std::uintptr_t>(to.data) % 64);
    EXPECT_EQ(std::memcmp(from.data, to.data, bytes), 0);
    // The guard bands came along.
    EXPECT_EQ(static_cast<const unsigned char*>(to.data)[-1], 0xFF);
  };
  expect_moved(here.q, there.q, 8 * 2 * 8 * 2);
  expect_moved(here.k, there.k, 64);
  EXPECT_EQ(static_cast<const std::byte*>(there.v.data) - static_cast<const std::byte*>(there.k.data),
            static_cast<const std::byte*>(here.v.data) - static_cast<const std::byte*>(here.k.data));
  expect_moved(here.o, there.o, 8 * 2 * 8 * 2);
  expect_moved(here.lse, there.lse, 8 * 2 * 4);
  expect_moved(here.bias, there.bias, 5 * 7 * 4);
  expect_moved(here.seqstart_k, there.seqstart_k, 3 * 4);
  expect_moved(here.dropout.randval, there.dropout.randval, 2 * 2 * 5 * 7 * 2);
  expect_moved(here.dropout.state, there.dropout.state, 2 * 8);
  EXPECT_EQ(there.seqlen_q.data, nullptr);
}

TEST(DeviceBuffers, leave_pointers_to_elsewhere_as_they_are) {
  const Buffers buffers(small_case());
  DeviceBuffers device;
  device.upload(buffers);
  float elsewhere = 0;
  ForwardArgs args = buffers.args();
  args.sink = {&elsewhere, f32, {1}};
  EXPECT_EQ(device.translated(args).sink.data, &elsewhere);
}

TEST(DeviceBuffers, bring_back_results_and_what_was_overwritten) {
  const Buffers buffers(small_case());
  DeviceBuffers device;
  device.upload(buffers);
  const ForwardArgs there = device.translated(buffers.args());
  oracle::plain_forward(there);
  EXPECT_TRUE(buffers.outputs_untouched());
  device.download(buffers);
  Verdict verdict = judge(buffers);
  EXPECT_TRUE(verdict.valid()) << verdict.to_string();

  static_cast<unsigned char*>(there.o.data)[-1] = 0;
  const_cast<unsigned char*>(static_cast<const unsigned char*>(there.q.data))[0] ^= 1;
  device.download(buffers);
  EXPECT_THAT(buffers.check_guards(), testing::UnorderedElementsAre(testing::StartsWith("o was underrun"),
                                                                    testing::StartsWith("q changed at element 0")));
}

TEST(DeviceBuffers, keep_their_memory_from_case_to_case) {
  {
    DeviceBuffers device;
    device.upload(Buffers(small_case()));
    const int before = fake_count("fake_cuda_allocations");
    for (std::int64_t number = 0; number < 50; ++number) device.upload(Buffers(random_case(1, number)));
    EXPECT_LE(fake_count("fake_cuda_allocations") - before, 4);
  }
  EXPECT_EQ(fake_count("fake_cuda_allocated"), 0);
}

TEST(DeviceBuffers, lend_a_workspace_of_zeros_and_see_what_is_written_behind_it) {
  DeviceBuffers device;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, std::size_t{256}}) {
    const auto workspace = device.workspace(bytes);
    ASSERT_EQ(workspace.size(), bytes);
    for (std::byte& each : workspace) {
      EXPECT_EQ(each, std::byte{0});
      each = std::byte{7};
    }
    EXPECT_FALSE(device.workspace_overrun());
    workspace.data()[bytes] = std::byte{7};
    EXPECT_TRUE(device.workspace_overrun());
  }
}

TEST(DeviceBuffers, are_lent_to_one_call_at_a_time) {
  DeviceBuffersPool pool;
  const DeviceBuffers* first = nullptr;
  {
    const auto one = pool.take(), two = pool.take();
    first = &*one;
    EXPECT_NE(&*one, &*two);
  }
  EXPECT_EQ(&*pool.take(), first);
}

}  // namespace
}  // namespace heed::verify
