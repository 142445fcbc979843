#include "cpu/forward_jobs.hpp"

#include "core/dropout_state.hpp"
#include "core/soft_cap.hpp"

#include <heed/philox.hpp>

#include <algorithm>

namespace heed::cpu {

namespace {

Element element(DataType type) {
  if (type == DataType::f32) return Element::f32;
  return type == DataType::f16 ? Element::f16 : Element::bf16;
}

std::int64_t bytes_of(DataType type) { return bits(type) / 8; }

const void* advance(const TensorView& view, std::int64_t elements) {
  return view.data == nullptr ? nullptr : static_cast<const char*>(view.data) + elements * bytes_of(view.type);
}

template <class Strides>
Plane plane(const TensorView& view, std::int64_t offset, const Strides& strides) {
  return {advance(view, offset), strides.head, strides.sequence, strides.dim, element(view.type)};
}

core::ScoreStrides optional_strides(const TensorView& view) {
  return view.given() ? core::broadcast_strides(view) : core::ScoreStrides{};
}

}  // namespace

ForwardJobs::ForwardJobs(const dispatch::ForwardCall& call)
    : problem_(call.problem),
      args_(call.args),
      sequences_(call.args),
      q_(problem_.strides(Operand::q)),
      k_(problem_.strides(Operand::k)),
      v_(problem_.strides(Operand::v)),
      o_(problem_.strides(Operand::o)),
      bias_(optional_strides(args_.bias)),
      keep_(optional_strides(args_.bool_mask)),
      blocks_(optional_strides(args_.block_mask.keep)) {
  if (args_.lse.given()) lse_ = core::lse_strides(args_.lse);
  if (args_.alibi_slopes.given()) slopes_ = core::alibi_strides(args_.alibi_slopes);
  // A single column has no step; the kernels tell dense rows by a step of 1.
  if (problem_.d_v() == 1) v_.dim = 1;
  if (problem_.d() == 1) q_.dim = k_.dim = 1;
  if (problem_.d_v() == 1) o_.dim = 1;
}

ForwardJob ForwardJobs::job(std::int64_t b, const core::Sequence& sequence, std::int64_t unit,
                            bool heads_together) const {
  const std::int64_t group = problem_.heads_q() / problem_.heads_k();
  const std::int64_t head = heads_together ? unit * group : unit, kv_head = heads_together ? unit : unit / group;
  const auto rows_at = [&](const Strides& s, std::int64_t row, std::int64_t h) {
    return b * s.batch + row * s.sequence + h * s.head;
  };
  ForwardJob job;
  job.q = plane(args_.q, rows_at(q_, sequence.q_row, head), q_);
  job.k = plane(args_.k, rows_at(k_, sequence.k_row, kv_head), k_);
  job.v = plane(args_.v, rows_at(v_, sequence.k_row, kv_head), v_);
  job.o = plane(args_.o, rows_at(o_, sequence.q_row, head), o_);
  job.heads = heads_together ? static_cast<std::int32_t>(group) : 1;
  job.s_q = static_cast<std::int32_t>(sequence.s_q);
  job.s_k = static_cast<std::int32_t>(sequence.s_k);
  job.d = static_cast<std::int32_t>(problem_.d());
  job.d_v = static_cast<std::int32_t>(problem_.d_v());
  if (args_.lse.given()) {
    job.lse = static_cast<float*>(args_.lse.data) + b * lse_.batch + head * lse_.head + sequence.q_row * lse_.row;
    job.lse_head = lse_.head;
    job.lse_row = lse_.row;
  }

  const MaskBounds bounds = problem_.mask().bounds(sequence.s_q, sequence.s_k);
  job.mask_y = bounds.y;
  job.mask_x = bounds.x;
  job.mask_sink = bounds.sink;
  job.scale = static_cast<float>(problem_.scale());
  if (problem_.soft_cap() > 0) job.soft_cap = core::soft_cap_in_f32(problem_.soft_cap());

  if (args_.bias.given())
    job.bias = {advance(args_.bias, bias_.at(b, head, 0, 0)), bias_.head, bias_.query, bias_.key,
                element(args_.bias.type)};
  if (args_.alibi_slopes.given()) {
    job.slopes = advance(args_.alibi_slopes, b * slopes_.batch + head * slopes_.head);
    job.slope_head = slopes_.head;
  }
  if (args_.sink.given()) {
    job.sinks = advance(args_.sink, head * args_.sink.stride(0));
    job.sink_head = args_.sink.stride(0);
  }
  if (args_.bool_mask.given()) {
    job.keep = static_cast<const std::uint8_t*>(args_.bool_mask.data) + keep_.at(b, head, 0, 0);
    job.keep_head = keep_.head;
    job.keep_row = keep_.query;
    job.keep_column = keep_.key;
  }
  if (args_.block_mask.keep.given()) {
    job.blocks = static_cast<const std::uint8_t*>(args_.block_mask.keep.data) + blocks_.at(b, head, 0, 0);
    job.blocks_head = blocks_.head;
    job.blocks_row = blocks_.query;
    job.blocks_column = blocks_.key;
    constexpr std::int64_t kWholeRow = 1 << 30;  // larger blocks than any length here: one block
    job.block_q = static_cast<std::int32_t>(std::min(args_.block_mask.block_q, kWholeRow));
    job.block_k = static_cast<std::int32_t>(std::min(args_.block_mask.block_k, kWholeRow));
  }

  const Dropout dropout = core::with_state_read(args_.dropout);
  if (dropout.p > 0) {
    job.drop = true;
    job.drop_threshold = dropout_threshold(dropout.p);
    job.drop_scale = static_cast<float>(1.0 / (1.0 - dropout.p));
    job.drop_key[0] = static_cast<std::uint32_t>(dropout.seed);
    job.drop_key[1] = static_cast<std::uint32_t>(dropout.seed >> 32) ^ static_cast<std::uint32_t>(dropout.offset >> 32);
    job.drop_offset = static_cast<std::uint32_t>(dropout.offset);
    job.drop_head = static_cast<std::uint32_t>(b * problem_.heads_q() + head);
  }
  return job;
}

}  // namespace heed::cpu
