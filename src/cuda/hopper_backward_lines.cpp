#include "cuda/hopper_backward_lines.hpp"

#include "core/invalid.hpp"
#include "cuda/forward_params.hpp"
#include "cuda/kept_text.hpp"
#include "cuda/lines_of_entries.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace heed::cuda {
namespace {

using dispatch::BackwardSignature;
using dispatch::Feature;
using dispatch::MaskClass;
using kernels::HopperBackwardConfig;

HopperBackwardLine turned(const HopperBackwardLine& base, const HopperBackwardAlgo& algo) {
  HopperBackwardLine line = base;
  line.choice = algo.applied_to(base.choice);
  line.foreign = kept(foreign_knob(line.choice, algo));
  return line;
}

/// Whether the dS of a block is a block of dBias: nobody shares an entry of the bias, so that nothing is left to sum,
/// and a row is whole chunks of sixteen bytes. It lies where TMA can write it only if its memory does, too: can_map().
bool has_dbias_of_its_own(const HopperBackwardConfig& config, const Problem& problem) {
  constexpr std::int64_t kKeys = 8;
  if (!config.bias_copied() || problem.dbias() != problem.type() || problem.s_k() % kKeys != 0) return false;
  const kernels::ForwardFeatures& f = config.features;
  if (f.own_lengths || f.bit_masks() || f.soft_cap || f.alibi || f.dropout) return false;
  const Broadcast shape = problem.bias()->shape;
  return (shape.batch || problem.batch() == 1) && (shape.head || problem.heads_q() == 1) &&
         (shape.query || problem.s_q() == 1) && shape.key;
}

/// Its notes end with every knob.
HopperBackwardLine with_knobs_told(HopperBackwardLine line) {
  line.spec.algorithm.tile_q = std::visit([](const auto& c) { return c.tile_q; }, line.choice.config);
  line.spec.algorithm.notes =
      kept(fmt::format("{}; {}", line.spec.algorithm.notes, HopperBackwardAlgo::of(line.choice).to_string()));
  return line;
}

/// Those that forced knobs are applied to: one for each tile of head dims.
bool is_base(const HopperBackwardLine& line) {
  return line.spec.stem == fmt::format("hopper_bwd_d{}", line.choice.d());
}

const HopperBackwardLine& base_line(int d, int d_v, std::string_view what) {
  for (const HopperBackwardLine& line : general_backward_lines())
    if (is_base(line) && line.choice.d() == d && d == d_v) return line;
  throw core::invalid(
      "{}: there is no Hopper tile of the backward pass for d = {}, d_v = {}; there are 64, 128, 192 "
      "and 256, for both.",
      what, d, d_v);
}

/// What was measured: batch mode, one kind of mask, nothing that changes scores, tiles that add to dQ in any order.
BackwardSignature measured(BackwardSignature s, bool causal) {
  s.modes = {Mode::batch};
  s.masks = {causal ? MaskClass::causal : MaskClass::none};
  s.features = {Feature::lse, Feature::sink, Feature::d_lse};
  s.deterministic = false;
  return s;
}

/// What the registers have room for beside a tile: as in the general line that computes so, or, where there is none,
/// what compiles without a spill and without a serialised wgmma (tests/cuda/kernel_resources_test.cpp).
void give_room(HopperBackwardLine& line) {
  HopperBackwardChoice in_registers = line.choice;
  bool copied = false;
  if (auto* const narrow = std::get_if<HopperBackwardConfig>(&in_registers.config))
    copied = std::exchange(narrow->bias_route, kernels::BiasRoute::in_step) == kernels::BiasRoute::copied;
  for (const HopperBackwardLine& general : general_backward_lines()) {
    if (general.choice.config != in_registers.config) continue;
    line.spec.signature = general.spec.signature;
    constexpr int kBesideCopies = 8;  // the place of a copied bias is one more address
    line.room = copied ? std::min(general.room, kBesideCopies) : general.room;
    return;
  }
  // Whatever is read entry by entry takes its addresses, too.
  for (const HopperBackwardLine& general : general_backward_lines())
    if (general.choice.d() == line.choice.d() && general.room > 0) line.spec.signature = general.spec.signature;
  const auto features = line.spec.signature.features;
  line.spec.signature.features = features.without({Feature::bias, Feature::bool_mask, Feature::block_mask});
  line.room = 2;
  if (const auto* const narrow = std::get_if<HopperBackwardConfig>(&line.choice.config);
      narrow != nullptr && narrow->d == 128)
    line.room = narrow->tile_q >= 64 ? 0 : narrow->tile_q >= 48 ? 1 : 2;
  if (copied && line.choice.d() == 64)
    line.spec.signature.features = features.without({Feature::bool_mask, Feature::block_mask});
}

}  // namespace

