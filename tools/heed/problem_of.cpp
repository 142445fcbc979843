#include "heed/problem_of.hpp"

#include "heed/command.hpp"
#include "heed/machine.hpp"
#include "verify/operand_shape.hpp"

#include <fmt/format.h>

namespace heed::command {
namespace {

using verify::Case;
using verify::Packing;
using verify::SinkInit;

struct Extent {
  std::int64_t rows, heads, dim;
};

Extent extent_of(const Case& c, Operand operand) {
  const Operand which = shape_of(operand);
  const bool of_q = which == Operand::q || which == Operand::o;
  const std::int64_t rows = c.group() ? (of_q ? c.total_q() : c.total_k()) : (of_q ? c.s_q[0] : c.s_k[0]);
  return {rows, of_q ? c.h : c.h_k, which == Operand::q || which == Operand::k ? c.d : c.d_v};
}

Strides strides_of(const Case& c, Operand which) {
  const auto steps = verify::operand_shape(c, which).strides;
  if (c.group()) return {0, steps[0], steps[1], steps[2]};
  return {steps[0], steps[1], steps[2], steps[3]};
}

/// Where verify::Buffers lets it begin, in bytes behind a multiple of 64.
std::int64_t begin_of(const Case& c, Operand which) {
  const Operand shape = shape_of(which);
  const DataType type = shape == Operand::o ? c.o_type() : c.type;
  std::int64_t behind = 0;  // tensors in front of it in the same buffer
  if (verify::packing_of(c, which) == Packing::qkv && shape != Operand::o) behind = static_cast<int>(shape);
  if (verify::packing_of(c, which) == Packing::kv && shape == Operand::v) behind = 1;
  return (c.align + behind * verify::packed_step(c, which) + verify::operand_shape(c, which).first) * bits(type) / 8;
}

double elements_of(const Case& c, Operand which) {
  const auto [rows, heads, dim] = extent_of(c, which);
  return static_cast<double>(rows) * static_cast<double>(heads) * static_cast<double>(dim + c.row_gap) *
         static_cast<double>(c.group() ? 1 : c.b);
}

/// Of something with this shape over [b, h, s_q, s_k].
double elements_of(const Case& c, const Broadcast& shape) {
  return static_cast<double>(shape.batch ? c.b : 1) * static_cast<double>(shape.head ? c.h : 1) *
         static_cast<double>(shape.query ? c.table_q() : 1) * static_cast<double>(shape.key ? c.table_k() : 1);
}

/// The block mask as its view tells it: where one block spans all queries or keys it is a broadcast.
std::optional<BlockMaskSpec> block_mask_of(const Case& c, Memory memory) {
  std::optional<BlockMaskSpec> spec = c.block_mask;
  if (!spec) return spec;
  const auto one_block = [](std::int64_t length, std::int64_t block) { return length > 0 && length <= block; };
  spec->shape.query = spec->shape.query && !one_block(c.bound_q(memory) + c.table_more_q, spec->block_q);
  spec->shape.key = spec->shape.key && !one_block(c.bound_k(memory) + c.table_more_k, spec->block_k);
  return spec;
}

/// Inputs are kept twice, to see whether anything has changed them.
double bytes_needed(const Case& c) {
  const auto size = [](DataType type) { return bits(type) / 8.0; };
  double inputs = size(c.type) * (elements_of(c, Operand::q) + elements_of(c, Operand::k) + elements_of(c, Operand::v));
  if (c.bias) inputs += size(c.bias->type) * elements_of(c, c.bias->shape);
  if (c.bool_mask) inputs += elements_of(c, *c.bool_mask);
  double outputs = size(c.o_type()) * elements_of(c, Operand::o);
  if (c.randval) outputs += 2 * elements_of(c, Broadcast{true, true, true, true});
  if (c.backward()) {
    const double gradients = inputs;
    inputs += 2 * outputs;  // o and d_o
    outputs = gradients;
  }
  return 2 * inputs + outputs;
}

}  // namespace

Problem problem_of(const Case& c, Memory memory) {
  for (const Operand which : {Operand::q, Operand::k, Operand::v, Operand::o})
    if (elements_of(c, which) > 0x1p60)
      throw UsageError(fmt::format("a tensor of this problem has {:.3g} elements; at most 2^60 can be addressed.",
                                   elements_of(c, which)));
  Problem problem = c.backward() ? Problem::backward() : Problem::forward();
  problem.type(c.type).mode(c.mode).batch(c.b).heads(c.h, c.h_k).head_dims(c.d, c.d_v);
  if (c.output_type) problem.output_type(*c.output_type);
  if (c.group()) {
    problem.lengths(c.bound_q(memory), c.bound_k(memory)).total_rows(c.total_q(), c.total_k());
    problem.logical_lengths(!c.s_qpad.empty(), !c.s_kpad.empty());
  } else {
    problem.lengths(c.s_q[0], c.s_k[0]).logical_lengths(!c.q_eff_lens.empty(), !c.kv_eff_lens.empty());
  }
  for (const Operand which : problem.operands()) {
    problem.strides(which, strides_of(c, which));
    if (memory == Memory::gpu && begin_of(c, which) % 16 != 0) problem.aligned(false);
  }
  problem.mask(c.mask).bool_mask(c.bool_mask).block_mask(block_mask_of(c, memory)).bias(c.bias).alibi(c.alibi);
  problem.sink(c.sink != SinkInit::none).soft_cap(c.soft_cap).scale(c.scale).dropout(c.p_drop).randval(c.randval);
  if (c.backward()) {
    problem.d_lse(c.d_lse).dbias(c.dbias).dsink(c.dsink).dslopes(c.dslopes).deterministic(c.deterministic);
    if (c.dq_in_16_bits) problem.accumulate(c.type);
  }
  return problem.lse(c.lse || c.backward()).math(c.math);
}

void require_memory(const Case& c, const Problem& problem) {
  const double needed = bytes_needed(c), available = free_memory();
  if (needed <= available) return;
  throw UnsupportedError(
      fmt::format("not supported here: {} : its tensors, and a copy of the inputs to see that nothing changes "
                  "them, need {}; {} are free. 'heed explain' answers without them.",
                  problem.to_string(), bytes_text(needed), bytes_text(available)));
}

}  // namespace heed::command
