#include "cuda/hopper_lines.hpp"

#include "core/ceil_div.hpp"
#include "core/invalid.hpp"
#include "cuda/kept_text.hpp"
#include "cuda/lines_of_entries.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

namespace heed::cuda {
namespace {

using dispatch::Feature;
using dispatch::ForwardAlgorithm;
using dispatch::ForwardSignature;
using dispatch::MaskClass;
using dispatch::MathUnit;
using dispatch::Set;
using dispatch::Sizes;
using kernels::BiasRoute;
using kernels::HopperConfig;
using kernels::Turns;

constexpr Set<Feature> kAllFeatures = dispatch::any;
constexpr Set<Feature> kFewFeatures{Feature::lse, Feature::sink};
constexpr Set<MaskClass> kFull{MaskClass::none}, kCausal{MaskClass::causal};
/// More than any features weigh.
constexpr int kRoomForAll = 99;

/// Head dims are multiples of 8 elements = 16 bytes; the tile is filled up with zeros.
constexpr ForwardSignature signature(Sizes d, Sizes d_v) {
  return {.types = {DataType::f16, DataType::bf16},
          .output_types = {DataType::f16, DataType::bf16},
          .d = d,
          .d_v = d_v,
          .features = kAllFeatures,
          .math = {Math::fast},
          .tma = true,
          .lengths = {0, std::int64_t{1} << 28, 1}};
}
/// For registers that have no room left: batch mode, one kind of mask, nothing that changes scores.
constexpr ForwardSignature lean(ForwardSignature s, Set<MaskClass> masks) {
  s.modes = {Mode::batch};
  s.masks = masks;
  s.features = kFewFeatures;
  return s;
}
/// Every mask by coordinates and every length, nothing that changes scores.
constexpr ForwardSignature masks_and_lengths(ForwardSignature s) {
  s.features = {Feature::lse, Feature::sink, Feature::logical_lengths};
  return s;
}
/// Blocks of 96 keys: no room for a bias, and they are not within one block of a block mask.
constexpr ForwardSignature for_wide_blocks(ForwardSignature s) {
  s.features = {Feature::lse,      Feature::sink,    Feature::logical_lengths, Feature::alibi,
                Feature::soft_cap, Feature::dropout, Feature::bool_mask};
  return s;
}
/// For sequences with their own lengths: no mask or a causal one, so that all warpgroups have equal work.
constexpr ForwardSignature lengths(ForwardSignature s) {
  s = masks_and_lengths(s);
  s.masks = {MaskClass::none, MaskClass::causal};
  return s;
}
/// Goes before the other lines here, whatever it has room for, and behind those of a tuning record; among such by its
/// rank.
constexpr HopperLine preferred(HopperLine line, int rank) {
  line.preference = (1.08 + 0.004 * rank) / (1 + kCostOfRoom * line.room);
  return line;
}
/// Only for block masks whose blocks consist of whole blocks of its keys: one look at the mask tells all of a row.
constexpr HopperLine for_block_masks(HopperLine line) {
  line.spec.signature.features = {Feature::lse, Feature::sink, Feature::logical_lengths, Feature::block_mask};
  line.only_block_masks = true;
  return preferred(line, 0);
}
/// Only for biases of 16 bits, which come through shared memory: beside masks by coordinates and lengths nothing that
/// changes scores has room.
constexpr HopperLine for_narrow_biases(HopperLine line) {
  line.spec.signature.features = {Feature::lse, Feature::sink, Feature::logical_lengths, Feature::bias};
  line.config.bias_route = BiasRoute::copied;
  line.only_narrow_biases = true;
  return preferred(line, 0);
}
constexpr Sizes dims(std::int64_t from, std::int64_t to) { return {from, to, 8}; }

constexpr HopperLine line(std::string_view stem, const ForwardSignature& s, const HopperConfig& config,
                          std::string_view notes, int room) {
  return {{stem, s,
           ForwardAlgorithm{.arch = dispatch::Sm{90},
                            .unit = MathUnit::wgmma,
                            .tile_q = config.tile_q(),
                            .tile_k = config.tile_k,
                            .notes = notes}},
          config,
          room};
}

/// For whatever no tuning record has an entry for. Those whose name ends with their head dim are what forced knobs are
/// applied to.
constexpr std::array kLines{
    preferred(
        line(
            "hopper_fwd_d64_lengths", lengths(signature(dims(8, 64), dims(8, 64))),
            {.d = 64, .d_v = 64, .tile_k = 64, .warpgroups = 4, .k_stages = 5, .v_stages = 5, .turns = Turns::products},
            "4 warpgroups in turns, for lengths", 3),
        0),
    preferred(line("hopper_fwd_d64_256x64", masks_and_lengths(signature(dims(8, 64), dims(8, 64))),
                   {.d = 64, .d_v = 64, .tile_k = 64, .warpgroups = 4, .k_stages = 5, .v_stages = 5},
                   "4 free warpgroups, for windows", 3),
              1),
    preferred(line("hopper_fwd_d64_192x96", for_wide_blocks(signature(dims(8, 64), dims(8, 64))),
                   {.d = 64, .d_v = 64, .tile_k = 96, .warpgroups = 3}, "3 free warpgroups, wide blocks", 2),
              2),
    for_block_masks(line("hopper_fwd_d64_block_mask", signature(dims(8, 64), dims(8, 64)),
                         {.d = 64, .d_v = 64, .tile_k = 128, .warpgroups = 2}, "2 free warpgroups, for block masks",
                         3)),
    for_narrow_biases(line("hopper_fwd_d64_bias", signature(dims(8, 64), dims(8, 64)),
                           {.d = 64, .d_v = 64, .tile_k = 96, .warpgroups = 3, .turns = Turns::products},
                           "3 warpgroups in turns, for biases of 16 bits", 4)),
    line("hopper_fwd_d64", signature(dims(8, 64), dims(8, 64)), {.d = 64, .d_v = 64, .tile_k = 64, .warpgroups = 3},
         "3 free warpgroups", 3),
    line("hopper_fwd_d64_features", signature(dims(8, 64), dims(8, 64)),
         {.d = 64, .d_v = 64, .tile_k = 64, .warpgroups = 2}, "2 free warpgroups with room for every feature", 12),
    line("hopper_fwd_d96", signature(dims(8, 96), dims(8, 96)), {.d = 96, .d_v = 96, .tile_k = 64, .warpgroups = 3},
         "3 free warpgroups", 1),
    for_narrow_biases(line("hopper_fwd_d96_bias", signature(dims(8, 96), dims(8, 96)),
                           {.d = 96, .d_v = 96, .tile_k = 64, .warpgroups = 3, .k_stages = 2, .v_stages = 3},
                           "3 free warpgroups, for biases of 16 bits", 4)),
    for_narrow_biases(line("hopper_fwd_d128_bias", signature(dims(8, 128), dims(8, 128)),
                           {.d = 128, .d_v = 128, .tile_k = 64, .warpgroups = 3, .k_stages = 2, .v_stages = 3},
                           "3 free warpgroups, for biases of 16 bits", 4)),
    line("hopper_fwd_d128", signature(dims(8, 128), dims(8, 128)),
         {.d = 128, .d_v = 128, .tile_k = 64, .warpgroups = 3}, "3 free warpgroups", 2),
    line("hopper_fwd_d128_128x64", signature(dims(8, 128), dims(8, 128)),
         {.d = 128, .d_v = 128, .tile_k = 64, .warpgroups = 2, .k_stages = 4, .v_stages = 4}, "2 free warpgroups", 4),
    for_block_masks(line("hopper_fwd_d128_block_mask", signature(dims(8, 128), dims(8, 128)),
                         {.d = 128, .d_v = 128, .tile_k = 128, .warpgroups = 2, .k_stages = 2, .v_stages = 2},
                         "2 free warpgroups, for block masks", 3)),
    line("hopper_fwd_d128_features", signature(dims(8, 128), dims(8, 128)),
         {.d = 128, .d_v = 128, .tile_k = 32, .warpgroups = 2, .k_stages = 4, .v_stages = 4},
         "2 free warpgroups with room for every feature", 12),
    line("hopper_fwd_d192_128", signature(dims(8, 192), dims(8, 128)),
         {.d = 192, .d_v = 128, .tile_k = 96, .warpgroups = 2, .k_stages = 2, .v_stages = 2},
         "2 free warpgroups, for a d_v that is smaller than d", 3),
    line("hopper_fwd_d192", signature(dims(8, 192), dims(8, 192)),
         {.d = 192, .d_v = 192, .tile_k = 64, .warpgroups = 2, .k_stages = 2, .v_stages = 2}, "2 free warpgroups", 3),
    line("hopper_fwd_d256", signature(dims(8, 256), dims(8, 256)),
         {.d = 256,
          .d_v = 256,
          .tile_k = 64,
          .warpgroups = 2,
          .k_stages = 2,
          .v_stages = 2,
          .q_buffers = 1,
          .turns = Turns::products,
          .lazy_maximum = false,
          .own_o_memory = true},
         "2 warpgroups in turns, O through memory of its own", 1),
    line("hopper_fwd_d256_features", signature(dims(8, 256), dims(8, 256)),
         {.d = 256,
          .d_v = 256,
          .tile_k = 32,
          .warpgroups = 2,
          .k_stages = 4,
          .v_stages = 4,
          .q_buffers = 1,
          .lazy_maximum = false,
          .own_o_memory = true},
         "2 free warpgroups with room for features", 2),
};

/// Its notes end with every knob.
HopperLine with_knobs_told(HopperLine line) {
  line.spec.algorithm.tile_q = line.config.tile_q();
  line.spec.algorithm.tile_k = line.config.tile_k;
  line.spec.algorithm.notes =
      kept(fmt::format("{}; {}", line.spec.algorithm.notes, HopperAlgo::of(line.config).to_string()));
  return line;
}

/// Whether the query heads of a group share tiles: wherever they can, whatever the lengths, so that one kernel serves
/// all of them.
bool shares_tiles(const HopperLine& line, const HopperConfig& config, const Problem& problem) {
  constexpr std::int64_t kMostHeads = 64;  // rows of a warpgroup
  if (!config.pack || problem.heads_k() == 0) return false;
  const std::int64_t group = problem.heads_q() / problem.heads_k();
  return group >= 2 && group <= kMostHeads && std::has_single_bit(static_cast<std::uint64_t>(group)) &&
         config.features.can_pack() && config.features.weight() < line.room && problem.strides(Operand::q).head != 0 &&
         problem.strides(Operand::o).head != 0;
}

/// Those that forced knobs are applied to: one for each tile of head dims.
bool is_base(const HopperLine& line) {
  const HopperConfig& c = line.config;
  return line.spec.stem ==
         (c.d == c.d_v ? fmt::format("hopper_fwd_d{}", c.d) : fmt::format("hopper_fwd_d{}_{}", c.d, c.d_v));
}

const HopperLine& base_line(int d, int d_v, std::string_view what) {
  for (const HopperLine& line : kLines)
    if (is_base(line) && line.config.d == d && line.config.d_v == d_v) return line;
  throw core::invalid("{}: there is no Hopper tile for d = {}, d_v = {}; there are 64, 96, 128, 192, 192/128 and 256.",
                      what, d, d_v);
}

HopperLine turned(const HopperLine& base, const HopperAlgo& algo) {
  HopperLine line = base;
  line.config = algo.applied_to(base.config);
  line.keeps_lazy_maximum = algo.has("lazy_maximum");
  return line;
}

}  // namespace

std::span<const HopperLine> hopper_lines() {
  static const auto* const lines = [] {
    auto* const list = new std::vector<HopperLine>(tuned_lines(shipped_tuning()));
    for (const HopperLine& line : kLines) list->push_back(with_knobs_told(line));
    return list;
  }();
  return *lines;
}

std::vector<HopperLine> tuned_lines(const TuningRecord& record, TunedBy by) {
  const auto make = [&](const TuningEntry& entry, const std::string& what) {
    HopperLine line = turned(base_line(entry.d, entry.d_v, what), HopperAlgo::parse(entry.algo));
    if (const std::string broken = broken_limit(line.config); !broken.empty())
      throw core::invalid("{}: {}.", what, broken);
    if (line.config.inaccurate())
      throw core::invalid("{}: sums in f16 are inaccurate, and no record may ask for them.", what);
    line.spec.signature = lean(line.spec.signature, entry.causal ? kCausal : kFull);
    line.room = 1;  // heads that share tiles
    line.preference = by == TunedBy::user ? 0.9 : 0.99;
    return line;
  };
  auto lines = lines_of_entries<HopperLine>(record, Operation::forward, by, make);
  for (HopperLine& line : lines) line = with_knobs_told(line);
  return lines;
}

HopperLine forced_line(int d, int d_v, const HopperAlgo& algo) {
  HopperLine line = turned(base_line(d, d_v, "algo"), algo);
  line.spec.stem = kept(fmt::format("{}[{}]", line.spec.stem, algo.to_string()));
  line.spec.algorithm.notes = "as the caller told";
  if (line.config.inaccurate()) {
    line.spec.algorithm.notes = "as the caller told; inaccurate: sums in f16";
    line.spec.signature.accumulate = {DataType::f32, DataType::f16};
  }
  line.room = kRoomForAll;
  return with_knobs_told(line);
}

std::vector<HopperLine> forced_lines(const HopperAlgo& algo) {
  std::vector<HopperLine> lines;
  for (const HopperLine& line : kLines)
    if (is_base(line)) lines.push_back(forced_line(line.config.d, line.config.d_v, algo));
  return lines;
}

std::int64_t row_tiles(const HopperConfig& config, const Problem& problem, std::int64_t heads_together) {
  return core::ceil_div(problem.s_q() * heads_together, config.tile_rows());
}

HopperConfig hopper_config(const HopperLine& line, const Problem& problem) {
  HopperConfig config = line.config;
  config.type = element_of(problem.type());
  config.features = features_of(problem);
  config.v_by_columns = problem.d_v() > 1 && problem.strides(Operand::v).dim != 1;
  config.features.packed = shares_tiles(line, config, problem);
  // A bias of f32 leaves no registers for a second look at scores.
  if (config.features.bias == kernels::BiasType::f32 && config.warpgroups > 2 && config.d_v > 64 &&
      !line.keeps_lazy_maximum)
    config.lazy_maximum = false;
  return config;
}

}  // namespace heed::cuda