std::span<const HopperBackwardLine> hopper_backward_lines() {
  static const auto* const lines = [] {
    auto* const list = new std::vector<HopperBackwardLine>(tuned_backward_lines(shipped_tuning()));
    for (const HopperBackwardLine& line : general_backward_lines()) list->push_back(with_knobs_told(line));
    return list;
  }();
  return *lines;
}

std::vector<HopperBackwardLine> tuned_backward_lines(const TuningRecord& record, TunedBy by) {
  const auto make = [&](const TuningEntry& entry, const std::string& what) {
    HopperBackwardLine line = turned(base_line(entry.d, entry.d_v, what), HopperBackwardAlgo::parse(entry.algo));
    if (!line.foreign.empty()) throw core::invalid("{}: {}.", what, line.foreign);
    if (const std::string broken = broken_limit(line.choice); !broken.empty())
      throw core::invalid("{}: {}.", what, broken);
    line.spec.signature = measured(line.spec.signature, entry.causal);
    line.room = 0;
    line.preference = by == TunedBy::user ? 0.9 : 0.95;
    return line;
  };
  auto lines = lines_of_entries<HopperBackwardLine>(record, Operation::backward, by, make);
  for (HopperBackwardLine& line : lines) line = with_knobs_told(line);
  return lines;
}

HopperBackwardLine forced_backward_line(int d, int d_v, const HopperBackwardAlgo& algo) {
  HopperBackwardLine line = turned(base_line(d, d_v, "algo"), algo);
  give_room(line);
  line.spec.stem = kept(fmt::format("{}[{}]", line.spec.stem, algo.to_string()));
  line.spec.algorithm.notes = "as the caller told";
  return with_knobs_told(line);
}

std::vector<HopperBackwardLine> forced_backward_lines(const HopperBackwardAlgo& algo) {
  std::vector<HopperBackwardLine> lines;
  for (const HopperBackwardLine& line : general_backward_lines())
    if (is_base(line)) lines.push_back(forced_backward_line(line.choice.d(), line.choice.d(), algo));
  return lines;
}

HopperBackwardChoice hopper_backward_choice(const HopperBackwardLine& line, const Problem& problem) {
  HopperBackwardChoice choice = line.choice;
  std::visit(
      [&](auto& config) {
        config.type = element_of(problem.type());
        config.features = features_of(problem);
        config.features.sink = false;  // the LSE has it
        if constexpr (requires { config.ordered = true; }) config.ordered = problem.deterministic();
        config.dq_in_16_bits = problem.accumulate() != DataType::f32 && !config.owned_dq;
      },
      choice.config);
  if (auto* const narrow = std::get_if<HopperBackwardConfig>(&choice.config))
    narrow->stores_dbias = has_dbias_of_its_own(*narrow, problem);
  return choice;
}

std::string broken_limit(const HopperBackwardLine& line, const Problem& problem) {
  if (!line.foreign.empty()) return std::string(line.foreign);
  if (const std::int64_t group = problem.heads_k() == 0 ? 1 : problem.heads_q() / problem.heads_k();
      line.choice.parts > 1 && group % line.choice.parts != 0)
    return fmt::format("parts: a group has {} query heads, which {} does not divide", group, line.choice.parts);
  return broken_limit(hopper_backward_choice(line, problem));
}

}  // namespace heed::cuda
