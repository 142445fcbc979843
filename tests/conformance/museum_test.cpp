/// Bugs that attention libraries have had, each as a test that must never fail here. Entries 6 to 9, 11, 15 and 17 have
/// further tests under their numbers in the other files.

#include "conformance/conformance.hpp"
#include "core/float_bits.hpp"
#include "core/sequences.hpp"
#include "nan_in.hpp"

#include <heed/philox.hpp>

#include <cmath>
#include <cstring>
#include <utility>

namespace heed::conformance {
namespace {

/// Sets the bias (or any tensor of rank 4, dense but for its rows) of a test by hand.
void set(const TensorView& view, std::int64_t i, std::int64_t j, float value) {
  core::store(const_cast<void*>(view.data), view.type, i * view.stride(2) + j * view.stride(3), value);
}

CONFORMANCE(museum_01_sequences_of_length_zero_alone_and_among_others) {
  for (const char* mask : {"0", "t", "b", "b:3,0"})
    for (const SinkInit sink : {SinkInit::none, SinkInit::normal}) {
      Case c = small();
      c.mask = Mask::parse(mask);
      c.sink = sink;
      c.mode = Mode::group;
      for (const auto& [s_q, s_k] :
           std::vector<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>>{{{0}, {0}},
                                                                                        {{0}, {9}},
                                                                                        {{9}, {0}},
                                                                                        {{0, 0}, {0, 0}},
                                                                                        {{5, 0, 7}, {0, 9, 7}},
                                                                                        {{0, 70, 0}, {70, 0, 0}},
                                                                                        {{1, 0, 1}, {1, 1, 0}},
                                                                                        {{0, 1, 0, 1}, {0, 1, 0, 0}}}) {
        c.b = static_cast<std::int64_t>(s_q.size());
        c.s_q = s_q, c.s_k = s_k;
        expect_matches_oracle(c);
      }
      Case batch = small();
      batch.mask = c.mask, batch.sink = sink;
      for (const auto& [s_q, s_k] : {std::pair{0, 9}, std::pair{9, 0}, std::pair{0, 0}}) {
        batch.s_q = {s_q}, batch.s_k = {s_k};
        expect_matches_oracle(batch);
      }
      batch = small();
      batch.q_eff_lens = {0, 33}, batch.kv_eff_lens = {70, 0};
      expect_matches_oracle(batch);
    }
}

CONFORMANCE(museum_02_blocks_of_minus_infinity_before_between_and_behind_visible_keys) {
  for (const std::int64_t s_q : {3, 70})
    for (const SinkInit sink : {SinkInit::none, SinkInit::normal})
      for (const DataType type : {f32, bf16})
        for (const auto& [from, to] : {std::pair{0, 128}, std::pair{0, 130}, std::pair{128, 256}, std::pair{100, 300},
                                       std::pair{256, 400}, std::pair{1, 400}, std::pair{0, 400}}) {
          Case c = small();
          c.type = type, c.sink = sink;
          c.b = 1, c.s_q = {s_q}, c.s_k = {400};
          c.bias = BiasSpec{f32, {.query = true}};
          Buffers buffers(c);
          for (std::int64_t i = 0; i < s_q; ++i)
            for (std::int64_t j = from; j < to; ++j)
              if (i != 1) set(std::as_const(buffers).args().bias, i, j, -INFINITY);  // row 1 stays as it is
          buffers.remember_inputs();
          expect_matches_oracle(buffers, "keys " + std::to_string(from) + " to " + std::to_string(to) + " are hidden");
        }
}

CONFORMANCE(museum_02_rows_that_masks_hide_wholly) {
  for (const SinkInit sink : {SinkInit::none, SinkInit::large})
    for (const std::int64_t s_q : {3, 70}) {
      Case c = small();
      c.sink = sink;
      c.s_q = {s_q}, c.s_k = {300};
      c.bool_mask = Broadcast{.batch = true, .query = true};
      expect_matches_oracle(c);
      c.bool_mask.reset();
      c.block_mask = BlockMaskSpec{1, 64, {.head = true, .query = true}};
      expect_matches_oracle(c);
    }
}

// With more rows than a tile has, so that blocks lie between those that some and that others would count.
CONFORMANCE(museum_02_raw_coordinates_that_hide_everything) {
  for (const char* mask : {"g:0,1", "g:0,-100", "g:-40,20", "g:-1000,-1000"})
    for (const std::int64_t h_k : {1, 8}) {
      Case c = small();
      c.b = 1, c.h = 8, c.h_k = h_k, c.s_q = {512}, c.s_k = {400};
      c.mask = Mask::parse(mask);
      expect_matches_oracle(c);
      c.type = bf16, c.d = c.d_v = 64;
      expect_matches_oracle(c);
    }
}

// The guard bands check this in every test; here is the one case they do not: rows behind the last offset.
CONFORMANCE(museum_04_rows_behind_the_last_sequence_stay_untouched) {
  Case c = small();
  c.mode = Mode::group;
  c.b = 3, c.s_q = {20, 5, 9}, c.s_k = {30, 31, 8};
  Buffers buffers(c);
  ForwardArgs args = buffers.args();
  args.seqstart_q.sizes[0] = args.seqstart_k.sizes[0] = 3;  // two sequences
  target().forward(buffers, args);
  const Strides steps = core::strides_of(args.o);
  const core::LseStrides lse = core::lse_strides(args.lse);
  for (std::int64_t h = 0; h < c.h; ++h)
    for (std::int64_t row = 0; row < 34; ++row) {
      const bool written = row < 25;
      EXPECT_EQ(core::load_raw<std::uint32_t>(args.lse.data, h * lse.head + row * lse.row) != 0xFFFFFFFFu, written)
          << row;
      for (std::int64_t e = 0; e < c.d_v; ++e)
        EXPECT_EQ(core::load_raw<std::uint32_t>(args.o.data, h * steps.head + row * steps.sequence + e) != 0xFFFFFFFFu,
                  written)
            << row;
    }
}

CONFORMANCE(museum_05_logits_of_any_size_give_finite_results) {
  for (const DataType type : {f32, f16, bf16})
    for (const Distribution distribution : {Distribution::offset, Distribution::extreme, Distribution::hot_key})
      for (const std::int64_t s_q : {1, 5, 70})
        for (const std::int64_t s_k : {1, 32, 64, 96, 192, 200}) {  // half a tile over is where one library failed
          Case c = small();
          c.b = 1, c.type = type, c.distribution = distribution;
          c.s_q = {s_q}, c.s_k = {s_k};
          expect_matches_oracle(c);
          c.mask = Mask::causal();
          c.sink = SinkInit::normal;
          expect_matches_oracle(c);
        }
  // 6e4, in f32: a scale that makes the hot key's logit as large.
  Case c = small();
  c.distribution = Distribution::hot_key;
  c.scale = 100;
  expect_matches_oracle(c);
}

CONFORMANCE(museum_05_an_LSE_far_below_zero_is_right) {
  // Half the rows of this distribution have all their logits near -120, below the -88.7 where exp underflows in f32.
  Case c = small();
  c.distribution = Distribution::offset;
  const std::vector<double> values = lse(c);
  EXPECT_TRUE(std::any_of(values.begin(), values.end(), [](double each) { return each < -100; }));
  EXPECT_TRUE(std::any_of(values.begin(), values.end(), [](double each) { return each > 100; }));
  for (const double each : values) EXPECT_TRUE(std::isfinite(each));
}

// A sequence alone gives the bits it gives among others, in batch mode and in group mode.
CONFORMANCE(museum_11_a_sequence_gives_the_same_bits_alone_and_in_a_batch) {
  for (const DataType type : {f32, bf16})
    for (const std::int64_t s_q : {1, 40, 130}) {
      Case many = small();
      many.type = type;
      many.mode = Mode::group;
      many.b = 4;
      many.s_q = {s_q, 7, 0, 64}, many.s_k = {90, 1300, 5, 64};
      many.mask = Mask::causal();
      Case one = many;  // entry 0 has the same numbers in every case
      one.b = 1;
      one.s_q = {s_q}, one.s_k = {90};
      Case batch = one;
      batch.mode = Mode::batch;
      const auto all = output(many), alone = output(one);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin())) << many.to_command();
      EXPECT_EQ(output(batch), alone) << batch.to_command();
    }
}

