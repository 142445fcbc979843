/// The gradients, on every engine.

#include "conformance/conformance.hpp"
#include "conformance/sparse_memory.hpp"
#include "core/float_bits.hpp"
#include "nan_in.hpp"
#include "verify/fuzz.hpp"

#include <heed/error.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <utility>

namespace heed::conformance {
namespace {

Case small_backward() {
  Case c = small();
  c.operation = Operation::backward;
  return c;
}

/// Cases that take different ways through an engine.
std::vector<Case> various_backward_cases() {
  std::vector<Case> cases;
  for (Case c : various_cases()) {
    c.operation = Operation::backward;
    c.lse = true;
    c.s_k = {std::min<std::int64_t>(c.s_k[0], 700)};
    if (c.group()) c.s_k = {200, 90, 9, 0, 65};
    cases.push_back(c);
  }
  cases[4].dbias = f32;
  cases[4].dslopes = true;
  cases[5].dsink = cases[5].d_lse = true;
  return cases;
}

class Backward : public Conformance {
 protected:
  std::vector<std::byte> gradients(const Case& c, Executor* executor = nullptr) const {
    const Buffers buffers(c);
    target(executor).backward(buffers, buffers.backward_args());
    return buffers.output_bytes();
  }
  std::vector<double> values(const Buffers& buffers, const OutputView& view) const {
    std::vector<double> result;
    for (std::int64_t a = 0; a < view.size(0); ++a)
      for (std::int64_t b = 0; b < view.size(1); ++b)
        for (std::int64_t c = 0; c < view.size(2); ++c)
          for (std::int64_t d = 0; d < view.size(3); ++d)
            result.push_back(
                core::load(view.data, view.type,
                           a * view.stride(0) + b * view.stride(1) + c * view.stride(2) + d * view.stride(3)));
    EXPECT_TRUE(buffers.check_guards().empty());
    return result;
  }

