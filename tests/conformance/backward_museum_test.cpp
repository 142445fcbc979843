/// Bugs that other libraries' gradients have had, each as a test that must never fail here, under the numbers of
/// museum_test.cpp.

#include "conformance/backward.hpp"
#include "conformance/sparse_memory.hpp"
#include "nan_in.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <utility>

namespace heed::conformance {
namespace {

BACKWARD(museum_20_a_NaN_in_what_nobody_sees_reaches_no_gradient) {
  for (const DataType type : {f32, f16, bf16})
    for (const std::int64_t d : {64, 128, 256})
      for (const int tensor : {0, 1, 2, 3}) {
        Case c = small_backward();
        c.type = type, c.d = c.d_v = d;
        const bool of_keys = tensor >= 2;  // keys behind the last query's, or queries before the first key's
        c.b = 1, c.s_q = {of_keys ? 40 : 170}, c.s_k = {of_keys ? 170 : 40};
        c.mask = of_keys ? Mask::causal_top_left() : Mask::causal();
        Buffers buffers(c);
        put_nan(buffers, tensor, 67, 1);
        expect_matches_oracle(buffers, "NaN in tensor " + std::to_string(tensor));
      }
}

BACKWARD(museum_20_a_NaN_in_a_hidden_pair_reaches_no_gradient_of_the_others) {
  for (const DataType type : {f32, bf16})
    for (const int tensor : {0, 1, 2, 3})
      for (const std::int64_t row : {3, 37, 65}) {
        Case c = small_backward();
        c.type = type;
        c.b = 1, c.s_q = {70}, c.s_k = {70};
        c.mask = Mask::causal();
        Buffers buffers(c);
        put_nan(buffers, tensor, row, 1);
        expect_matches_oracle(buffers, "NaN in tensor " + std::to_string(tensor));
      }
}

// Rows behind the end of a sequence share vectors and tiles with its last ones.
BACKWARD(museum_20_a_NaN_in_a_key_reaches_no_gradient_of_a_bias_behind_the_end) {
  for (const DataType type : {f32, bf16})
    for (const int tensor : {2, 3}) {
      Case c = small_backward();
      c.type = type, c.b = 1, c.s_q = {42}, c.s_k = {58}, c.q_eff_lens = {7}, c.kv_eff_lens = {50};
      c.bias = BiasSpec{type, {.head = true, .query = true}}, c.dbias = f32;
      Buffers buffers(c);
      put_nan(buffers, tensor, 31, 1);
      expect_matches_oracle(buffers, "NaN in tensor " + std::to_string(tensor));
    }
}

// Heads that share keys in every ratio.
BACKWARD(museum_08_gradients_of_shared_heads_are_summed_over_the_group) {
  for (const auto& [h, h_k] : {std::pair{8, 8}, std::pair{8, 1}, std::pair{8, 2}, std::pair{6, 3}, std::pair{5, 1},
                               std::pair{14, 2}, std::pair{16, 4}})
    for (const DataType type : {f32, bf16}) {
      Case c = small_backward();
      c.h = h, c.h_k = h_k, c.type = type, c.mask = Mask::causal();
      expect_matches_oracle(c);
    }
}

// Rows without a visible key give exact zeros, and no NaN, in whatever shape they come.
BACKWARD(museum_01_rows_that_see_nothing_have_gradients_of_zero) {
  for (const DataType type : {f32, f16, bf16})
    for (const bool sink : {false, true}) {
      Case c = small_backward();
      c.type = type;
      c.b = 1, c.h = c.h_k = 2;
      c.s_q = {100}, c.s_k = {40};
      c.mask = Mask::causal();  // the first 60 rows see nothing
      if (sink) c.sink = SinkInit::normal, c.dsink = true;
      expect_matches_oracle(c);
      const Buffers buffers(c);
      target().backward(buffers, buffers.backward_args());
      const auto dq = values(buffers, buffers.backward_args().dq);  // [1, 100, 2, 16]
      for (std::size_t at = 0; at < 60 * 2 * 16; ++at) ASSERT_EQ(dq[at], 0) << at;
    }
}

// Nothing to see, nobody to see it, one of each: alone and beside others.
BACKWARD(museum_01_sequences_of_length_zero_and_one_have_the_right_gradients) {
  using Lengths = std::vector<std::int64_t>;
  for (const DataType type : {f32, bf16})
    for (const SinkInit sink : {SinkInit::none, SinkInit::normal, SinkInit::holes})
      for (const char* mask : {"0", "b", "t", "b:3,0"}) {
        Case c = small_backward();
        c.type = type, c.sink = sink, c.dsink = sink != SinkInit::none;
        c.mask = Mask::parse(mask);
        c.mode = Mode::group;
        for (const auto& [s_q, s_k] : std::vector<std::pair<Lengths, Lengths>>{{{0}, {0}},
                                                                               {{0}, {9}},
                                                                               {{9}, {0}},
                                                                               {{0, 0, 0}, {0, 0, 0}},
                                                                               {{0, 0}, {5, 0}},
                                                                               {{1, 0, 1, 0}, {1, 1, 0, 0}},
                                                                               {{1, 0, 1}, {0, 1, 70}},
                                                                               {{5, 0, 7}, {0, 9, 7}},
                                                                               {{}, {}}}) {
          c.b = static_cast<std::int64_t>(s_q.size());
          c.s_q = s_q, c.s_k = s_k;
          expect_matches_oracle(c);
          Case biased = c;
          biased.bias = BiasSpec{f32, {.head = true, .query = true}}, biased.dbias = f32;
          expect_matches_oracle(biased);
        }
        Case batch = small_backward();
        batch.type = type, batch.sink = sink, batch.dsink = c.dsink, batch.mask = c.mask;
        for (const auto& [s_q, s_k] : {std::pair{0, 9}, std::pair{9, 0}, std::pair{0, 0}, std::pair{1, 1}}) {
          batch.s_q = {s_q}, batch.s_k = {s_k};
          expect_matches_oracle(batch);
        }
        batch.s_q = {33}, batch.s_k = {70};
        batch.q_eff_lens = {0, 33}, batch.kv_eff_lens = {70, 0};
        expect_matches_oracle(batch);
      }
}

BACKWARD(museum_01_problems_without_batch_entries_or_heads_write_what_there_is) {
  for (const Mode mode : {Mode::batch, Mode::group})
    for (const bool no_heads : {false, true})
      for (int own = 0; own < 8; ++own) {
        Case c = small_backward();
        c.mode = mode;
        if (no_heads) c.h = c.h_k = 0;
        if (!no_heads) c.b = 0;
        if (mode == Mode::group) c.s_q.resize(static_cast<std::size_t>(c.b), 5), c.s_k = c.s_q;
        if (mode == Mode::group) c.table_more_q = 2, c.table_more_k = 3, c.q_around = {0, 3}, c.k_around = {2, 0};
        c.bias = BiasSpec{f32, {.batch = (own & 1) != 0, .head = (own & 2) != 0, .query = (own & 4) != 0}};
        c.sink = SinkInit::normal, c.alibi = own % 2 == 0 ? Alibi::per_head : Alibi::per_batch_and_head;
        c = with_every_gradient(c);
        expect_matches_oracle(c);
        const Buffers buffers(c);
        target().backward(buffers, buffers.backward_args());
        const BackwardArgs& args = buffers.backward_args();
        for (const OutputView* view : {&args.dbias, &args.dsink, &args.dslopes})
          for (const double each : values(buffers, *view)) ASSERT_EQ(each, 0) << c.to_command();
      }
}

BACKWARD(museum_01_a_mask_that_hides_everything_gives_zeros_alone) {
  Case c = small_backward();
  c.mask = Mask::parse("g:0,-100");
  const Buffers buffers(c);
  target().backward(buffers, buffers.backward_args());
  const BackwardArgs& args = buffers.backward_args();
  for (const OutputView* view : {&args.dq, &args.dk, &args.dv})
    for (const double each : values(buffers, *view)) ASSERT_EQ(each, 0);
}

// Strides of any kind, also of what comes in from a broadcast sum.
BACKWARD(museum_09_every_layout_is_read_and_written_in_place) {
  for (const DataType type : {f32, bf16})
    for (const Mode mode : {Mode::batch, Mode::group}) {
      const auto check = [&](auto change) {
        Case c = small_backward();
        c.type = type;
        if (mode == Mode::group) c.mode = mode, c.s_q = {33, 7}, c.s_k = {70, 20};
        change(c);
        expect_matches_oracle(c);
      };
      for (const Layout in : {Layout::bshd, Layout::bhsd})
        for (const Layout out : {Layout::bshd, Layout::bhsd}) {
          check([&](Case& c) { c.q_layout = in, c.k_layout = c.v_layout = out, c.o_layout = in, c.d_o_layout = out; });
          check([&](Case& c) { c.q_layout = c.k_layout = c.v_layout = in, c.grad_layout = out; });
        }
      check([](Case& c) { c.v_column_major = true; });
      check([](Case& c) {
        c.packing = Packing::qkv, c.q_layout = c.k_layout = c.v_layout = Layout::bshd;
        c.h_k = c.h, c.s_k = c.s_q;
      });
      check([](Case& c) { c.packing = Packing::kv, c.q_layout = c.k_layout = c.v_layout = Layout::bshd; });
      for (const std::int64_t gap : {1, 7}) check([=](Case& c) { c.row_gap = gap; });
      for (const std::int64_t align : {1, 3}) check([=](Case& c) { c.align = align; });
      check([](Case& c) { c.absurd_strides = true, c.b = 1, c.h = c.h_k = 1, c.s_q = {1}, c.s_k = {c.s_k[0]}; });
      for (const auto tensor :
           {ZeroStride::Tensor::q, ZeroStride::Tensor::k, ZeroStride::Tensor::v, ZeroStride::Tensor::d_o})
        for (const char dim : {'b', 's', 'h'}) check([=](Case& c) { c.zero_strides = {{tensor, dim}}; });
    }
}

// More heads than a grid dimension has.
BACKWARD(museum_06_batch_times_heads_goes_beyond_65535) {
  for (const auto& [b, h] : {std::pair{257, 257}, std::pair{1, 70000}}) {
    if (small_scale() && h != 257) continue;
    Case c = small_backward();
    c.b = small_scale() ? 2 : b, c.h = c.h_k = h;
    c.s_q = {1}, c.s_k = {3}, c.d = c.d_v = 2;
    c.sink = SinkInit::normal, c.dsink = true;
    expect_matches_oracle(c);
  }
}

/// A view of these sizes, dense but for one dimension, whose steps go far. Its memory is still to be told.
OutputView far_view(const TensorView& like, int dim, std::int64_t far) {
  OutputView view;
  view.type = like.type, view.rank = like.rank, view.sizes = like.sizes;
  std::int64_t step = 1;
  for (int i = like.rank; i-- > 0;) {
    view.strides[static_cast<std::size_t>(i)] = step;
    step *= like.size(i);
  }
  view.strides[static_cast<std::size_t>(dim)] = far;
  return view;
}

void copy_elements(const TensorView& from, const TensorView& to) {
  const auto bytes = static_cast<std::size_t>(bits(from.type) / 8);
  std::array<std::int64_t, 4> at{};
  const auto place = [&](const TensorView& view) {
    std::int64_t element = 0;
    for (int i = 0; i < view.rank; ++i) element += at[static_cast<std::size_t>(i)] * view.stride(i);
    return static_cast<std::byte*>(const_cast<void*>(view.data)) + element * static_cast<std::int64_t>(bytes);
  };
  const auto size = [&](int dim) { return dim < from.rank ? from.size(dim) : 1; };
  for (at[0] = 0; at[0] < size(0); ++at[0])
    for (at[1] = 0; at[1] < size(1); ++at[1])
      for (at[2] = 0; at[2] < size(2); ++at[2])
        for (at[3] = 0; at[3] < size(3); ++at[3]) std::memcpy(place(to), place(from), bytes);
}

// More than 2^31 elements, by strides, of one dimension of one tensor at a time.
BACKWARD(museum_06_strides_reach_further_than_two_to_the_31_elements) {
  constexpr std::int64_t kFar = (std::int64_t{1} << 31) + 24;
  // Which of its dimensions are sequences; the tensor as an input or as an output.
  struct Tensor {
    const char* name;
    const char* dims;  ///< b, h, s (queries or keys), and - where the step must be 1
    std::function<TensorView*(BackwardArgs&)> input = {};
    std::function<OutputView*(BackwardArgs&)> output = {};
    bool is_read = false;  ///< of an OutputView: by the backward pass
  };
  const std::vector<Tensor> tensors{
      {.name = "q", .dims = "bsh-", .input = [](BackwardArgs& a) { return &a.forward.q; }},
      {.name = "k", .dims = "bsh-", .input = [](BackwardArgs& a) { return &a.forward.k; }},
      {.name = "v", .dims = "bsh-", .input = [](BackwardArgs& a) { return &a.forward.v; }},
      {.name = "bias", .dims = "bhss", .input = [](BackwardArgs& a) { return &a.forward.bias; }},
      {.name = "d_o", .dims = "bsh-", .input = [](BackwardArgs& a) { return &a.d_o; }},
      {.name = "d_lse", .dims = "bhs", .input = [](BackwardArgs& a) { return &a.d_lse; }},
      {.name = "o", .dims = "bsh-", .output = [](BackwardArgs& a) { return &a.forward.o; }, .is_read = true},
      {.name = "lse", .dims = "bhs", .output = [](BackwardArgs& a) { return &a.forward.lse; }, .is_read = true},
      {.name = "dq", .dims = "bsh-", .output = [](BackwardArgs& a) { return &a.dq; }},
      {.name = "dk", .dims = "bsh-", .output = [](BackwardArgs& a) { return &a.dk; }},
      {.name = "dv", .dims = "bsh-", .output = [](BackwardArgs& a) { return &a.dv; }},
      {.name = "dbias", .dims = "bhss", .output = [](BackwardArgs& a) { return &a.dbias; }},
  };
  for (const Tensor& tensor : tensors)
    for (int dim = 0; tensor.dims[dim] != '\0' && tensor.dims[dim] != '-'; ++dim) {
      const bool along_sequence = tensor.dims[dim] == 's';
      Case c = small_backward();
      c.type = f16;
      c.b = c.h = c.h_k = 2, c.d = c.d_v = 8;
      c.s_q = c.s_k = {along_sequence ? 2 : 20};
      c.bias = BiasSpec{f16, {.batch = true, .head = true, .query = true}}, c.dbias = f16, c.d_lse = true;
      Buffers buffers(c);
      BackwardArgs args = buffers.backward_args();
      const TensorView near = tensor.input ? *tensor.input(args) : TensorView(*tensor.output(args));
      OutputView far = far_view(near, dim, kFar);
      std::int64_t elements = kFar;
      for (int i = 0; i < near.rank; ++i) elements += i == dim ? 0 : near.size(i) * far.stride(i);
      const SparseMemory memory(static_cast<std::size_t>(elements * bits(near.type) / 8), on_gpu());
      if (!memory.there()) GTEST_SKIP() << "no address space";
      far.data = memory.data();
      const bool is_read = tensor.input || tensor.is_read;
      if (is_read) copy_elements(near, far);
      if (tensor.input) {
        *tensor.input(args) = far;
      } else {
        *tensor.output(args) = far;
      }
      target().backward(buffers, args);
      if (!is_read) copy_elements(far, near);
      const verify::Verdict verdict = verify::judge(buffers);
      EXPECT_TRUE(verdict.valid()) << verdict.to_string() << " tensor " << tensor.name << " dimension " << dim;
    }
}

// Logits far from zero, where P must come from the LSE and not from a fresh maximum.
BACKWARD(museum_05_gradients_of_large_logits_are_finite_and_right) {
  for (const DataType type : {f32, f16, bf16})
    for (const Distribution distribution : {Distribution::offset, Distribution::hot_key, Distribution::equal}) {
      Case c = small_backward();
      c.type = type, c.distribution = distribution;
      expect_matches_oracle(c);
    }
}

BACKWARD(museum_15_the_gradient_of_a_bias_of_odd_length_is_right) {
  for (const std::int64_t s : {43, 77, 498})
    for (const DataType type : {f32, f16, bf16}) {
      Case c = small_backward();
      c.b = 1, c.h = 2, c.type = type;
      c.s_q = {s == 498 ? 30 : s}, c.s_k = {s};
      c.bias = BiasSpec{type, {.head = true, .query = true}};
      c.dbias = type, c.align = 1;
      expect_matches_oracle(c);
    }
}

// What was dropped forward is what is dropped backward.
BACKWARD(museum_22_dropout_of_zero_changes_no_bit) {
  Case c = small_backward();
  const auto plain = gradients(c);
  c.drop_seed = 12345, c.drop_offset = 7;
  EXPECT_EQ(gradients(c), plain);
}

BACKWARD(museum_22_dropout_is_replayed_from_its_seed_and_offset) {
  for (const std::int64_t s_q : {1, 33, 150}) {
    Case c = small_backward();
    c.s_q = {s_q}, c.s_k = {170};
    c.p_drop = 0.4;
    c.drop_seed = 0xDEADBEEF12345678u, c.drop_offset = std::uint64_t{1} << 40;
    expect_matches_oracle(c);
    const auto first = gradients(c);
    Case in_memory = c;
    in_memory.drop_state = true;
    EXPECT_EQ(gradients(in_memory), first);
    Case other = c;
    other.drop_offset += 1;
    EXPECT_NE(gradients(other), first);
  }
}

// What was there before is NaN; whoever writes 0 there has written, too.
BACKWARD(museum_04_rows_behind_the_last_sequence_stay_untouched) {
  for (const DataType type : {f32, bf16})
    for (const std::int64_t d : {16, 64, 128}) {
      Case c = small_backward();
      c.type = type, c.d = c.d_v = d, c.mask = Mask::causal();
      c.mode = Mode::group, c.b = 3, c.s_q = {20, 0, 9}, c.s_k = {30, 31, 8};
      c.q_around = {0, 70}, c.k_around = {0, 130};
      expect_matches_oracle(c);
      const Buffers buffers(c);
      target().backward(buffers, buffers.backward_args());
      const BackwardArgs& args = buffers.backward_args();
      for (const OutputView* view : {&args.dq, &args.dk, &args.dv}) {
        const std::vector<double> all = values(buffers, *view);
        const std::int64_t used = (view == &args.dq ? 29 : 69) * view->size(1) * d;
        for (std::size_t at = 0; at < all.size(); ++at)
          ASSERT_EQ(std::isnan(all[at]), at >= static_cast<std::size_t>(used)) << at << ": " << c.to_command();
      }
    }
}

BACKWARD(museum_12_deterministic_gradients_are_right_and_the_same_twice) {
  for (const std::int64_t d : {64, 128, 192, 256})
    for (const auto& [h, h_k] : {std::pair{4, 2}, std::pair{3, 1}})
      for (const Mask& mask : {Mask::causal(), Mask::window(30, 5)}) {
        if (small_scale() && d > 64) continue;
        Case c = small_backward();
        c.type = h_k == 2 ? bf16 : f16, c.deterministic = true, c.mask = mask;
        c.d = d, c.d_v = d == 192 ? 128 : d;
        c.b = 2, c.h = h, c.h_k = h_k, c.s_q = {70}, c.s_k = {90};
        c.bias = BiasSpec{f32, {.query = true}}, c.dbias = f32;
        c.sink = SinkInit::normal, c.dsink = true;
        expect_matches_oracle(c);
        EXPECT_EQ(gradients(c), gradients(c)) << c.to_command();
      }
}

// The gradient is of every element that the view has, whatever memory they share.
BACKWARD(museum_15_a_bias_with_stride_0_has_a_gradient_of_its_full_size) {
  for (const DataType type : {f32, bf16})
    for (int own = 0; own < 8; ++own)
      for (const char dim : {'b', 'h', 'q', 'k'}) {
        if (small_scale() && dim != 'h') continue;
        Case c = small_backward();
        c.type = type, c.mask = Mask::causal();
        c.bias = BiasSpec{type, {.batch = (own & 1) != 0, .head = (own & 2) != 0, .query = (own & 4) != 0}};
        c.dbias = own % 2 == 0 ? f32 : type;
        c.zero_strides = {{ZeroStride::Tensor::bias, dim}};
        expect_matches_oracle(c);
      }
}

// Of most rows nothing is left, and what is left is a hundred times as large.
BACKWARD(museum_22_dropout_of_nearly_everything_has_the_right_gradients) {
  for (const DataType type : {f32, f16, bf16})
    for (const double p : {0.01, 0.5, 0.9, 0.99})
      for (const std::int64_t s_k : {1, 90}) {
        Case c = small_backward();
        c.type = type, c.p_drop = p, c.s_q = {70}, c.s_k = {s_k};
        c.mask = Mask::causal();
        c.bias = BiasSpec{f32, {.head = true, .query = true}}, c.dbias = f32;
        c.sink = SinkInit::normal, c.dsink = true;
        expect_matches_oracle(c);
      }
}

}  // namespace
}  // namespace heed::conformance