CONFORMANCE(museum_11_queries_in_chunks_give_what_they_give_at_once) {
  Case whole = small();
  whole.b = 1;
  whole.s_q = whole.s_k = {100};
  whole.mask = Mask::causal();
  const auto expected = output(whole);
  // Chunk n sees the keys up to its own end: bottom-right causal aligns its last query with its last key.
  for (const std::int64_t chunk : {1, 7, 32}) {
    const Buffers buffers(whole);
    for (std::int64_t begin = 0; begin < 100; begin += chunk) {
      ForwardArgs args = buffers.args();
      const std::int64_t end = std::min<std::int64_t>(begin + chunk, 100), rows = end - begin;
      const auto cut = [&](auto& view) {
        view.sizes[1] = rows;
        view.data = static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(view.data))) +
                    begin * view.stride(1) * 4;
      };
      cut(args.q);
      cut(args.o);
      args.k.sizes[1] = args.v.sizes[1] = end;
      args.lse = {};
      target().forward(buffers, args);
    }
    const ForwardArgs& args = buffers.args();
    std::size_t at = 0;
    for (std::int64_t h = 0; h < whole.h; ++h)
      for (std::int64_t i = 0; i < 100; ++i)
        for (std::int64_t e = 0; e < whole.d_v; ++e)
          EXPECT_NEAR(core::load(args.o.data, f32, h * args.o.stride(2) + i * args.o.stride(1) + e), expected[at++],
                      2e-6);
  }
}

