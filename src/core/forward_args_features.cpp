#include "core/forward_args.hpp"
#include "core/invalid.hpp"

namespace heed::core {
namespace {

/// A size that something over the score matrix may have, with its name for messages.
struct ScoreDim {
  std::string_view name;
  std::int64_t size;
  bool longer_is_fine;  ///< in group mode one table serves sequences of many lengths
};
using ScoreShape = std::array<ScoreDim, 4>;

ScoreShape score_shape(const Problem& p) {
  const bool group = p.mode() == Mode::group;
  return {{{"b", p.batch(), false},
           {"h", p.heads_q(), false},
           {group ? "longest s_q" : "s_q", p.s_q(), group},
           {group ? "longest s_k" : "s_k", p.s_k(), group}}};
}

bool fits(const ScoreDim& full, std::int64_t size) {
  return size == full.size || (full.longer_is_fine && size > full.size);
}

/// NumPy's rule: dimensions aligned from the right, each full, or 1, or missing.
Broadcast read_broadcast(std::string_view name, const TensorView& view, const ScoreShape& full) {
  std::array<bool, 4> own{};
  for (int i = 0; i < view.rank; ++i) {
    const auto at = static_cast<std::size_t>(4 - view.rank + i);
    const std::int64_t size = view.size(i);
    own[at] = size != 1;
    if (size == 1 || fits(full[at], size)) continue;
    throw invalid("{} is {}: size {} must be 1 or {}{} = {} (sizes are aligned from the right to {}, {}, {}, {}).",
                  name, shape_text(view), size, full[at].longer_is_fine ? "at least the " : "", full[at].name,
                  full[at].size, full[0].name, full[1].name, full[2].name, full[3].name);
  }
  return {own[0], own[1], own[2], own[3]};
}

void read_bias(const ForwardArgs& args, Problem& problem) {
  if (!args.bias.given()) return;
  problem.bias(BiasSpec{args.bias.type, read_broadcast("bias", args.bias, score_shape(problem))});
}

void read_bool_mask(const ForwardArgs& args, Problem& problem) {
  if (!args.bool_mask.given()) return;
  check_type("bool_mask", args.bool_mask, {DataType::u8});
  problem.bool_mask(read_broadcast("bool_mask", args.bool_mask, score_shape(problem)));
}

void read_block_mask(const ForwardArgs& args, Problem& problem) {
  const auto& [keep, block_q, block_k] = args.block_mask;
  if (!keep.given()) {
    if (block_q != 0 || block_k != 0)
      throw invalid("block_mask: blocks of {} x {} but no keep: give keep, or leave out the block sizes.", block_q,
                    block_k);
    return;
  }
  if (block_q < 1 || block_k < 1)
    throw invalid("block_mask: blocks of {} x {}: block_q and block_k must be 1 or more.", block_q, block_k);
  check_type("block_mask.keep", keep, {DataType::u8});
  ScoreShape full = score_shape(problem);
  const bool group = problem.mode() == Mode::group;
  // Without the sum that (s + block - 1) / block makes, which could overflow.
  full[2] = {group ? "longest ceil(s_q / block_q)" : "ceil(s_q / block_q)",
             problem.s_q() / block_q + (problem.s_q() % block_q != 0 ? 1 : 0), group};
  full[3] = {group ? "longest ceil(s_k / block_k)" : "ceil(s_k / block_k)",
             problem.s_k() / block_k + (problem.s_k() % block_k != 0 ? 1 : 0), group};
  problem.block_mask(BlockMaskSpec{block_q, block_k, read_broadcast("block_mask.keep", keep, full)});
}

void read_alibi(const ForwardArgs& args, Problem& problem) {
  const TensorView& slopes = args.alibi_slopes;
  if (!slopes.given()) return;
  check_type("alibi_slopes", slopes, {DataType::f32});
  if (slopes.rank > 2) throw invalid("alibi_slopes is {}: it must be [h] or [b, h].", shape_text(slopes));
  if (slopes.rank == 2) check_dim("alibi_slopes", slopes, 0, problem.batch(), "batch b (or leave this dimension out)");
  check_dim("alibi_slopes", slopes, slopes.rank - 1, problem.heads_q(), "heads h of q");
  problem.alibi(slopes.rank == 1 ? Alibi::per_head : Alibi::per_batch_and_head);
}

void read_sink(const ForwardArgs& args, Problem& problem) {
  if (!args.sink.given()) return;
  check_type("sink", args.sink, {DataType::f32});
  check_rank("sink", args.sink, 1, "[h]");
  check_dim("sink", args.sink, 0, problem.heads_q(), "heads h of q");
  problem.sink(true);
}

void read_lse(const ForwardArgs& args, Problem& problem) {
  if (!args.lse.given()) return;
  // f64 is what the oracle writes; it writes both its outputs so, or o would say nothing about the lse to an engine.
  if (args.lse.type == DataType::f64 && args.o.type != DataType::f64)
    throw invalid("lse is f64 where o is {}: lse is f32 (f64 only from the oracle, with o of f64).", name(args.o.type));
  check_type("lse", args.lse, {DataType::f32, DataType::f64});
  if (problem.mode() == Mode::batch) {
    check_rank("lse", args.lse, 3, "[b, h, s_q]");
    check_dim("lse", args.lse, 0, problem.batch(), "batch b of q");
    check_dim("lse", args.lse, 1, problem.heads_q(), "heads h of q");
    check_dim("lse", args.lse, 2, problem.s_q(), "rows s_q of q");
  } else {
    check_rank("lse", args.lse, 2, "[h, total_q]");
    check_dim("lse", args.lse, 0, problem.heads_q(), "heads h of q");
    check_dim("lse", args.lse, 1, problem.total_q(), "rows total_q of q");
  }
  if (problem.operation() == Operation::forward) check_separate("lse", args.lse);
  problem.lse(true);
}

void read_dropout(const ForwardArgs& args, Problem& problem) {
  problem.dropout(args.dropout.p);
  if (args.dropout.state.given()) {
    check_type("dropout.state", args.dropout.state, {DataType::i64});
    check_rank("dropout.state", args.dropout.state, 1, "[2]: seed and offset");
    check_dim("dropout.state", args.dropout.state, 0, 2, "seed and the offset");
  }
  const TensorView randval = args.dropout.randval;
  if (!randval.given()) return;
  check_type("dropout.randval", randval, {DataType::u16});
  check_rank("dropout.randval", randval, 4, "[b, h, s_q, s_k]");
  const ScoreShape full = score_shape(problem);
  for (int i = 0; i < 4; ++i) {
    const ScoreDim& dim = full[static_cast<std::size_t>(i)];
    if (!fits(dim, randval.size(i)))
      throw invalid("dropout.randval is {}: size {} must be {}{} = {}.", shape_text(randval), randval.size(i),
                    dim.longer_is_fine ? "at least the " : "", dim.name, dim.size);
  }
  check_separate("dropout.randval", randval);
  problem.randval(true);
}

}  // namespace

void read_features(const ForwardArgs& args, Problem& problem) {
  problem.mask(args.mask).scale(args.scale).soft_cap(args.soft_cap);
  read_bias(args, problem);
  read_bool_mask(args, problem);
  read_block_mask(args, problem);
  read_alibi(args, problem);
  read_sink(args, problem);
  read_lse(args, problem);
  read_dropout(args, problem);
}

}  // namespace heed::core