  /// Changes the arguments of a good call and expects the refusal to speak of `word`, with nothing written.
  void expect_refused(const Case& c, const std::function<void(BackwardArgs&)>& spoil, const std::string& word) const {
    Buffers buffers(c);
    spoil(buffers.backward_args());
    buffers.remember_inputs();
    try {
      target().backward(buffers, buffers.backward_args());
      ADD_FAILURE() << "accepted: " << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      EXPECT_THAT(error.what(), testing::HasSubstr(word));
    }
    EXPECT_TRUE(buffers.outputs_untouched()) << word;
    EXPECT_TRUE(buffers.check_guards().empty()) << word;
  }
};

#define BACKWARD(sentence) TEST_P(Backward, sentence)

BACKWARD(gradients_of_every_type_and_head_dim_are_right) {
  for (const DataType type : {f32, f16, bf16})
    for (const auto& [d, d_v] : {std::pair{16, 16}, std::pair{1, 1}, std::pair{37, 21}, std::pair{64, 64},
                                 std::pair{9, 80}, std::pair{128, 128}, std::pair{192, 128}, std::pair{256, 256}})
      for (const Math math : {Math::fast, Math::accurate}) {
        Case c = small_backward();
        c.type = type, c.d = d, c.d_v = d_v, c.math = math;
        if (small_scale() && d > 80) continue;
        expect_matches_oracle(c);
      }
}

BACKWARD(an_output_of_another_type_has_the_right_gradients) {
  for (const DataType type : {f32, f16, bf16})
    for (const DataType output : {f32, f16, bf16})
      for (const auto& [d, d_v] : {std::pair{64, 64}, std::pair{37, 21}}) {
        if (type == output) continue;
        Case c = small_backward();
        c.type = type, c.output_type = output, c.d = d, c.d_v = d_v;
        c.bias = BiasSpec{f32, {.head = true, .query = true}};
        c.dbias = f32;
        expect_matches_oracle(c);
      }
}

BACKWARD(gradients_around_the_edges_of_tiles_are_right) {
  for (const std::int64_t s_q : {0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 129, 200})
    for (const std::int64_t s_k : {0, 1, 5, 64, 65, 128, 130, 191}) {
      if (small_scale() && (s_q + s_k) % 3 != 0) continue;
      Case c = small_backward();
      c.b = 1, c.h = 2, c.h_k = 1, c.s_q = {s_q}, c.s_k = {s_k};
      c.type = (s_q + s_k) % 2 == 0 ? f32 : bf16;
      c.mask = s_q % 3 == 0 ? Mask::causal() : Mask::none();
      expect_matches_oracle(c);
    }
}

BACKWARD(gradients_under_every_mask_are_right) {
  for (const char* mask : {"t", "b", "b:9,0", "t:6,3", "b:5,0,4", "t:3,2,9", "xb:8", "xt:31", "g:-3,20", "g:5,-2"})
    for (const auto& [s_q, s_k] : {std::pair{33, 70}, std::pair{150, 90}, std::pair{70, 200}}) {
      if (small_scale() && s_k == 200) continue;
      Case c = small_backward();
      c.mask = Mask::parse(mask);
      c.s_q = {s_q}, c.s_k = {s_k};
      expect_matches_oracle(c);
    }
}

// Several tiles of keys, and of every width: where dQ is added up in memory, each adds to every row that it is seen by.
BACKWARD(many_tiles_of_keys_add_to_the_gradient_of_a_query) {
  for (const DataType type : {f16, bf16})
    for (const auto& [d, d_v] : {std::pair{40, 40}, std::pair{64, 64}, std::pair{64, 128}, std::pair{96, 96},
                                 std::pair{128, 128}, std::pair{192, 128}, std::pair{256, 256}})
      for (const char* mask : {"n", "b", "b:100,0,3"}) {
        if (small_scale() && d > 64) continue;
        Case c = small_backward();
        c.type = type, c.mask = Mask::parse(mask), c.d = d, c.d_v = d_v;
        c.b = 1, c.h = 2, c.h_k = 1, c.s_q = {70}, c.s_k = {300};
        expect_matches_oracle(c);
      }
}

// Wherever dQ is added up, it begins at zero in every run, and fits the workspace: rows of a sequence begin at whole
// blocks there.
BACKWARD(a_plan_runs_twice_in_one_workspace_without_an_order_of_sums) {
  if (!on_gpu()) return;
  Case packed = small_backward();
  packed.type = bf16, packed.mask = Mask::causal(), packed.d = packed.d_v = 64;
  packed.mode = Mode::group, packed.b = 5, packed.s_q = {1, 90, 0, 17, 64}, packed.s_k = {150, 90, 9, 0, 300};
  Case batch = packed;
  batch.mode = Mode::batch, batch.b = 3, batch.s_q = {65}, batch.s_k = {300};
  for (const Case& c : {packed, batch}) {
    const Buffers buffers(c);
    run_plan_twice_on_the_gpu(buffers);
    const verify::Verdict verdict = verify::judge(buffers, {.executor = &context().executor()});
    EXPECT_TRUE(verdict.valid()) << verdict.to_string() << "\n  " << c.to_command();
  }
}

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

BACKWARD(each_feature_has_the_right_gradients) {
  for (const DataType type : {f32, bf16}) {
    const auto check = [&](auto change) {
      Case c = small_backward();
      c.type = type, c.mask = Mask::causal(), c.s_q = {70};
      change(c);
      expect_matches_oracle(c);
    };
    check([](Case& c) { c.soft_cap = 5; });
    check([](Case& c) { c.alibi = Alibi::per_head, c.dslopes = true; });
    check([](Case& c) { c.alibi = Alibi::per_batch_and_head, c.dslopes = true; });
    check([](Case& c) { c.sink = SinkInit::normal, c.dsink = true; });
    check([](Case& c) { c.sink = SinkInit::large, c.dsink = true, c.d_lse = true; });
    check([](Case& c) { c.d_lse = true; });
    check([](Case& c) { c.bool_mask = Broadcast{.head = true, .query = true}; });
    check([](Case& c) { c.block_mask = BlockMaskSpec{16, 32, {.batch = true, .query = true}}; });
    check([](Case& c) { c.p_drop = 0.3; });
    check([](Case& c) { c.p_drop = 0.9, c.drop_state = true, c.sink = SinkInit::normal, c.dsink = true; });
    check([](Case& c) { c.scale = -0.25; });
    check([](Case& c) { c.deterministic = true; });
    check([](Case& c) { c.dq_in_16_bits = c.type != f32; });
    for (int own = 0; own < 8; ++own)
      for (const DataType dbias : {f32, type})
        check([&](Case& c) {
          c.bias = BiasSpec{type, {.batch = (own & 1) != 0, .head = (own & 2) != 0, .query = (own & 4) != 0}};
          c.dbias = dbias, c.bias_inf = own % 3 == 0, c.row_gap = own, c.squeeze = own % 2 == 0;
        });
  }
}

/// Nothing is left to sum: a kernel may write it where it makes dS, block by block.
BACKWARD(a_bias_that_nobody_shares_has_the_right_gradient) {
  for (const DataType type : {f16, bf16}) {
    Case c = small_backward();
    c.type = type, c.b = 2, c.h = 2, c.h_k = 1, c.s_q = {230}, c.s_k = {264};
    c.bias = BiasSpec{type, {.batch = true, .head = true, .query = true}}, c.dbias = type;
    for (const std::int64_t d : {64, 128})
      for (const Mask& mask : {Mask::none(), Mask::causal(), Mask::causal_top_left(), Mask::window(50, 10, 3)}) {
        if (small_scale() && d == 128) continue;
        c.d = c.d_v = d, c.mask = mask;
        expect_matches_oracle(c);
      }
    c.deterministic = true, c.mask = Mask::causal(), c.sink = SinkInit::normal, c.dsink = true;
    expect_matches_oracle(c);
    c.s_q = c.s_k;
    Buffers by_columns(c);
    std::swap(by_columns.backward_args().dbias.strides[2], by_columns.backward_args().dbias.strides[3]);
    expect_matches_oracle(by_columns, "dbias by columns");
  }
}

BACKWARD(packed_sequences_and_logical_lengths_have_the_right_gradients) {
  for (const DataType type : {f32, f16, bf16}) {
    Case c = small_backward();
    c.type = type, c.mask = Mask::causal();
    c.mode = Mode::group, c.b = 5, c.s_q = {1, 90, 0, 17, 64}, c.s_k = {150, 90, 9, 0, 65};
    expect_matches_oracle(c);
    c.s_qpad = {3, 90, 4, 20, 64}, c.s_kpad = {150, 100, 9, 5, 70};
    c.bias = BiasSpec{f32, {.head = true, .query = true}}, c.dbias = f32;
    expect_matches_oracle(c);
    Case batch = small_backward();
    batch.type = type;
    batch.q_eff_lens = {33, 20}, batch.kv_eff_lens = {0, 65};
    expect_matches_oracle(batch);
  }
}

// Museum 4: heads that share keys in every ratio.
BACKWARD(museum_04_gradients_of_shared_heads_are_summed_over_the_group) {
  for (const auto& [h, h_k] : {std::pair{8, 8}, std::pair{8, 1}, std::pair{8, 2}, std::pair{6, 3}, std::pair{5, 1},
                               std::pair{14, 2}, std::pair{16, 4}})
    for (const DataType type : {f32, bf16}) {
      Case c = small_backward();
      c.h = h, c.h_k = h_k, c.type = type, c.mask = Mask::causal();
      expect_matches_oracle(c);
    }
}

// Museum 1: rows without a visible key give exact zeros, and no NaN, in whatever shape they come.
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

BACKWARD(museum_01_a_mask_that_hides_everything_gives_zeros_alone) {
  Case c = small_backward();
  c.mask = Mask::parse("g:0,-100");
  const Buffers buffers(c);
  target().backward(buffers, buffers.backward_args());
  const BackwardArgs& args = buffers.backward_args();
  for (const OutputView* view : {&args.dq, &args.dk, &args.dv})
    for (const double each : values(buffers, *view)) ASSERT_EQ(each, 0);
}

// Museum 9: strides of any kind, also of what comes in from a broadcast sum.
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

// Museum 6: more heads than a grid dimension has.
BACKWARD(museum_06_batch_times_heads_goes_beyond_65535) {
  Case c = small_backward();
  c.b = small_scale() ? 2 : 257, c.h = c.h_k = 257;
  c.s_q = {1}, c.s_k = {3}, c.d = c.d_v = 2;
  expect_matches_oracle(c);
}

// More than 2^31 elements, by strides, of one dimension of one tensor at a time.
BACKWARD(museum_06_strides_reach_further_than_two_to_the_31_elements) {
  constexpr std::int64_t kFar = (std::int64_t{1} << 31) + 24;
  for (const int which : {0, 1, 2, 3, 4})  // q, d_o; dq, dk, dv
    for (const int dim : {0, 1, 2}) {
      Case c = small_backward();
      c.type = f16;
      c.b = 2, c.h = c.h_k = dim == 2 ? 2 : 3;
      c.s_q = {dim == 1 ? 2 : 20}, c.s_k = {dim == 1 ? 2 : 20};
      c.d = c.d_v = 8;
      Buffers buffers(c);
      BackwardArgs args = buffers.backward_args();
      TensorView* const input = which == 0 ? &args.forward.q : which == 1 ? &args.d_o : nullptr;
      OutputView* const output = which == 2 ? &args.dq : which == 3 ? &args.dk : which == 4 ? &args.dv : nullptr;
      OutputView far;
      far.type = f16, far.rank = 4, far.sizes = input != nullptr ? input->sizes : output->sizes;
      far.strides = {far.size(1) * far.size(2) * 8, far.size(2) * 8, 8, 1};
      far.strides[static_cast<std::size_t>(dim)] = kFar;
      const SparseMemory memory(
          static_cast<std::size_t>((far.size(dim) - 1) * kFar + far.size(0) * far.size(1) * far.size(2) * 8) * 2,
          on_gpu());
      if (!memory.there()) GTEST_SKIP() << "no address space";
      far.data = memory.data();
      if (input != nullptr) {
        copy_rows(*input, far);
        *input = far;
        target().backward(buffers, args);
      } else {
        const OutputView near = *output;
        *output = far;
        target().backward(buffers, args);
        copy_rows(far, near);
      }
      const verify::Verdict verdict = verify::judge(buffers);
      EXPECT_TRUE(verdict.valid()) << verdict.to_string() << " tensor " << which << " dimension " << dim;
    }
}

// Museum 12: logits far from zero, where P must come from the LSE and not from a fresh maximum.
BACKWARD(museum_12_gradients_of_large_logits_are_finite_and_right) {
  for (const DataType type : {f32, f16, bf16})
    for (const Distribution distribution : {Distribution::offset, Distribution::hot_key, Distribution::equal}) {
      Case c = small_backward();
      c.type = type, c.distribution = distribution;
      expect_matches_oracle(c);
    }
}

// All weights are of the size of 1e-12, and the rounding of the scores is all that moves them.
BACKWARD(gradients_of_scores_far_below_a_sink_are_right) {
  Case c = small_backward();
  c.type = f32;
  c.b = 1, c.h = c.h_k = 1, c.s_q = {1}, c.s_k = {1};
  c.d = 173, c.d_v = 1, c.scale = -0.25;
  c.sink = SinkInit::normal, c.dsink = true;
  c.distribution = Distribution::equal;
  for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{571546763577494359}}) {
    c.seed = seed;
    expect_matches_oracle(c);
  }
}

