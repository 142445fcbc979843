/// The part of Buffers that makes what is optional, and the outputs.

#include "core/ceil_div.hpp"
#include "core/float_bits.hpp"
#include "core/sequences.hpp"
#include "verify/buffers.hpp"
#include "verify/data.hpp"
#include "verify/operand_shape.hpp"
#include "verify/random.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <span>

namespace heed::verify {
namespace {

using core::ceil_div;

/// A tensor over the score matrix: which dimensions have memory of their own.
struct ScoreTensor {
  Shape shape;
  Broadcast own;
};

ScoreTensor score_tensor(const Case& c, Broadcast own, std::int64_t queries, std::int64_t keys,
                         std::optional<ZeroStride::Tensor> tensor) {
  ScoreTensor result{
      Shape::dense({own.batch ? c.b : 1, own.head ? c.h : 1, own.query ? queries : 1, own.key ? keys : 1}, c.row_gap),
      own};
  constexpr std::string_view kDims = "bhqk";
  for (const ZeroStride& zero : c.zero_strides) {
    if (zero.tensor != tensor) continue;
    const std::size_t dim = kDims.find(zero.dim);
    result.shape.strides[dim] = 0;
    bool* const flags[] = {&result.own.batch, &result.own.head, &result.own.query, &result.own.key};
    *flags[dim] = false;
  }
  return result;
}

/// How the view looks to the callee, once the memory is there.
Shape disguised(const Case& c, Shape shape) {
  if (c.absurd_strides) shape.make_absurd();
  while (c.squeeze && shape.sizes.size() > 1 && shape.sizes[0] == 1) {
    shape.sizes.erase(shape.sizes.begin());
    shape.strides.erase(shape.strides.begin());
  }
  return shape;
}

/// Calls f(b, h, i, offset, keys) for every row of the tensor that some sequence uses, with how many of its keys are
/// used. `block_q`, `block_k`: how many queries and keys one element stands for.
void for_each_row(const Case& c, const ScoreTensor& tensor, std::int64_t block_q, std::int64_t block_k,
                  const std::function<void(std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t)>& f) {
  const auto& own = tensor.own;
  const auto& strides = tensor.shape.strides;
  const std::int64_t rows = tensor.shape.sizes[2];
  // Keys in use of each row: of the entry's own sequence, or of all that share it.
  std::vector<std::int64_t> keys(static_cast<std::size_t>((own.batch ? c.b : 1) * rows), 0);
  for (std::int64_t b = 0; b < c.b; ++b)
    for (std::int64_t i = 0; i < ceil_div(c.logical_q(b), block_q); ++i) {
      std::int64_t& most = keys[static_cast<std::size_t>((own.batch ? b : 0) * rows + (own.query ? i : 0))];
      most = std::max(most, ceil_div(c.logical_k(b), block_k));
    }
  for (std::int64_t b = 0; b < (own.batch ? c.b : std::min<std::int64_t>(c.b, 1)); ++b)
    for (std::int64_t h = 0; h < (own.head ? c.h : std::min<std::int64_t>(c.h, 1)); ++h)
      for (std::int64_t i = 0; i < (own.query ? rows : 1); ++i) {
        std::int64_t used = rows == 0 ? 0 : keys[static_cast<std::size_t>(b * rows + i)];
        if (!own.key) used = std::min<std::int64_t>(used, 1);
        if (used > 0) f(b, h, i, b * strides[0] + h * strides[1] + i * strides[2], used);
      }
}

using MaskRow = void (Data::*)(std::int64_t, std::int64_t, std::int64_t, std::span<bool>) const;

void fill_mask(const Case& c, void* memory, const ScoreTensor& tensor, std::int64_t block_q, std::int64_t block_k,
               MaskRow mask_row) {
  const Data data(c);
  for_each_row(c, tensor, block_q, block_k,
               [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t offset, std::int64_t keys) {
                 const auto row = std::make_unique<bool[]>(static_cast<std::size_t>(keys));
                 (data.*mask_row)(b, h, i, {row.get(), static_cast<std::size_t>(keys)});
                 for (std::int64_t j = 0; j < keys; ++j) {
                   // Anything but zero is true.
                   const auto yes = static_cast<std::uint8_t>(1 + mix(static_cast<std::uint64_t>(offset + j)) % 255);
                   core::store_raw(memory, offset + j * tensor.shape.strides[3],
                                   row[static_cast<std::size_t>(j)] ? yes : std::uint8_t{0});
                 }
               });
}

std::vector<std::byte> all_bytes(const std::map<std::string, GuardedBuffer, std::less<>>& buffers) {
  std::vector<std::byte> bytes;
  for (const auto& [name, buffer] : buffers) {
    const auto raw = buffer.raw();
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  }
  return bytes;
}

}  // namespace

void Buffers::make_bias_and_masks() {
  const Case& c = case_;
  const std::int64_t s_q = c.table_q(), s_k = c.table_k();
  if (c.bias) {
    const ScoreTensor tensor = score_tensor(c, c.bias->shape, s_q, s_k, ZeroStride::Tensor::bias);
    const OutputView view = add("bias", c.bias->type, tensor.shape);
    const Data data(c);
    for_each_row(
        c, tensor, 1, 1, [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t offset, std::int64_t keys) {
          std::vector<float> row(static_cast<std::size_t>(keys));
          data.bias_row(b, h, i, row);
          for (std::int64_t j = 0; j < keys; ++j)
            core::store(view.data, view.type, offset + j * tensor.shape.strides[3], row[static_cast<std::size_t>(j)]);
        });
    args().bias = view_of(inputs_["bias"], disguised(c, tensor.shape), 0);
  }
  if (c.bool_mask) {
    const ScoreTensor tensor = score_tensor(c, *c.bool_mask, s_q, s_k, ZeroStride::Tensor::bool_mask);
    fill_mask(c, add("bool_mask", DataType::u8, tensor.shape).data, tensor, 1, 1, &Data::bool_mask_row);
    args().bool_mask = view_of(inputs_["bool_mask"], disguised(c, tensor.shape), 0);
  }
  if (c.block_mask) {
    const auto [block_q, block_k, own] = *c.block_mask;
    const ScoreTensor tensor = score_tensor(c, own, ceil_div(s_q, block_q), ceil_div(s_k, block_k), std::nullopt);
    fill_mask(c, add("block_mask", DataType::u8, tensor.shape).data, tensor, block_q, block_k, &Data::block_mask_row);
    args().block_mask = {view_of(inputs_["block_mask"], disguised(c, tensor.shape), 0), block_q, block_k};
  }
}

void Buffers::make_slopes_and_sinks() {
  const Case& c = case_;
  const Data data(c);
  if (c.alibi != Alibi::none) {
    const bool per_batch = c.alibi == Alibi::per_batch_and_head;
    const Shape shape = per_batch ? Shape::dense({c.b, c.h}, c.row_gap) : Shape::dense({c.h}, 0);
    const OutputView view = add("alibi_slopes", DataType::f32, shape);
    for (std::int64_t b = 0; b < (per_batch ? c.b : 1); ++b)
      for (std::int64_t h = 0; h < c.h; ++h)
        core::store(view.data, view.type, (per_batch ? b * shape.strides[0] : 0) + h, data.slope(b, h));
    args().alibi_slopes = view;
  }
  if (c.sink != SinkInit::none) {
    const OutputView view = add("sink", DataType::f32, Shape::dense({c.h}, 0));
    for (std::int64_t h = 0; h < c.h; ++h) core::store(view.data, view.type, h, data.sink(h));
    args().sink = view;
  }
}

/// The LSE lies as o does: [b, h, s_q], or [b, s_q, h] for bshd.
Shape Buffers::lse_shape() const {
  const Case& c = case_;
  const bool heads_last = c.o_layout == Layout::bshd;
  Shape lse = c.group() ? Shape::dense({c.h, c.total_q()}, c.row_gap) : Shape::dense({c.b, c.h, c.s_q[0]}, c.row_gap);
  if (heads_last && c.group()) lse.strides = {1, c.h + c.row_gap};
  if (heads_last && !c.group()) lse.strides = {c.s_q[0] * (c.h + c.row_gap), 1, c.h + c.row_gap};
  return lse;
}

void Buffers::make_outputs() {
  const Case& c = case_;
  const Shape o = operand_shape(c, Operand::o), lse = lse_shape();
  args().o = add("o", c.o_type(), o);
  if (c.lse || c.backward()) args().lse = add("lse", DataType::f32, lse);
  if (c.randval)
    args().dropout.randval =
        add("randval", DataType::u16, Shape::dense({c.b, c.h, c.table_q(), c.table_k()}, c.row_gap));
  if (!c.backward()) allow_outputs();
  if (!c.absurd_strides) return;
  for (const auto& [name, shape, view] : {std::tuple{"o", o, &args().o}, std::tuple{"lse", lse, &args().lse}}) {
    if (!view->given()) continue;
    Shape absurd = shape;
    absurd.make_absurd();
    *view = view_of((c.backward() ? inputs_ : outputs_)[name], absurd, 0);
  }
}

/// What the forward pass may write: the rows that count.
void Buffers::allow_outputs() {
  const Case& c = case_;
  GuardedBuffer& o_buffer = outputs_["o"];
  GuardedBuffer* const lse_buffer = c.lse ? &outputs_["lse"] : nullptr;
  GuardedBuffer* const randval_buffer = c.randval ? &outputs_["randval"] : nullptr;
  const Strides o_steps = core::strides_of(args().o);
  const std::int64_t o_first = operand_shape(c, Operand::o).first;
  const core::LseStrides lse_steps = core::lse_strides(args().lse);
  const core::ScoreStrides randval_steps = core::broadcast_strides(args().dropout.randval);
  for (std::int64_t b = 0; b < c.b; ++b)
    for (std::int64_t h = 0; h < c.h; ++h)
      for (std::int64_t i = 0; i < c.logical_q(b); ++i) {
        const std::int64_t row = start_q_[static_cast<std::size_t>(b)] + i;
        for (std::int64_t e = 0; e < c.d_v; ++e)
          o_buffer.allow(o_first + b * o_steps.batch + row * o_steps.sequence + h * o_steps.head + e * o_steps.dim);
        if (lse_buffer != nullptr) lse_buffer->allow(b * lse_steps.batch + h * lse_steps.head + row * lse_steps.row);
        if (randval_buffer == nullptr) continue;
        for (std::int64_t j = 0; j < c.logical_k(b); ++j) randval_buffer->allow(randval_steps.at(b, h, i, j));
      }
}

std::vector<std::span<std::byte>> Buffers::memory() const {
  std::vector<std::span<std::byte>> all;
  for (const auto* buffers : {&inputs_, &outputs_})
    for (const auto& [name, buffer] : *buffers) all.push_back(buffer.raw());
  return all;
}

void Buffers::clear_outputs() {
  for (auto& [name, buffer] : outputs_) buffer.clear();
}

void Buffers::remember_inputs() {
  for (auto& [name, buffer] : inputs_) buffer.take_snapshot();
}

std::vector<std::string> Buffers::check_guards() const {
  std::vector<std::string> changes;
  for (const auto* buffers : {&outputs_, &inputs_})
    for (const auto& [name, buffer] : *buffers)
      if (const std::string change = buffer.find_change(); !change.empty()) changes.push_back(name + " " + change);
  return changes;
}

bool Buffers::outputs_untouched() const {
  const std::vector<std::byte> bytes = output_bytes();
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte each) { return each == std::byte{0xFF}; });
}

std::vector<std::byte> Buffers::output_bytes() const { return all_bytes(outputs_); }

std::vector<std::byte> Buffers::input_bytes() const { return all_bytes(inputs_); }

}  // namespace heed::verify