CONFORMANCE(museum_13_windows_that_mean_the_same_give_the_same_bits) {
  for (const DataType type : {f32, bf16})
    for (const auto& [s_q, s_k] :
         {std::pair{70, 70}, std::pair{70, 150}, std::pair{150, 70}, std::pair{1, 90}, std::pair{9, 300}}) {
      const auto bits_of = [&, q = s_q, k = s_k](const std::string& mask) {
        Case c = small();
        c.type = type;
        c.b = 1, c.s_q = {q}, c.s_k = {k};
        c.mask = Mask::parse(mask);
        return run(c);
      };
      const std::string far = std::to_string(std::max(s_q, s_k)), less = std::to_string(std::max(s_q, s_k) - 1);
      for (const std::string& same :
           std::vector<std::string>{"2", "b:-1,0", "b:" + far + ",0", "b:" + less + ",0", "b:-1,0,9"})
        EXPECT_EQ(bits_of("b"), bits_of(same)) << same << " for " << s_q << " x " << s_k;
      for (const std::string& same : std::vector<std::string>{"1", "t:-1,0", "t:" + far + ",0", "t:" + less + ",0"})
        EXPECT_EQ(bits_of("t"), bits_of(same)) << same << " for " << s_q << " x " << s_k;
      for (const std::string& same : std::vector<std::string>{"0", "b:-1,-1", "t:-1,-1", "b:" + far + "," + far})
        EXPECT_EQ(bits_of("n"), bits_of(same)) << same << " for " << s_q << " x " << s_k;
      if (s_q == s_k) {
        EXPECT_EQ(bits_of("t"), bits_of("b"));
      }
      EXPECT_EQ(bits_of("xb:5"), bits_of("b:2,2"));
      EXPECT_EQ(bits_of("t:2,1"), bits_of("g:3,2"));
    }
}

