/// The gradients, on every engine. What must not happen again to anybody is in backward_museum_test.cpp.

#include "conformance/backward.hpp"
#include "verify/fuzz.hpp"

#include <utility>

namespace heed::conformance {
namespace {

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

// Where dQ is added up over chunks of keys, dK and dV over strips of queries, and both at once. The keys of one head
// are dealt out to threads; those of 4 are columns that one, two or four threads go over head by head, in two
// stretches; those of 16 are one column each.
BACKWARD(strips_of_queries_and_chunks_of_keys_add_up_to_every_gradient) {
  const char* const first_strips_hidden = "g:200,-80";    // queries 0 to 80 see nothing, the others few keys
  const char* const last_strips_hidden = "g:-2480,3000";  // queries from 119 on see nothing, the others the last keys
  for (const DataType type : {f32, bf16})
    for (const char* mask : {"n", "b", "b:600,0", "b:100,0,3", first_strips_hidden, last_strips_hidden})
      for (const std::int64_t heads : {1, 4, 16}) {
        if (type == f32 && (heads == 16 || small_scale())) continue;
        if (heads > 1 && small_scale()) continue;
        Case c = small_backward();
        c.type = type, c.mask = Mask::parse(mask);
        c.b = heads == 16 ? 4 : 1, c.h_k = heads / c.b, c.h = heads == 1 ? 2 : c.h_k;
        c.s_q = {150}, c.s_k = {2600}, c.d = c.d_v = 16;
        c.bias = BiasSpec{f32, {.query = true}}, c.dbias = f32;
        c.sink = SinkInit::normal, c.dsink = true;
        c.alibi = Alibi::per_head, c.dslopes = true;
        expect_matches_oracle(c);
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

// dK and dV are sums over the query heads of a group, here of none.
BACKWARD(keys_without_query_heads_have_gradients_of_zero) {
  for (const DataType type : {f32, f16, bf16})
    for (const Mode mode : {Mode::batch, Mode::group})
      for (const std::int64_t h_k : {1, 3}) {
        Case c = small_backward();
        c.type = type, c.mode = mode, c.h = 0, c.h_k = h_k;
        if (mode == Mode::group) c.s_q = {5, 0}, c.s_k = {70, 9}, c.s_kpad = {80, 9}, c.k_around = {3, 4};
        expect_matches_oracle(c);
        c.bias = BiasSpec{f32, {.query = true}}, c.sink = SinkInit::normal;
        c = with_every_gradient(c);
        expect_matches_oracle(c);
        c.deterministic = true;
        expect_matches_oracle(c);
      }
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
