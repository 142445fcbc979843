#include "verify/operand_shape.hpp"

namespace heed::verify {
namespace {

Layout layout_of(const Case& c, Operand which) {
  const Operand shape = shape_of(which);
  const Layout layout = shape == Operand::q   ? c.q_layout
                        : shape == Operand::k ? c.k_layout
                        : shape == Operand::v ? c.v_layout
                                              : c.o_layout;
  if (which == Operand::d_o) return c.d_o_layout.value_or(layout);
  return which >= Operand::dq ? c.grad_layout.value_or(layout) : layout;
}

/// How many tensors lie side by side between one sequence step and the next.
std::int64_t side_by_side(const Case& c, Operand which) {
  const Operand shape = shape_of(which);
  if (packing_of(c, which) == Packing::qkv && shape != Operand::o) return 3;
  return packing_of(c, which) == Packing::kv && (shape == Operand::k || shape == Operand::v) ? 2 : 1;
}

bool has_zero_stride(const ZeroStride& zero, Operand which) {
  switch (zero.tensor) {
    case ZeroStride::Tensor::q:
      return which == Operand::q;
    case ZeroStride::Tensor::k:
      return which == Operand::k;
    case ZeroStride::Tensor::v:
      return which == Operand::v;
    case ZeroStride::Tensor::d_o:
      return which == Operand::d_o;
    default:
      return false;
  }
}

}  // namespace

Packing packing_of(const Case& c, Operand which) {
  return which >= Operand::dq && c.grad_layout ? Packing::none : c.packing;
}

Shape operand_shape(const Case& c, Operand which) {
  const Operand like = shape_of(which);
  const bool of_q = like == Operand::q || like == Operand::o;
  const std::int64_t rows = c.group() ? (of_q ? c.total_q() : c.total_k()) : (of_q ? c.s_q[0] : c.s_k[0]);
  const std::int64_t heads = of_q ? c.h : c.h_k, dim = like == Operand::q || like == Operand::k ? c.d : c.d_v;
  const std::int64_t packed = side_by_side(c, which), pitch = dim + c.row_gap, column = rows + c.row_gap;
  const bool heads_first = layout_of(c, which) == Layout::bhsd;
  Strides steps;
  if (which == Operand::v && c.v_column_major) {
    steps = heads_first ? Strides{heads * dim * column, 1, dim * column, column}
                        : Strides{heads * dim * column, 1, column, heads * column};
  } else if (heads_first && packed == 1) {
    steps = {heads * rows * pitch, pitch, rows * pitch, 1};
  } else {
    steps = {rows * packed * heads * pitch, packed * heads * pitch, pitch, 1};
  }
  for (const ZeroStride& zero : c.zero_strides)
    if (has_zero_stride(zero, which))
      (zero.dim == 'b' ? steps.batch : zero.dim == 's' ? steps.sequence : steps.head) = 0;

  Shape shape = c.group() ? Shape{{rows, heads, dim}, {steps.sequence, steps.head, steps.dim}}
                          : Shape{{c.b, rows, heads, dim}, {steps.batch, steps.sequence, steps.head, steps.dim}};
  for (const Reversed& each : c.reversed) {
    if (each.tensor != which || (c.group() && each.dim == 'b')) continue;
    const std::size_t batch_dims = c.group() ? 0 : 1;
    shape.reverse(each.dim == 'b' ? 0 : batch_dims + (each.dim == 's' ? 0 : 1));
  }
  return shape;
}

std::int64_t packed_step(const Case& c, Operand which) {
  if (operand_shape(c, which).span() == 0) return 0;
  const Operand like = shape_of(which);
  return (like == Operand::q || like == Operand::o ? c.h : c.h_k) * (c.d + c.row_gap);
}

}  // namespace heed::verify