// With one key dP is D: dK is what their roundings leave, and units that cut cut products of cosines alike.
BACKWARD(the_gradient_of_a_single_key_is_no_more_than_rounding) {
  Case c = small_backward();
  c.b = 1, c.h = 16, c.h_k = 1, c.s_q = {57}, c.s_k = {1}, c.d = c.d_v = 96, c.row_gap = 15;
  c.distribution = Distribution::trig, c.seed = 1119183608007425953;
  for (const DataType type : {f16, bf16}) {
    c.type = type;
    expect_matches_oracle(c);
  }
}

// Museum 15: a bias of odd length, with its gradient.
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

// Museum 22: what was dropped forward is what is dropped backward.
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

BACKWARD(a_deterministic_run_gives_the_same_bits_every_time) {
  for (Case c : various_backward_cases()) {
    c.deterministic = true;
    Buffers buffers(c);
    target().backward(buffers, buffers.backward_args());
    const auto expected = buffers.output_bytes();
    for (std::int64_t n = 0; n < 30; n += sweep_step(10)) {
      buffers.clear_outputs();
      target().backward(buffers, buffers.backward_args());
      ASSERT_EQ(buffers.output_bytes(), expected) << c.to_command();
    }
  }
}

BACKWARD(the_number_of_threads_shows_in_no_bit_of_a_gradient) {
  for (Case c : various_backward_cases()) {
    c.deterministic = true;
    const auto expected = gradients(c);
    for (const int threads : {1, 2, 3, 5, 16}) {
      ThreadPool pool(threads);
      EXPECT_EQ(gradients(c, &pool), expected) << threads << " threads: " << c.to_command();
    }
  }
}

