#include "cpu/backward_jobs.hpp"

#include "core/backward_args.hpp"

namespace heed::cpu {
namespace {

Element element(DataType type) {
  if (type == DataType::f32) return Element::f32;
  return type == DataType::f16 ? Element::f16 : Element::bf16;
}

Plane plane(const TensorView& view, std::int64_t offset, Strides steps, std::int64_t dim) {
  if (dim == 1) steps.dim = 1;  // a single column has no step; the kernels tell dense rows by a step of 1
  const auto* data = static_cast<const char*>(view.data);
  return {data == nullptr ? nullptr : data + offset * bits(view.type) / 8, steps.head, steps.sequence, steps.dim,
          element(view.type)};
}

}  // namespace

BackwardJobs::BackwardJobs(const dispatch::BackwardCall& call, std::int32_t stretch, float* delta)
    : problem_(call.problem),
      args_(call.args),
      forward_(core::forward_half(call.args)),
      forward_call_{call.problem, forward_, call.workspace, call.executor, call.threads, nullptr},
      forward_jobs_(forward_call_),
      stretch_(stretch),
      delta_(delta) {}

BackwardJob BackwardJobs::job(std::int64_t b, const core::Sequence& sequence, std::int64_t head) const {
  const std::int64_t kv_head = head / (problem_.heads_q() / problem_.heads_k());
  const auto at = [&](Operand which, const TensorView& view, std::int64_t row, std::int64_t h, std::int64_t dim) {
    const Strides s = problem_.strides(which);
    return plane(view, b * s.batch + row * s.sequence + h * s.head, s, dim);
  };
  BackwardJob job;
  job.forward = forward_jobs_.job(b, sequence, head, /*heads_together=*/false);
  job.d_o = at(Operand::d_o, args_.d_o, sequence.q_row, head, problem_.d_v());
  job.dq = at(Operand::dq, args_.dq, sequence.q_row, head, problem_.d());
  job.dk = at(Operand::dk, args_.dk, sequence.k_row, kv_head, problem_.d());
  job.dv = at(Operand::dv, args_.dv, sequence.k_row, kv_head, problem_.d_v());
  if (args_.d_lse.given()) {
    const core::LseStrides s = core::lse_strides(args_.d_lse);
    job.d_lse = static_cast<const float*>(args_.d_lse.data) + b * s.batch + head * s.head + sequence.q_row * s.row;
    job.d_lse_row = s.row;
  }
  const bool group = problem_.mode() == Mode::group;
  job.delta =
      delta_ + (group ? head * problem_.total_q() + sequence.q_row : (b * problem_.heads_q() + head) * problem_.s_q());
  job.stretch = stretch_;
  job.dq_in_16_bits = problem_.accumulate() != DataType::f32;
  return job;
}

}  // namespace heed::cpu