// In nats, [b, h, s_q] and [h, total_q]; and two halves of the keys, merged by their LSE, give the whole.
CONFORMANCE(museum_14_the_LSE_merges_parts_into_the_whole) {
  Case c = small();
  c.b = 1, c.h = c.h_k = 2;
  c.s_q = {40}, c.s_k = {90};
  Buffers buffers(c);
  for (const std::int64_t cut : {0, 1, 45, 64, 90}) {  // 0 and 90: one part is empty, its LSE is -inf
    const auto part = [&](std::int64_t from, std::int64_t to, std::vector<float>& o, std::vector<float>& part_lse) {
      buffers.clear_outputs();
      ForwardArgs args = buffers.args();
      for (TensorView* view : {&args.k, &args.v}) {
        view->sizes[1] = to - from;
        view->data = static_cast<const float*>(view->data) + from * view->stride(1);
      }
      target().forward(buffers, args);
      const auto* const o_there = static_cast<const float*>(args.o.data);
      const auto* const lse_there = static_cast<const float*>(args.lse.data);
      o.assign(o_there, o_there + 2 * 40 * c.d_v);
      part_lse.assign(lse_there, lse_there + 2 * 40);
    };
    std::vector<float> o1, o2, o, lse1, lse2, lse_all;
    part(0, cut, o1, lse1);
    part(cut, 90, o2, lse2);
    part(0, 90, o, lse_all);
    for (std::size_t h = 0; h < 2; ++h)
      for (std::size_t i = 0; i < 40; ++i) {
        const double a = std::exp(static_cast<double>(lse1[h * 40 + i])),
                     b = std::exp(static_cast<double>(lse2[h * 40 + i]));
        EXPECT_NEAR(static_cast<double>(lse_all[h * 40 + i]), std::log(a + b), 1e-5);
        for (std::size_t e = 0; e < static_cast<std::size_t>(c.d_v); ++e) {
          const std::size_t at = (h * 40 + i) * static_cast<std::size_t>(c.d_v) + e;
          EXPECT_NEAR(static_cast<double>(o[at]),
                      (a * static_cast<double>(o1[at]) + b * static_cast<double>(o2[at])) / (a + b), 5e-6);
        }
      }
  }
}

CONFORMANCE(museum_15_a_bias_of_odd_length_is_right) {
  for (const std::int64_t s : {43, 77, 498})
    for (const DataType type : {f32, f16, bf16}) {
      Case c = small();
      c.b = 1, c.h = 2, c.type = type;
      c.s_q = {s == 498 ? 30 : s}, c.s_k = {s};
      c.bias = BiasSpec{type, {.head = true, .query = true}};
      c.align = 1;
      expect_matches_oracle(c);
    }
}

CONFORMANCE(museum_20_a_NaN_in_visible_input_reaches_the_result) {
  for (const DataType type : {f32, f16, bf16})
    for (const std::int64_t s_q : {1, 40})
      for (const int tensor : {0, 2, 3}) {
        Case c = small();
        c.type = type;
        c.b = 1, c.s_q = {s_q}, c.s_k = {100};
        Buffers buffers(c);
        put_nan(buffers, tensor, tensor == 0 ? 0 : 67, 1);
        expect_matches_oracle(buffers, "NaN in tensor " + std::to_string(tensor));
      }
}

CONFORMANCE(museum_20_a_NaN_in_a_hidden_key_reaches_no_result) {
  for (const DataType type : {f32, f16, bf16})
    for (const std::int64_t s_q : {3, 100})
      for (const int tensor : {2, 3}) {
        Case c = small();
        c.type = type;
        c.b = 1, c.s_q = {s_q}, c.s_k = {100};
        c.mask = Mask::causal_top_left();
        Buffers buffers(c);
        for (const std::int64_t key : {1, 67}) put_nan(buffers, tensor, key, 1);
        expect_matches_oracle(buffers, "NaN in tensor " + std::to_string(tensor));
      }
}