BACKWARD(a_plan_runs_in_exactly_the_workspace_it_asks_for) {
  for (Case c : various_backward_cases()) {
    c.deterministic = true;
    const auto expected = gradients(c);
    const Buffers buffers(c);
    if (on_gpu()) {
      run_plan_twice_on_the_gpu(buffers);
      EXPECT_EQ(buffers.output_bytes(), expected) << c.to_command();
      continue;
    }
    const Plan plan = context().plan(Problem::of(buffers.backward_args()), {.engine = GetParam().choice, .threads = 2});
    constexpr std::size_t kGuard = 4096;
    std::vector<std::byte> memory(plan.workspace_bytes() + kGuard + 64, std::byte{0xA5});
    const std::size_t shift = 64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
    const auto workspace = std::span(memory).subspan(shift, plan.workspace_bytes());
    ThreadPool pool(2);
    plan.run(buffers.backward_args(), workspace, &pool);
    EXPECT_EQ(buffers.output_bytes(), expected) << c.to_command();
    for (std::size_t at = shift + plan.workspace_bytes(); at < memory.size(); ++at)
      ASSERT_EQ(memory[at], std::byte{0xA5}) << c.to_command();
    // A byte less is refused.
    EXPECT_THROW(plan.run(buffers.backward_args(), workspace.first(workspace.size() - 1), &pool), Error);
    EXPECT_THROW(plan.run(buffers.args(), workspace, &pool), Error);
  }
}

