/// The part of Buffers that makes what a backward case has beyond a forward one.

#include "core/float_bits.hpp"
#include "core/sequences.hpp"
#include "verify/buffers.hpp"
#include "verify/fill_rows.hpp"
#include "verify/operand_shape.hpp"

#include <heed/executor.hpp>

namespace heed::verify {
namespace {

void allow_all(GuardedBuffer& buffer, const TensorView& view) {
  const auto size = [&](int dim) { return dim < view.rank ? view.size(dim) : 1; };
  const auto step = [&](int dim) { return dim < view.rank ? view.stride(dim) : 0; };
  for (std::int64_t a = 0; a < size(0); ++a)
    for (std::int64_t b = 0; b < size(1); ++b)
      for (std::int64_t c = 0; c < size(2); ++c)
        for (std::int64_t d = 0; d < size(3); ++d) buffer.allow(a * step(0) + b * step(1) + c * step(2) + d * step(3));
}

}  // namespace

/// o and lse as the CPU engine leaves them: whatever they are, gradients are judged by what follows from them.
void Buffers::run_forward(Executor& executor) {
  heed::forward(args(), {.engine = EngineChoice::cpu, .executor = &executor});
}

void Buffers::make_incoming_gradients(Executor& executor) {
  const Case& c = case_;
  const Data data(c);
  const auto absurd = [&](Shape shape) {
    if (c.absurd_strides) shape.make_absurd();
    return shape;
  };
  const Shape d_o = operand_shape(c, Operand::d_o);
  backward_.d_o = add("d_o", c.o_type(), d_o);
  fill_rows(data, &Data::d_o_row,
            {backward_.d_o, c.b, c.h, c.d_v, start_q_, [&](std::int64_t e) { return c.logical_q(e); }}, executor);
  backward_.d_o = view_of(inputs_["d_o"], absurd(d_o), 0);
  if (!c.d_lse) return;
  const Shape d_lse = lse_shape();
  const OutputView view = add("d_lse", DataType::f32, d_lse);
  const core::LseStrides steps = core::lse_strides(view);
  for (std::int64_t b = 0; b < c.b; ++b)
    for (std::int64_t h = 0; h < c.h; ++h)
      for (std::int64_t i = 0; i < c.logical_q(b); ++i) {
        const std::int64_t row = start_q_[static_cast<std::size_t>(b)] + i;
        core::store(view.data, view.type, b * steps.batch + h * steps.head + row * steps.row, data.d_lse(b, h, i));
      }
  backward_.d_lse = view_of(inputs_["d_lse"], absurd(d_lse), 0);
}

/// Where the gradients go. Those of packed tensors are packed, too, unless they have a layout of their own; what
/// nobody may write between them stays under guard.
void Buffers::make_gradients() {
  const Case& c = case_;
  const Shape q = operand_shape(c, Operand::dq), k = operand_shape(c, Operand::dk), v = operand_shape(c, Operand::dv);
  const std::int64_t next_q = packed_step(c, Operand::dq), next_k = packed_step(c, Operand::dk);
  const Packing packing = packing_of(c, Operand::dq);
  struct Place {
    GuardedBuffer* buffer;
    std::int64_t first;
  };
  Place dq, dk, dv;
  if (packing == Packing::qkv) {
    auto& all = outputs_["dqkv"] = GuardedBuffer(c.type, q.span() + 2 * next_q, c.align);
    dq = {&all, 0}, dk = {&all, next_q}, dv = {&all, 2 * next_q};
  } else {
    dq = {&(outputs_["dq"] = GuardedBuffer(c.type, q.span(), c.align)), 0};
    if (packing == Packing::kv) {
      auto& both = outputs_["dkv"] = GuardedBuffer(c.type, k.span() + next_k, c.align);
      dk = {&both, 0}, dv = {&both, next_k};
    } else {
      dk = {&(outputs_["dk"] = GuardedBuffer(c.type, k.span(), c.align)), 0};
      dv = {&(outputs_["dv"] = GuardedBuffer(c.type, v.span(), c.align)), 0};
    }
  }
  const auto make = [&](OutputView& view, const Place& place, const Shape& shape, bool of_q) {
    view = view_of(*place.buffer, shape, place.first);
    const Strides steps = core::strides_of(view);
    const std::int64_t heads = of_q ? c.h : c.h_k, dim = shape.sizes.back();
    for (std::int64_t b = 0; b < c.b; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < (of_q ? c.logical_q(b) : c.logical_k(b)); ++i) {
          const std::int64_t row = (of_q ? start_q_ : start_k_)[static_cast<std::size_t>(b)] + i;
          for (std::int64_t e = 0; e < dim; ++e)
            place.buffer->allow(place.first + shape.first + b * steps.batch + row * steps.sequence + h * steps.head +
                                e);
        }
    Shape told = shape;
    if (c.absurd_strides) told.make_absurd();
    view = view_of(*place.buffer, told, place.first);
  };
  make(backward_.dq, dq, q, true);
  make(backward_.dk, dk, k, false);
  make(backward_.dv, dv, v, false);

  // Dense, of the sizes of what they are gradients of, and written whole.
  const auto whole = [&](std::string_view name, DataType type, const TensorView& like) {
    const auto rank = static_cast<std::size_t>(like.rank);
    const std::vector<std::int64_t> sizes(like.sizes.begin(), like.sizes.begin() + static_cast<std::ptrdiff_t>(rank));
    const OutputView view = add(name, type, Shape::dense(sizes, c.row_gap));
    allow_all(outputs_.find(name)->second, view);
    return view;
  };
  if (c.dbias) backward_.dbias = whole("dbias", *c.dbias, args().bias);
  if (c.dsink) backward_.dsink = whole("dsink", DataType::f32, args().sink);
  if (c.dslopes) backward_.dslopes = whole("dslopes", DataType::f32, args().alibi_slopes);
  if (c.dq_in_16_bits) backward_.dq_accumulation = c.type;
  backward_.deterministic = c.deterministic;
}

}  // namespace heed::verify