// A weight below the smallest number of f32 is not that of a hidden key.
CONFORMANCE(museum_20_a_NaN_in_a_visible_key_of_hardly_any_weight_reaches_the_result) {
  for (const DataType type : {f32, bf16})
    for (const std::int64_t s_q : {1, 3, 40})
      for (const bool masked : {false, true}) {
        Case c = small();
        c.type = type, c.alibi = Alibi::per_head, c.b = 1, c.h = c.h_k = 2;
        c.s_q = {s_q}, c.s_k = {3000};
        if (masked) c.bool_mask = Broadcast{.query = true};
        Buffers buffers(c);
        // ALiBi leaves key 5 a weight of e to the power of -180 in the first head, of -11 in the second.
        for (const std::int64_t head : {0, 1}) put_nan(buffers, /*tensor=*/3, 5, head);
        expect_matches_oracle(buffers, "NaN in V");
      }
}

CONFORMANCE(museum_21_a_soft_cap_of_zero_is_off_and_a_tiny_one_works) {
  Case c = small();
  const auto plain = run(c);
  c.soft_cap = 0;
  EXPECT_EQ(run(c), plain);
  for (const double cap : {1e-6, 0.01, 1.0, 30.0, 1e4, 1e30, 1e39})
    for (const std::int64_t s_q : {1, 33}) {
      c.s_q = {s_q};
      c.soft_cap = cap;
      for (const Distribution distribution : {Distribution::normal, Distribution::offset}) {
        c.distribution = distribution;
        expect_matches_oracle(c);
      }
    }
}

CONFORMANCE(museum_22_dropout_of_zero_changes_no_bit) {
  Case c = small();
  const auto plain = run(c);
  c.drop_seed = 12345, c.drop_offset = 7;
  EXPECT_EQ(run(c), plain);
}

CONFORMANCE(museum_22_dropout_repeats_with_its_seed_and_offset) {
  Case c = small();
  c.p_drop = 0.4;
  c.drop_seed = 0xDEADBEEF12345678u, c.drop_offset = std::uint64_t{1} << 40;
  expect_matches_oracle(c);
  const auto first = run(c);
  EXPECT_EQ(run(c), first);
  Case other = c;
  other.drop_offset += 1;
  EXPECT_NE(run(other), first);
  other = c;
  other.drop_seed += std::uint64_t{1} << 32;
  EXPECT_NE(run(other), first);
}

CONFORMANCE(museum_22_dropout_draws_from_a_state_in_memory_as_from_the_numbers_in_it) {
  for (const std::int64_t s_q : {1, 33, 150}) {
    Case c = small();
    c.s_q = {s_q};
    c.p_drop = 0.4, c.randval = true;
    c.drop_seed = 0xDEADBEEF12345678u, c.drop_offset = std::uint64_t{1} << 63;
    const auto by_number = run(c);
    c.drop_state = true;
    expect_matches_oracle(c);
    EXPECT_EQ(run(c), by_number) << c.to_command();
  }
}

// With q = 0 all weights are equal, and with V = 1 an element of O is the number of kept keys over s_k (1 - p).
CONFORMANCE(museum_22_dropout_keeps_the_expected_share) {
  for (const double p : {0.1, 0.5, 0.9, 0.999}) {
    Case c = small();
    c.s_q = {60}, c.s_k = {200};
    c.d_v = 1;
    c.distribution = Distribution::equal;  // V is 0.75 everywhere
    c.p_drop = p;
    const auto values = output(c);
    double mean = 0;
    for (const double each : values) mean += each / static_cast<double>(values.size());
    const double samples = static_cast<double>(values.size()) * 200;
    EXPECT_NEAR(mean, 0.75, 0.75 * 5 * std::sqrt(p / (1 - p) / samples)) << p;
  }
}

}  // namespace
}  // namespace heed::conformance