BACKWARD(memory_of_a_plan_does_not_grow_with_the_square_of_the_length) {
  const auto bytes = [&](std::int64_t s) {
    Problem problem = Problem::backward().type(bf16).heads(4).lengths(s, s).head_dims(64).deterministic(true);
    if (context().explain(problem, {.engine = GetParam().choice}).chosen() == nullptr) problem.deterministic(false);
    return context().plan(problem, {.engine = GetParam().choice, .threads = 2}).workspace_bytes();
  };
  EXPECT_LT(static_cast<double>(bytes(65536)), 4.5 * static_cast<double>(bytes(16384)) + 1e6);
}

BACKWARD(bad_input_is_refused_before_anything_is_written) {
  Case c = small_backward();
  c.bias = BiasSpec{f32, {.query = true}}, c.dbias = f32;
  const auto move = [](OutputView& view, const TensorView& to) { view.data = const_cast<void*>(to.data); };
  expect_refused(
      c, [](BackwardArgs& a) { a.forward.lse = {}; }, "lse is not given");
  expect_refused(
      c, [](BackwardArgs& a) { a.d_o = {}; }, "d_o is not given");
  expect_refused(
      c, [](BackwardArgs& a) { a.d_o.sizes[3] -= 1; }, "like o");
  expect_refused(
      c, [](BackwardArgs& a) { a.forward.o.sizes[1] -= 1; }, "o is");
  expect_refused(
      c, [](BackwardArgs& a) { a.forward.lse.sizes[2] -= 1; }, "lse is");
  expect_refused(
      c, [](BackwardArgs& a) { a.forward.lse.type = f16; }, "lse is f16");
  expect_refused(
      c, [](BackwardArgs& a) { a.dk.sizes[2] = 4; }, "dk is");
  expect_refused(
      c, [](BackwardArgs& a) { a.dq.strides[3] = 2; }, "stride of the head dim is 2");
  expect_refused(
      c, [](BackwardArgs& a) { a.forward.bias = {}; }, "there is no bias");
  expect_refused(
      c, [](BackwardArgs& a) { a.dq_accumulation = f16; }, "dq_accumulation = f16");
  expect_refused(
      c, [&](BackwardArgs& a) { move(a.dq, a.forward.q); }, "dq and q overlap");
  expect_refused(
      c, [&](BackwardArgs& a) { move(a.dv, a.dk); }, "dk and dv overlap");
  expect_refused(
      c, [](BackwardArgs& a) { a.forward.dropout.p = 1; }, "dropout p = 1");
}

BACKWARD(random_problems_have_the_right_gradients) {
  const std::int64_t cases = (best_of_its_engine() ? 1000 : 250) / sweep_step(5);
  const verify::FuzzResult result = verify::fuzz(
      target(),
      {.operation = Operation::backward, .seed = 21, .cases = cases, .most_failures = 3, .references = &references()});
  for (const verify::FuzzFailure& failure : result.failures) ADD_FAILURE() << failure.to_string();
}

INSTANTIATE_TEST_SUITE_P(On, Backward, testing::ValuesIn(engines()),
                         [](const testing::TestParamInfo<Engine>& each) { return each.param.name; });

}  // namespace
}  // namespace heed::conformance
