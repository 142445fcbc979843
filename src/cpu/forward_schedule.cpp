#include "cpu/forward_schedule.hpp"

#include "core/ceil_div.hpp"

#include <algorithm>

namespace heed::cpu {

namespace {

using core::ceil_div;

constexpr std::int64_t kSmallestSplit = 1024;  // keys: below this a piece costs more to merge than it saves

/// Keys are split when one strip holds all rows that share them: there is nothing else to share out.
std::int64_t split_size(std::int64_t s_k) {
  return std::max(kSmallestSplit, ceil_div(ceil_div(s_k, kMaxSplits), kKeyBlock) * kKeyBlock);
}

}  // namespace

SequencePlan plan_sequence(const ScheduleTraits& traits, std::int64_t heads_q, std::int64_t heads_k, std::int64_t s_q,
                           std::int64_t s_k, std::int64_t strips) {
  SequencePlan plan;
  if (s_q == 0 || heads_q == 0) return plan;
  const std::int64_t group = heads_q / heads_k;
  plan.use_rows_kernel = s_q * group <= traits.max_rows;
  // A query shorter than half a strip leaves lanes empty, which the other heads of its group can fill.
  plan.heads_together = plan.use_rows_kernel || (group > 1 && 2 * s_q < traits.strip);
  plan.units = plan.heads_together ? heads_k : heads_q;
  plan.rows = plan.heads_together ? s_q * group : s_q;
  plan.rows_per_tile = plan.use_rows_kernel ? plan.rows : traits.strip * strips;
  plan.tiles = ceil_div(plan.rows, plan.rows_per_tile);
  plan.keys_per_split = s_k;
  if (plan.rows <= traits.strip && s_k > split_size(s_k)) {
    plan.keys_per_split = split_size(s_k);
    plan.splits = ceil_div(s_k, plan.keys_per_split);
  }
  return plan;
}

std::int64_t strips_per_tile(const Problem& problem, const ScheduleTraits& traits, int threads) {
  // Q, O, K and V of a tile should leave half of a second-level cache of 1 MiB to the scores and the neighbours.
  constexpr std::int64_t kCacheFloats = 192 * 1024;
  const auto fits = [&](std::int64_t strips) {
    return strips * traits.strip * (problem.d() + problem.d_v()) + kKeyBlock * (problem.d() + 2 * problem.d_v()) <=
           kCacheFloats;
  };
  // Time of the last thread to end, each tile packing once for its strips: its share of the tiles, and what it waits
  // for the others, half a tile where tiles differ and next to nothing where they are alike.
  const double waiting = 0.25 * (1 - 1.0 / threads);
  const double columns = static_cast<double>(problem.batch() * problem.heads_q());
  const auto time = [&](std::int64_t strips) {
    const double tiles = columns * static_cast<double>(ceil_div(problem.s_q(), strips * traits.strip));
    return (tiles / threads + waiting) * (static_cast<double>(strips) + traits.packing);
  };
  std::int64_t best = 1;
  for (std::int64_t strips = 2; strips <= traits.most_strips && fits(strips); strips *= 2)
    if (time(strips) < time(best)) best = strips;
  return best;
}

std::int64_t most_partial_rows(const Problem& problem, const ScheduleTraits& traits) {
  if (problem.s_k() <= split_size(problem.s_k()) || problem.heads_k() == 0) return 0;
  if (problem.mode() == Mode::batch && !problem.logical_q() && !problem.logical_k())  // all sequences are alike
    return problem.batch() *
           plan_sequence(traits, problem.heads_q(), problem.heads_k(), problem.s_q(), problem.s_k(), 1).partial_rows();
  const std::int64_t group = problem.heads_q() / problem.heads_k();
  std::int64_t rows = problem.batch() * std::min<std::int64_t>(problem.s_q() * group,
                                                               std::max<std::int64_t>(traits.strip, traits.max_rows));
  if (problem.mode() == Mode::group) rows = std::min(rows, problem.total_q() * group);
  // One query head at a time holds at most a strip as well: the bound is the same with heads apart.
  const std::int64_t apart = problem.batch() * std::min<std::int64_t>(problem.s_q(), traits.strip) * group;
  return std::max(rows, apart) * problem.heads_k() * kMaxSplits;
}

}  // namespace heed::cpu
