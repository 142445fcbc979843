#include "verify/buffers.hpp"

#include "core/float_bits.hpp"
#include "core/sequences.hpp"
#include "verify/fill_rows.hpp"
#include "verify/operand_shape.hpp"

#include <heed/executor.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <utility>

namespace heed::verify {

Buffers::Buffers(const Case& c, Executor* executor) : case_(c) {
  case_.check();
  SerialExecutor serial;
  Executor& threads = executor != nullptr ? *executor : serial;
  make_sequences();
  make_operands(threads);
  make_bias_and_masks();
  make_slopes_and_sinks();
  make_outputs();
  args().mask = c.mask;
  args().scale = c.scale;
  args().soft_cap = c.soft_cap;
  make_dropout();
  args().math = c.math;
  if (c.backward()) {
    run_forward(threads);
    make_incoming_gradients(threads);
    make_gradients();
  }
  remember_inputs();
  arguments_are_the_cases_ = true;
}

OutputView Buffers::view_of(GuardedBuffer& buffer, const Shape& shape, std::int64_t first_element) {
  OutputView view;
  view.data = static_cast<std::byte*>(buffer.data()) + (first_element + shape.first) * bits(buffer.type()) / 8;
  view.type = buffer.type();
  view.rank = static_cast<int>(shape.sizes.size());
  std::copy(shape.sizes.begin(), shape.sizes.end(), view.sizes.begin());
  std::copy(shape.strides.begin(), shape.strides.end(), view.strides.begin());
  return view;
}

OutputView Buffers::add(std::string_view name, DataType type, const Shape& shape) {
  constexpr std::array<std::string_view, 3> kForward{"o", "lse", "randval"};
  constexpr std::array<std::string_view, 6> kBackward{"dq", "dk", "dv", "dbias", "dsink", "dslopes"};
  const std::span<const std::string_view> outputs =
      case_.backward() ? std::span<const std::string_view>(kBackward) : std::span<const std::string_view>(kForward);
  const bool output = std::find(outputs.begin(), outputs.end(), name) != outputs.end();
  auto& buffer = (output ? outputs_ : inputs_)[std::string(name)];
  buffer = GuardedBuffer(type, shape.span(), case_.align);
  return view_of(buffer, shape, 0);
}

// ---- sequences ----

OutputView Buffers::add_indices(std::string_view name, const std::vector<std::int64_t>& values) {
  const OutputView view = add(name, case_.index_type, Shape::dense({static_cast<std::int64_t>(values.size())}, 0));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    if (case_.index_type == DataType::i64)
      core::store_raw(view.data, at, values[i]);
    else
      core::store_raw(view.data, at, static_cast<std::int32_t>(values[i]));
  }
  return view;
}

void Buffers::make_sequences() {
  const Case& c = case_;
  start_q_.assign(static_cast<std::size_t>(c.b + 1), 0);
  start_k_ = start_q_;
  if (!c.group()) {
    if (!c.q_eff_lens.empty()) args().seqlen_q = add_indices("seqlen_q", c.q_eff_lens);
    if (!c.kv_eff_lens.empty()) args().seqlen_k = add_indices("seqlen_k", c.kv_eff_lens);
    return;
  }
  start_q_[0] = c.q_around.before;
  start_k_[0] = c.k_around.before;
  for (std::int64_t e = 0; e < c.b; ++e) {
    const auto i = static_cast<std::size_t>(e);
    start_q_[i + 1] = start_q_[i] + c.physical_q(e);
    start_k_[i + 1] = start_k_[i] + c.physical_k(e);
  }
  args().seqstart_q = add_indices("seqstart_q", start_q_);
  args().seqstart_k = add_indices("seqstart_k", start_k_);
  args().max_s_q = c.told_q();
  args().max_s_k = c.told_k();
  if (!c.s_qpad.empty()) args().seqlen_q = add_indices("seqlen_q", c.s_q);
  if (!c.s_kpad.empty()) args().seqlen_k = add_indices("seqlen_k", c.s_k);
}

void Buffers::make_dropout() {
  const Case& c = case_;
  args().dropout.p = c.p_drop;
  args().dropout.seed = c.drop_seed;
  args().dropout.offset = c.drop_offset;
  if (!c.drop_state) return;
  args().dropout.state = add("dropout_state", DataType::i64, Shape::dense({2}, 0));
  void* const state = inputs_["dropout_state"].data();
  core::store_raw(state, 0, static_cast<std::int64_t>(c.drop_seed));
  core::store_raw(state, 1, static_cast<std::int64_t>(c.drop_offset));
  // Whoever reads these two instead makes another pattern.
  args().dropout.seed = ~c.drop_seed;
  args().dropout.offset = ~c.drop_offset;
}

// ---- q, k, v, o ----

void Buffers::make_operands(Executor& executor) {
  const Case& c = case_;
  const Shape q = operand_shape(c, Operand::q), k = operand_shape(c, Operand::k), v = operand_shape(c, Operand::v);
  // Where there are no elements all of them begin where the memory does.
  const std::int64_t next_q = packed_step(c, Operand::q), next_k = packed_step(c, Operand::k);
  const auto absurd = [&](Shape shape) {
    if (c.absurd_strides) shape.make_absurd();
    return shape;
  };
  if (c.packing == Packing::qkv) {
    auto& buffer = inputs_["qkv"] = GuardedBuffer(c.type, q.span() + 2 * next_q, c.align);
    args().q = view_of(buffer, absurd(q), 0);
    args().k = view_of(buffer, absurd(k), next_q);
    args().v = view_of(buffer, absurd(v), 2 * next_q);
  } else {
    args().q = view_of(inputs_["q"] = GuardedBuffer(c.type, q.span(), c.align), absurd(q), 0);
    if (c.packing == Packing::kv) {
      auto& buffer = inputs_["kv"] = GuardedBuffer(c.type, k.span() + next_k, c.align);
      args().k = view_of(buffer, absurd(k), 0);
      args().v = view_of(buffer, absurd(v), next_k);
    } else {
      args().k = view_of(inputs_["k"] = GuardedBuffer(c.type, k.span(), c.align), absurd(k), 0);
      args().v = view_of(inputs_["v"] = GuardedBuffer(c.type, v.span(), c.align), absurd(v), 0);
    }
  }
  const Data data(c);
  const auto logical_q = [&](std::int64_t e) { return c.logical_q(e); };
  const auto logical_k = [&](std::int64_t e) { return c.logical_k(e); };
  fill_rows(data, &Data::q_row, {args().q, c.b, c.h, c.d, start_q_, logical_q}, executor);
  fill_rows(data, &Data::k_row, {args().k, c.b, c.h_k, c.d, start_k_, logical_k}, executor);
  fill_rows(data, &Data::v_row, {args().v, c.b, c.h_k, c.d_v, start_k_, logical_k}, executor);
}

}  // namespace heed::verify
