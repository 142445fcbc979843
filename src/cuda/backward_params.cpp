#include "cuda/backward_params.hpp"

#include "core/backward_args.hpp"
#include "core/ceil_div.hpp"
#include "core/sequences.hpp"
#include "cuda/engine_state.hpp"
#include "cuda/forward_params.hpp"

namespace heed::cuda {
namespace {

using kernels::Steps;

/// Lines of the second-level cache and what bulk copies like best, where the workspace itself begins at one.
constexpr std::size_t kAlignment = 256;

Steps steps(const Strides& s) { return {s.batch, s.head, s.sequence, s.dim}; }

/// The size of a bias along (batch, head, query, key): dimensions are aligned from the right, missing ones have size 1.
int bias_size(const TensorView& view, int dimension) {
  const int at = dimension - (4 - view.rank);
  return at < 0 ? 1 : static_cast<int>(view.size(at));
}

}  // namespace

std::int64_t packed_row_space(const Problem& problem) {
  constexpr std::int64_t kRows = 16;
  if (problem.mode() == Mode::group) return kRows * (problem.total_q() / kRows + problem.batch());
  return kRows * problem.batch() * core::ceil_div(problem.s_q(), kRows);
}

BackwardWorkspace divide_workspace(const Problem& problem, const BackwardWorkspaceNeeds& needs) {
  BackwardWorkspace w{.row_space = needs.row_space, .bytes = needs.begin};
  const auto take = [&](std::int64_t words) {
    const std::size_t at = (w.bytes + kAlignment - 1) / kAlignment * kAlignment;
    w.bytes = at + static_cast<std::size_t>(words) * sizeof(float);
    return at;
  };
  const std::int64_t rows = problem.heads_q() * needs.row_space;
  w.row_lse = take(rows);
  w.row_dot = take(rows);
  w.row_part = take(needs.row_parts && (problem.dsink() || problem.dslopes()) ? 2 * rows : 0);
  w.dq_sum = take(needs.dq_sum_floats);
  w.turns = take(needs.turns);
  w.key_sum = take(needs.key_sum_floats);
  w.d_bias_part = take(needs.d_bias_floats);
  return w;
}

kernels::BackwardParams backward_params(const dispatch::BackwardCall& call, const BackwardWorkspace& workspace) {
  const Problem& problem = call.problem;
  const BackwardArgs& args = call.args;
  kernels::BackwardParams p{};
  p.forward = forward_params({.problem = problem,
                              .args = args.forward,
                              .workspace = call.workspace,
                              .executor = call.executor,
                              .threads = call.threads,
                              .prepared = call.prepared,
                              .stream = call.stream});
  if (problem.heads_q() == 0) {  // nobody sees the keys: as if a head of its own saw each of them, without rows
    p.forward.heads = static_cast<int>(problem.heads_k());
    p.forward.group = 1;
    p.forward.s_q = p.forward.longest_q = 0;
  }

  p.d_o = args.d_o.data;
  p.dq = args.dq.data;
  p.dk = args.dk.data;
  p.dv = args.dv.data;
  p.d_o_steps = steps(problem.strides(Operand::d_o));
  p.dq_steps = steps(problem.strides(Operand::dq));
  p.dk_steps = steps(problem.strides(Operand::dk));
  p.dv_steps = steps(problem.strides(Operand::dv));
  if (args.d_lse.given()) {
    const core::LseStrides d_lse = core::lse_strides(args.d_lse);
    p.d_lse = static_cast<const float*>(args.d_lse.data);
    p.d_lse_steps = {d_lse.batch, d_lse.head, d_lse.row, 0};
  }

  if (args.dbias.given()) {
    const core::ScoreStrides s = core::broadcast_strides(args.dbias);
    p.d_bias = args.dbias.data;
    p.d_bias_steps = {s.batch, s.head, s.query, s.key};
    p.d_bias_batch = bias_size(args.dbias, 0);
    p.d_bias_heads = bias_size(args.dbias, 1);
    p.d_bias_rows = bias_size(args.dbias, 2);
    p.d_bias_columns = bias_size(args.dbias, 3);
    p.d_bias_parts = 1;
  }
  if (args.dslopes.given()) {
    const core::SlopeStrides s = core::alibi_strides(args.dslopes);
    p.d_slopes = static_cast<float*>(args.dslopes.data);
    p.d_slope_steps = {s.batch, s.head, 0, 0};
  }
  if (args.dsink.given()) {
    p.d_sink = static_cast<float*>(args.dsink.data);
    p.d_sink_step = args.dsink.stride(0);
  }

  const auto at = [&](std::size_t offset) { return reinterpret_cast<float*>(call.workspace.data() + offset); };
  p.row_space = workspace.row_space;
  p.row_lse = at(workspace.row_lse);
  p.row_dot = at(workspace.row_dot);
  p.row_part = at(workspace.row_part);
  p.dq_sum = at(workspace.dq_sum);
  p.turns = reinterpret_cast<unsigned*>(at(workspace.turns));
  p.key_sum = at(workspace.key_sum);
  p.d_bias_part = at(workspace.d_bias_part);
  return p;
}

}  // namespace heed::cuda
