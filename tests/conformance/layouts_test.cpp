/// The same numbers in another place give the same result.

#include "conformance/conformance.hpp"
#include "conformance/sparse_memory.hpp"
#include "core/sequences.hpp"
#include "verify/device_buffers.hpp"

namespace heed::conformance {
namespace {

CONFORMANCE(museum_09_every_layout_of_the_tensors_is_read_in_place) {
  for (const DataType type : {f32, f16, bf16})
    for (const std::int64_t s_q : {2, 33})
      for (const Mode mode : {Mode::batch, Mode::group}) {
        Case base = small();
        base.type = type;
        base.s_q = {s_q};
        if (mode == Mode::group) base.mode = mode, base.s_q = {s_q, 7}, base.s_k = {70, 20};
        const auto check = [&](auto change) {
          Case c = base;
          change(c);
          expect_matches_oracle(c);
        };
        for (const Layout q : {Layout::bshd, Layout::bhsd})
          for (const Layout k : {Layout::bshd, Layout::bhsd})
            for (const Layout o : {Layout::bshd, Layout::bhsd})
              check([&](Case& c) { c.q_layout = q, c.k_layout = c.v_layout = k, c.o_layout = o; });
        check([](Case& c) { c.v_column_major = true; });
        check([](Case& c) { c.v_column_major = true, c.v_layout = c.k_layout = Layout::bshd, c.row_gap = 3; });
        check([](Case& c) {
          c.packing = Packing::qkv, c.q_layout = c.k_layout = c.v_layout = Layout::bshd;
          c.h_k = c.h, c.s_k = c.s_q;
        });
        check([](Case& c) { c.packing = Packing::kv, c.q_layout = c.k_layout = c.v_layout = Layout::bshd; });
        for (const std::int64_t gap : {1, 2, 7, 16}) check([=](Case& c) { c.row_gap = gap; });
        for (const std::int64_t align : {1, 2, 3, 7, 15}) check([=](Case& c) { c.align = align; });
        check([](Case& c) { c.absurd_strides = true, c.b = 1, c.h = c.h_k = 1, c.s_q = {1}, c.s_k = {c.s_k[0]}; });
        check([](Case& c) { c.absurd_strides = true, c.b = 1, c.s_q = {c.s_q[0]}, c.s_k = {1}; });
        for (const auto tensor : {ZeroStride::Tensor::q, ZeroStride::Tensor::k, ZeroStride::Tensor::v})
          for (const char dim : {'b', 's', 'h'}) check([=](Case& c) { c.zero_strides = {{tensor, dim}}; });
      }
}

CONFORMANCE(museum_15_a_bias_of_every_shape_is_read_in_place) {
  for (const DataType type : {f32, f16, bf16})
    for (int shape = 0; shape < 8; ++shape)
      for (const bool wide : {false, true}) {
        Case c = small();
        c.type = type;
        c.bias = BiasSpec{wide ? f32 : type,
                          {.batch = (shape & 1) != 0, .head = (shape & 2) != 0, .query = (shape & 4) != 0}};
        c.squeeze = shape % 3 == 0;
        c.row_gap = shape % 2 == 0 ? 0 : 3;
        expect_matches_oracle(c);
        c.s_q = {1};
        expect_matches_oracle(c);
        for (const char dim : {'b', 'h', 'q', 'k'}) {
          if (small_scale() && dim != 'h') continue;
          Case broadcast = c;
          broadcast.s_q = {9};
          broadcast.zero_strides = {{ZeroStride::Tensor::bias, dim}};
          expect_matches_oracle(broadcast);
        }
      }
}

CONFORMANCE(museum_09_a_boolean_mask_of_every_shape_is_read_in_place) {
  for (int shape = 0; shape < 8; ++shape)
    for (const std::int64_t s_q : {1, 9, 70})
      for (const char dim : {' ', 'b', 'h', 'q', 'k'}) {
        if (small_scale() && s_q == 70) continue;
        Case c = small();
        c.s_q = {s_q};
        c.type = shape % 2 == 0 ? f32 : bf16;
        c.bool_mask = Broadcast{.batch = (shape & 1) != 0, .head = (shape & 2) != 0, .query = (shape & 4) != 0};
        c.squeeze = shape % 3 == 0;
        c.row_gap = shape % 2 == 0 ? 0 : 3;
        if (dim != ' ') c.zero_strides = {{ZeroStride::Tensor::bool_mask, dim}};
        expect_matches_oracle(c);
      }
}

// More than 2^31 elements, by strides, of one dimension of one tensor at a time.
CONFORMANCE(museum_06_strides_reach_further_than_two_to_the_31_elements) {
  constexpr std::int64_t kFar = (std::int64_t{1} << 31) + 24;
  for (const Operand which : {Operand::q, Operand::k, Operand::v, Operand::o})
    for (const int dim : {0, 1, 2})
      for (const std::int64_t s_q : {2, 3}) {
        Case c = small();
        c.type = f16;
        c.b = 2, c.h = c.h_k = dim == 2 ? 2 : 3;
        c.s_q = {s_q}, c.s_k = {dim == 1 ? 2 : 20};
        c.d = c.d_v = 8;
        Buffers buffers(c);
        ForwardArgs args = buffers.args();
        TensorView& view = which == Operand::q ? args.q : which == Operand::k ? args.k : args.v;
        OutputView far = which == Operand::o ? args.o : OutputView{};
        if (which != Operand::o) {
          far.type = view.type, far.rank = view.rank, far.sizes = view.sizes;
        }
        // Dense but for the dimension that goes far.
        far.strides = {far.size(1) * far.size(2) * 8, far.size(2) * 8, 8, 1};
        far.strides[static_cast<std::size_t>(dim)] = kFar;
        const SparseMemory memory(
            static_cast<std::size_t>((far.size(dim) - 1) * kFar + far.size(0) * far.size(1) * far.size(2) * 8) * 2,
            on_gpu());
        if (!memory.there()) GTEST_SKIP() << "no address space";
        far.data = memory.data();
        if (which == Operand::o) {
          args.o = far;
          target().forward(buffers, args);
          copy_rows(far, buffers.args().o);
        } else {
          copy_rows(view, far);
          view = far;
          target().forward(buffers, args);
        }
        const verify::Verdict verdict = verify::judge(buffers);
        EXPECT_TRUE(verdict.valid()) << verdict.to_string() << " operand " << static_cast<int>(which) << " dimension "
                                     << dim;
      }
}

CONFORMANCE(museum_06_batch_times_heads_goes_beyond_65535) {
  for (const auto& [b, h] : {std::pair{70000, 1}, std::pair{1, 70000}, std::pair{257, 257}}) {
    Case c = small();
    c.b = b, c.h = c.h_k = h;
    c.s_q = {1}, c.s_k = {3};
    c.d = c.d_v = 2;
    if (small_scale() && h != 257) continue;
    c.type = h == 257 ? bf16 : f32;
    expect_matches_oracle(c);
  }
}

}  // namespace
}  // namespace heed::conformance
