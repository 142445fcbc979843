/// What is legal and seldom: rows that no sequence has, tables that are longer than every sequence, dimensions stored
/// backwards, sinks that are none. Both passes, on every engine.

#include "conformance/backward.hpp"
#include "core/sequences.hpp"

#include <utility>

namespace heed::conformance {
namespace {

Case grouped_sequences(DataType type) {
  Case c = small();
  c.type = type;
  c.mode = Mode::group, c.b = 4;
  c.s_q = {20, 0, 9, 70}, c.s_k = {30, 31, 0, 100};
  c.mask = Mask::causal();
  return c;
}

BACKWARD(rows_before_and_behind_all_sequences_are_neither_read_nor_written) {
  for (const DataType type : {f32, f16, bf16})
    for (const auto& [q_around, k_around] :
         {std::pair{verify::Around{1, 0}, verify::Around{0, 1}}, std::pair{verify::Around{0, 5}, verify::Around{9, 0}},
          std::pair{verify::Around{70, 130}, verify::Around{65, 200}}}) {
      Case c = grouped_sequences(type);
      c.q_around = q_around, c.k_around = k_around;
      expect_both_match_oracle(c);
      c.max_s_q = c.max_s_k = 0;  // nothing is told: in GPU memory the bound is all rows
      expect_both_match_oracle(c);
      c.max_s_q = c.max_s_k = Case::kExactly;
      c.s_qpad = {23, 1, 9, 80}, c.s_kpad = {30, 40, 2, 100};
      c.bias = BiasSpec{f32, {.head = true, .query = true}};
      c.sink = SinkInit::normal;
      expect_both_match_oracle(c);
      c.q_layout = c.k_layout = c.v_layout = c.o_layout = Layout::bshd;
      c.v_column_major = true, c.d = c.d_v = 64;
      expect_both_match_oracle(c);
    }
}

BACKWARD(sequences_packed_with_others_before_them_are_right) {
  for (const DataType type : {f32, bf16}) {
    Case c = grouped_sequences(type);
    c.packing = Packing::kv, c.q_layout = c.k_layout = c.v_layout = Layout::bshd;
    c.q_around = {3, 4}, c.k_around = {5, 6};
    expect_both_match_oracle(c);
    c.packing = Packing::qkv, c.h_k = c.h, c.s_k = c.s_q, c.k_around = c.q_around;
    expect_both_match_oracle(c);
  }
}

BACKWARD(a_table_longer_than_every_sequence_is_read_up_to_its_end_and_has_no_gradient_behind) {
  for (const DataType type : {f32, bf16})
    for (int own = 0; own < 8; ++own)
      for (const auto& [more_q, more_k] : {std::pair{1, 0}, std::pair{0, 1}, std::pair{9, 70}, std::pair{130, 600}}) {
        if (small_scale() && more_q > 9) continue;
        Case c = grouped_sequences(type);
        c.table_more_q = more_q, c.table_more_k = more_k;
        c.bias = BiasSpec{type, {.batch = (own & 1) != 0, .head = (own & 2) != 0, .query = (own & 4) != 0}};
        if (own % 3 == 0) c.bool_mask = Broadcast{.batch = true, .query = true};
        if (own % 3 == 1) c.block_mask = BlockMaskSpec{16, 32, {.head = true, .query = true}};
        expect_both_match_oracle(c);
        c.s_q = {1, 0, 1, 1};  // what has one row is no broadcast where the table has more
        expect_both_match_oracle(c);
        c.s_k = {0, 1, 1, 1};
        expect_both_match_oracle(c);
      }
}

BACKWARD(a_random_word_is_written_for_every_pair_and_for_none_behind) {
  Case c = grouped_sequences(f32);
  c.table_more_q = 3, c.table_more_k = 5;
  c.p_drop = 0.4, c.randval = true;
  expect_matches_oracle(c);
}

BACKWARD(a_bias_with_one_entry_for_all_keys_is_added_to_each_and_has_the_sum_of_their_gradients) {
  for (const DataType type : {f32, bf16})
    for (int own = 0; own < 8; ++own)
      for (const std::int64_t s_k : {1, 70, 700}) {
        if (small_scale() && s_k == 700) continue;
        Case c = small();
        c.type = type, c.s_k = {s_k}, c.squeeze = own % 2 == 0;
        c.mask = s_k == 70 ? Mask::causal() : Mask::none();
        c.bias =
            BiasSpec{type, {.batch = (own & 1) != 0, .head = (own & 2) != 0, .query = (own & 4) != 0, .key = false}};
        c.sink = SinkInit::normal;  // without one a softmax does not see what is added to all keys
        expect_both_match_oracle(c);
        if (s_k > 70) continue;
        c.bias->shape.key = true;
        c.bool_mask = Broadcast{.batch = true, .query = true, .key = false};
        expect_both_match_oracle(c);
      }
}

BACKWARD(heads_whose_sink_is_minus_infinity_have_none) {
  for (const DataType type : {f32, f16, bf16})
    for (const char* mask : {"n", "b", "b:5,0", "g:0,-100"})
      for (const Mode mode : {Mode::batch, Mode::group})
        for (const std::int64_t d : {16, 64, 128}) {
          Case c = mode == Mode::batch ? small() : grouped_sequences(type);
          c.type = type, c.d = c.d_v = d, c.mask = Mask::parse(mask), c.sink = SinkInit::holes;
          if (mode == Mode::batch) c.s_q = {100}, c.s_k = {40};  // bottom-right causal: some rows see nothing
          expect_both_match_oracle(c);
          const Buffers buffers(with_every_gradient(c));
          target().backward(buffers, buffers.backward_args());
          const auto dsink = values(buffers, buffers.backward_args().dsink);
          for (std::size_t h = 0; h < dsink.size(); h += 2) EXPECT_EQ(dsink[h], 0) << c.to_command();
        }
}

BACKWARD(tensors_may_be_stored_backwards) {
  for (const DataType type : {f32, bf16})
    for (const Mode mode : {Mode::batch, Mode::group}) {
      Case c = mode == Mode::batch ? small() : grouped_sequences(type);
      c.type = type, c.mask = Mask::causal();
      std::vector<verify::Reversed> all;
      for (const Operand operand :
           {Operand::q, Operand::k, Operand::v, Operand::o, Operand::d_o, Operand::dq, Operand::dk, Operand::dv})
        for (const char dim : {'b', 's', 'h'}) {
          if (mode == Mode::group && dim == 'b') continue;
          all.push_back({operand, dim});
          Case one = c;
          one.reversed = {all.back()};
          one.operation = Operation::backward;
          expect_matches_oracle(one);
          if (operand > Operand::o) continue;
          one.operation = Operation::forward;
          expect_matches_oracle(one);
        }
      c.operation = Operation::backward;
      c.reversed = all;
      expect_matches_oracle(c);
      c.d = c.d_v = 64, c.row_gap = 8;
      expect_matches_oracle(c);
    }
}

BACKWARD(a_bias_and_its_gradient_may_be_stored_backwards) {
  Case c = small();
  c.bias = BiasSpec{f32, {.batch = true, .head = true, .query = true}};
  const auto reverse = [](auto& view) {
    std::int64_t last = 0;
    for (int dim = 0; dim < view.rank; ++dim) {
      last += (view.size(dim) - 1) * view.stride(dim);
      view.strides[static_cast<std::size_t>(dim)] = -view.stride(dim);
    }
    view.data = static_cast<float*>(const_cast<void*>(static_cast<const void*>(view.data))) + last;
  };
  Buffers forward(c);
  reverse(forward.args().bias);
  expect_matches_oracle(forward, "a bias backwards");
  Buffers backward(with_every_gradient(c));
  reverse(backward.backward_args().dbias);
  expect_matches_oracle(backward, "dbias backwards");
}

}  // namespace
}  // namespace heed::conformance
