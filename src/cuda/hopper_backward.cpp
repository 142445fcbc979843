#include "cuda/hopper_backward.hpp"

#include "core/ceil_div.hpp"
#include "cuda/expected_work.hpp"
#include "cuda/forward_params.hpp"
#include "cuda/kernel_text.hpp"
#include "cuda/portable_backward.hpp"
#include "cuda/tensor_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

namespace heed::cuda {
namespace {

using core::ceil_div;
using dispatch::BackwardAlgorithm;
using dispatch::BackwardSignature;
using dispatch::Feature;
using dispatch::MathUnit;
using dispatch::Set;
using dispatch::Sizes;
using kernels::BackwardPipeline;
using kernels::BiasRoute;
using kernels::HopperBackwardConfig;
using kernels::HopperWideBackwardConfig;

/// Everything but a V whose keys are neighbours, and dSlopes, which need an owner of every row of dQ. dSink, and a
/// dBias that has something to sum, come from kernels behind these.
constexpr Set<Feature> kAllFeatures{Feature::lse,   Feature::bias,       Feature::alibi,           Feature::soft_cap,
                                    Feature::sink,  Feature::dropout,    Feature::randval,         Feature::bool_mask,
                                    Feature::d_lse, Feature::block_mask, Feature::logical_lengths, Feature::dbias,
                                    Feature::dsink};

/// Head dims are multiples of 8 elements = 16 bytes; the tile is filled up with zeros. dQ is summed in what
/// dq_accumulation says, unless its rows have owners.
constexpr BackwardSignature signature(std::int64_t d) {
  return {.types = {DataType::f16, DataType::bf16},
          .output_types = {DataType::f16, DataType::bf16},
          .d = Sizes{8, d, 8},
          .d_v = Sizes{8, d, 8},
          .features = kAllFeatures,
          .math = {Math::fast},
          .accumulate = dispatch::any,
          .tma = true,
          .lengths = {1, std::int64_t{1} << 28, 1}};
}
/// Every mask by coordinates and every length, nothing that changes scores.
constexpr BackwardSignature masks_and_lengths(BackwardSignature s) {
  s.features = {Feature::lse, Feature::sink, Feature::d_lse, Feature::logical_lengths, Feature::dsink};
  return s;
}

/// Everything but what is read entry by entry, for which there are no registers left.
constexpr BackwardSignature without_entries(BackwardSignature s) {
  s.features = kAllFeatures.without({Feature::bias, Feature::bool_mask, Feature::block_mask});
  return s;
}
constexpr BackwardSignature without_block_mask(BackwardSignature s) {
  s.features = kAllFeatures.without({Feature::block_mask});
  return s;
}

template <class Config>
constexpr HopperBackwardLine line(std::string_view stem, const BackwardSignature& s, const Config& config,
                                  std::string_view notes, int room) {
  return {{stem, s,
           BackwardAlgorithm{.arch = dispatch::Sm{90},
                             .unit = MathUnit::wgmma,
                             .tile_q = config.tile_q,
                             .tile_k = config.kTileK,
                             .notes = notes}},
          {config},
          room};
}

/// What room for a feature costs, whether it is used or not.
constexpr double kCostOfRoom = 0.03;

/// Only for biases of 16 bits, which come through shared memory, beside masks by coordinates and lengths; and there
/// before the others.
constexpr HopperBackwardLine for_narrow_biases(HopperBackwardLine line) {
  line.spec.signature.features = {Feature::lse,  Feature::sink,  Feature::logical_lengths,
                                  Feature::bias, Feature::d_lse, Feature::dbias,
                                  Feature::dsink};
  std::get<HopperBackwardConfig>(line.choice.config).bias_route = BiasRoute::copied;
  line.only_narrow_biases = true;
  line.preference = 1 / (1 + kCostOfRoom * line.room);
  return line;
}

constexpr int kEveryFeature = 12;
/// The counter of tiles lies before the turns.
constexpr std::int64_t kCounterWords = 16;

constexpr std::array kLines{
    line("hopper_bwd_d64", masks_and_lengths(signature(64)),
         HopperBackwardConfig{.d = 64, .tile_q = 128, .pipeline = BackwardPipeline::ahead},
         "S a block ahead, dQ a block late", 2),
    line("hopper_bwd_d64_features", signature(64),
         HopperBackwardConfig{.d = 64, .tile_q = 64, .pipeline = BackwardPipeline::ahead},
         "small blocks with room for every feature", kEveryFeature),
    for_narrow_biases(line("hopper_bwd_d64_bias", signature(64),
                           HopperBackwardConfig{.d = 64, .tile_q = 96, .pipeline = BackwardPipeline::ahead},
                           "S a block ahead, dQ a block late, for biases of 16 bits", 4)),
    for_narrow_biases(line("hopper_bwd_d128_bias", signature(128), HopperBackwardConfig{.d = 128, .tile_q = 64},
                           "both warpgroups in step, for biases of 16 bits", 4)),
    line("hopper_bwd_d128", without_block_mask(signature(128)), HopperBackwardConfig{.d = 128, .tile_q = 64},
         "both warpgroups in step", 2),
    line("hopper_bwd_d128_features", signature(128), HopperBackwardConfig{.d = 128, .tile_q = 32},
         "small blocks with room for every feature", kEveryFeature),
    line("hopper_bwd_d192", without_entries(signature(192)), HopperWideBackwardConfig{.d = 192},
         "a warpgroup for dV, one for dK", 2),
    line("hopper_bwd_d192_owned", without_entries(signature(192)), HopperWideBackwardConfig{.d = 192, .owned_dq = true},
         "dK and dV by owners of keys, dQ by owners of its rows", 2),
    line("hopper_bwd_d256", without_entries(signature(256)), HopperWideBackwardConfig{.d = 256},
         "a warpgroup for dV, one for dK", 2),
    line("hopper_bwd_d256_owned", without_entries(signature(256)),
         HopperWideBackwardConfig{.d = 256, .o_ring = 2, .owned_dq = true},
         "dK and dV by owners of keys, dQ by owners of its rows", 2),
};

/// Heads that are in flight together where tiles add to dQ in order: neighbours of one head should start apart, the
/// more so the larger a block of queries, and the second-level cache hold what they share. Under a window a tile
/// follows the one before by itself. Fitted: docs/kernels/log.md, "Tickets drawn late".
std::int64_t heads_in_order(kernels::MaskShape mask, std::int64_t d, std::int64_t key_tiles) {
  const bool narrow = d <= 64;  // 128 queries to a block, not 64
  switch (mask) {
    case kernels::MaskShape::none:
      return std::clamp<std::int64_t>(ceil_div(512, key_tiles), 4, 64);
    case kernels::MaskShape::right:
      return std::clamp<std::int64_t>(ceil_div(narrow ? 1024 : 512, key_tiles), key_tiles > 64 ? 16 : 32, 64);
    case kernels::MaskShape::window:
      return narrow ? 16 : 8;
  }
  return 1;
}
/// Under a right mask the longest tiles of a section come first. Many tiles even out the finish; but about three tiles
/// of a head should be at work at the same time, which read the same Q and dO and add to the same dQ; wide rows fill
/// the second-level cache earlier, those of long sequences earliest.
std::int64_t heads_under_right_mask(std::int64_t d, std::int64_t key_tiles) {
  if (d <= 128) return std::clamp<std::int64_t>(ceil_div(700, key_tiles), 16, 40);
  return key_tiles > 64 ? 4 : std::clamp<std::int64_t>(ceil_div(200, key_tiles), 8, 16);
}
/// `told`: how many tiles a section has, if not 0. `all`: heads of all batch entries; each part of a group is one.
std::int64_t section_of(const Problem& problem, const kernels::ForwardFeatures& features, std::int64_t all,
                        std::int64_t key_tiles, int told) {
  const bool right = features.mask == kernels::MaskShape::right;
  key_tiles = std::max<std::int64_t>(key_tiles, 1);
  if (told > 0) return std::clamp<std::int64_t>(ceil_div(told, key_tiles), 1, all);
  const std::int64_t d = std::max(problem.d(), problem.d_v());
  if (problem.deterministic() && d <= 128)
    return std::clamp<std::int64_t>(heads_in_order(features.mask, d, key_tiles), 1, all);
  if (!right) return 1;
  // Sections of one size: in a small last one the longest tiles would come too late.
  return core::even_part(all, heads_under_right_mask(d, key_tiles));
}

/// Into how many parts the query heads of a group are divided. A tile of keys has one thread block, which goes through
/// all query heads of the group: with few heads of K and V there are fewer tiles than multiprocessors, and under a
/// right mask long ones. Parts are more and shorter, at the price of their sums of dK and dV in f32, which are written
/// and read. docs/kernels/log.md, "Groups in parts", has what this is fitted to.
int parts_of(const Problem& problem, int tile_k, int d, int multiprocessors) {
  if (problem.heads_k() == 0 || multiprocessors == 0) return 1;
  if (problem.deterministic() && problem.batch() > 1) {  // what else is in the batch may change no bit
    if (problem.mode() == Mode::group) return 1;
    return parts_of(Problem(problem).batch(1), tile_k, d, multiprocessors);
  }
  constexpr double kFlops = 550e12, kBytes = 2e12, kLaunch = 4e-6, kWorthIt = 0.97;
  // Under a right mask tiles drift apart: so many tiles' time is lost at the end, and to what they no longer find in
  // the second-level cache.
  constexpr double kLost = 1.5, kLostWide = 6;
  const std::int64_t group = problem.heads_q() / problem.heads_k();
  const auto tiles = static_cast<double>(
      HopperBackwardTiles{.tile_q = 0, .tile_k = tile_k, .d = d, .parts = 1}.key_tiles(problem) * problem.heads_k());
  const double seconds = 10 * expected_pairs(problem) * d / kFlops;  // of all multiprocessors
  const bool right = features_of(problem).mask == kernels::MaskShape::right;
  const auto time = [&](std::int64_t parts) {
    const double items = tiles * static_cast<double>(parts), item = seconds * multiprocessors / items;
    const double main = right ? std::max(2 * item, seconds + (d > 128 ? kLostWide : kLost) * item)
                              : std::ceil(items / multiprocessors) * item;
    const double sums = parts == 1 ? 0 : kLaunch + items * tile_k * d * 2 * 2 * sizeof(float) / kBytes;
    return main + sums;
  };
  std::int64_t best = 1;
  for (std::int64_t parts = 2; parts <= group; ++parts)
    if (group % parts == 0 && time(parts) < kWorthIt * time(best)) best = parts;
  return static_cast<int>(best);
}

/// The kernel that makes dQ, where its rows have owners.
std::optional<kernels::HopperQueriesConfig> owners_of_dq(const HopperBackwardConfig&) { return std::nullopt; }
std::optional<kernels::HopperQueriesConfig> owners_of_dq(const HopperWideBackwardConfig& config) {
  return config.owned_dq ? std::optional(config.queries()) : std::nullopt;
}

class HopperBackward final : public CudaBackwardKernel {
 public:
  HopperBackward(const HopperBackwardLine& line, std::shared_ptr<EngineState> state)
      : CudaBackwardKernel(line.spec, std::move(state)), line_(line) {}

  double expected_seconds(const Problem& problem) const override {
    // The tile that is computed, whole; room for features costs. What was measured to be worse here counts a fifth
    // more.
    const double d = std::visit([](const auto& c) { return static_cast<double>(c.d); }, line_.choice.config);
    const bool tuned = problem.s_k() >= line_.from_s_k && problem.s_k() <= line_.to_s_k;
    const double fit = (tuned ? line_.preference : 1.2) * (1 + kCostOfRoom * line_.room);
    return 20e-6 + fit * 2 * expected_pairs(problem) * 5 * d / 450e12 * cost_of_dq(problem);
  }

  std::string impossible(const Problem& problem) const override { return broken_limit(line_, problem); }

  std::string too_much(const Problem& problem) const override {
    const kernels::ForwardFeatures features = features_of(problem);
    if (problem.deterministic() && !owned_dq()) {
      if (line_.choice.d() > 128) return "tiles add to dQ in any order; dq:owned has one order";
      if (features.mask == kernels::MaskShape::window && problem.mask().sink() > 0)
        return "tiles of sink keys and those of the window add to dQ in no fixed order";
    }
    if (owned_dq() && tiles_of_dq(problem) > std::numeric_limits<std::int32_t>::max())
      return "dQ has more tiles of rows than a launch has thread blocks";
    if (problem.heads_q() == 0) return "there are no query heads";
    if (problem.batch() == 0 && (problem.dbias() || problem.dsink()))
      return "the batch is empty, and dBias and dSink are still to be zeroed";
    if (line_.only_narrow_biases && !has_narrow_bias(problem))
      return "it is for a bias of 16 bits with an even number of keys";
    if (features.weight() <= line_.room) return {};
    return fmt::format("the features weigh {}, there is room for {}", features.weight(), line_.room);
  }

  std::vector<Step> steps(const Problem& problem, const Device& device) const override {
    return std::visit(
        [&](auto config) {
          const int count = tiles(problem, config, device.multiprocessors).parts;
          const auto step = [&](std::string purpose, HopperBackwardPart part, int shared_bytes) {
            return Step{std::move(purpose), {kernel_source(config, part), "sm_90a", shared_bytes}};
          };
          const bool dbias = stores_dbias(config);
          std::vector<Step> list{step("D and LSE of rows", HopperBackwardPart::before, 0)};
          if (count == 1) {
            list.push_back(step(config.owned_dq ? "dK and dV"
                                : dbias         ? "dK, dV, dBias and the sum of dQ"
                                                : "dK, dV and the sum of dQ",
                                HopperBackwardPart::main, config.shared_bytes()));
          } else {
            auto of_part = config;
            of_part.in_parts = true;
            list.push_back({config.owned_dq ? fmt::format("dK and dV of {} parts of each group", count)
                                            : fmt::format("dK and dV of {} parts of each group, {} the sum of dQ",
                                                          count, dbias ? "dBias and" : "and"),
                            {kernel_source(of_part, HopperBackwardPart::main), "sm_90a", config.shared_bytes()}});
          }
          if (const auto owners = owners_of_dq(config)) {
            list.push_back({"dQ", {kernel_source(*owners), "sm_90a", owners->shared_bytes()}});
          } else {
            list.push_back(step("dQ", HopperBackwardPart::after, 0));
          }
          if (count > 1) list.push_back(step("dK and dV", HopperBackwardPart::parts, 0));
          const PortableBackwardConfigs behind = shared_gradients(problem, device);
          const kernels::PortableBackwardConfig* of_step = behind.begin();
          for (Step& each : portable_backward_steps(behind, portable_arch(device))) {
            // How its memory lies is known only when it comes, so that the other way has to be there.
            if (dbias && (of_step->part == kernels::BackwardPart::bias || !problem.dsink()))
              each.purpose += ", if TMA cannot write dBias";
            list.push_back(std::move(each));
            ++of_step;
          }
          return list;
        },
        hopper_backward_choice(line_, problem).config);
  }

 private:
  bool owned_dq() const {
    return std::visit([](const auto& c) { return c.owned_dq; }, line_.choice.config);
  }
  /// Thread blocks of the owners of dQ: every sequence has as many as the longest, which may be as long as all
  /// together.
  static double tiles_of_dq(const Problem& problem) {
    return std::ceil(static_cast<double>(problem.s_q()) / kernels::HopperQueriesConfig::kRows) *
           static_cast<double>(problem.heads_q()) * static_cast<double>(problem.batch());
  }
  /// Beside five products of a wide head dim, in their time: what owners of rows compute once more, at a higher rate;
  /// or the sum that is zeroed, added to and converted for every row, which is as much as for 900 keys of the row.
  double cost_of_dq(const Problem& problem) const {
    if (line_.choice.d() <= 128) return 1;
    constexpr double kMore = 0.16, kKeysOfSum = 900;
    const double rows = static_cast<double>(problem.batch() * problem.heads_q() * problem.s_q());
    return 1 + kMore * (owned_dq() ? 1 : kKeysOfSum * rows / std::max(expected_pairs(problem), 1.0));
  }

  static PortableBackwardConfigs shared_gradients(const Problem& problem, const Device& device) {
    return {problem, portable_device(device), device.multiprocessors, PortableGradients::shared};
  }
  /// Theirs, behind that of the other gradients.
  static BackwardWorkspace workspace_behind(const Problem& problem, const BackwardWorkspace& others,
                                            const PortableBackwardConfigs& shared) {
    return divide_workspace(
        problem,
        {.begin = others.bytes, .row_space = packed_row_space(problem), .d_bias_floats = shared.dbias_floats()});
  }

  template <class Config>
  HopperBackwardTiles tiles(const Problem& problem, const Config& config, int multiprocessors) const {
    const int told = line_.choice.parts;
    return {config.tile_q,
            config.kTileK,
            config.d,
            told > 0 ? told : parts_of(problem, config.kTileK, config.d, multiprocessors),
            config.owned_dq ? 0 : config.sum_bytes(),
            config.zeroes_ahead() ? multiprocessors : 0};
  }

  BackwardWorkspace workspace(const Problem& problem) const override {
    BackwardWorkspace own =
        std::visit([&](const auto& c) { return tiles(problem, c, state().device.multiprocessors).workspace(problem); },
                   hopper_backward_choice(line_, problem).config);
    const PortableBackwardConfigs shared = shared_gradients(problem, state().device);
    if (!shared.empty()) own.bytes = workspace_behind(problem, own, shared).bytes;
    return own;
  }

  void launch(const dispatch::BackwardCall& call, const Compiled& compiled, int device) const override {
    std::visit([&](const auto& config) { launch_as(config, call, compiled, device); },
               hopper_backward_choice(line_, call.problem).config);
  }

  template <class Config>
  void launch_as(const Config& config, const dispatch::BackwardCall& call, const Compiled& compiled, int device) const {
    const Problem& problem = call.problem;
    if (problem.batch() == 0) return;  // no row and no key, and no gradient that is shared: too_much()
    const HopperBackwardTiles division = tiles(problem, config, state().device.multiprocessors);
    kernels::BackwardParams p = backward_params(call, division.workspace(problem));
    division.schedule(problem, p, line_.choice.section);

    const auto map = [&](Operand which, const void* data, int box_rows) {
      return map_operand(problem, p.forward, which, data, static_cast<unsigned>(box_rows));
    };
    MappedTensor q = map(Operand::q, p.forward.q, config.tile_q), d_o = map(Operand::d_o, p.d_o, config.tile_q);
    MappedTensor k = map(Operand::k, p.forward.k, config.kTileK), v = map(Operand::v, p.forward.v, config.kTileK);
    p.q_map = q.steps;
    p.d_o_map = d_o.steps;
    p.k_map = k.steps;
    p.v_map = v.steps;
    const Strides of_dbias{p.d_bias_steps.batch, p.d_bias_steps.row, p.d_bias_steps.head, p.d_bias_steps.column};
    const bool writes_dbias = stores_dbias(config) && can_map(p.d_bias, of_dbias);
    MappedTensor dbias{};
    if (writes_dbias) {
      dbias = map_tensor(p.d_bias, problem.type(), of_dbias, problem.s_k(), problem.s_q(), problem.heads_q(),
                         problem.batch(), static_cast<unsigned>(config.tile_q));
      p.d_bias_map = dbias.steps;
    } else {
      p.d_bias = nullptr;
    }

    const std::int64_t blocks = std::min<std::int64_t>(division.key_tiles(problem) * problem.heads_k() * p.parts,
                                                       devices().at(static_cast<std::size_t>(device)).multiprocessors);
    const std::int64_t row_launch = division.row_blocks(problem) * problem.heads_q();
    const auto stream = static_cast<CUstream>(call.stream);
    constexpr unsigned kRowThreads = kernels::kRowThreads;
    kernels::BackwardParams of_parts = p;
    of_parts.forward.group /= p.parts;
    void* rows[] = {&p};
    // Only a kernel that stores dBias takes the last one.
    void* main[] = {&q.map, &d_o.map, &k.map, &v.map, &of_parts, &dbias.map};
    compiled.kernels.at(0)->launch(device, static_cast<unsigned>(row_launch), kRowThreads, stream, rows);
    compiled.kernels.at(1)->launch(device, static_cast<unsigned>(blocks), static_cast<unsigned>(config.threads()),
                                   stream, main);
    if (const auto owners = owners_of_dq(config)) {
      kernels::BackwardParams of_rows = p;
      const std::int64_t row_tiles = ceil_div(problem.s_q(), owners->kRows), all = problem.heads_q() * problem.batch();
      of_rows.forward.row_tiles = static_cast<int>(row_tiles);
      of_rows.forward.section = static_cast<int>(heads_of_queries(all, row_tiles));
      void* queries[] = {&q.map, &d_o.map, &k.map, &v.map, &of_rows};
      compiled.kernels.at(2)->launch(device, static_cast<unsigned>(row_tiles * all),
                                     static_cast<unsigned>(owners->threads()), stream, queries);
    } else {
      compiled.kernels.at(2)->launch(device, static_cast<unsigned>(row_launch), kRowThreads, stream, rows);
    }
    std::size_t launched = 3;
    if (p.parts > 1) {
      constexpr std::int64_t kGradients = 2;  // dK and dV
      compiled.kernels.at(launched++)
          ->launch(device, static_cast<unsigned>(p.key_space / kernels::kSumKeys * problem.heads_k() * kGradients),
                   kRowThreads, stream, rows);
    }
    const PortableBackwardConfigs shared = shared_gradients(problem, state().device);
    if (shared.empty() || (writes_dbias && !problem.dsink())) return;
    launch_portable_backward(shared, call, workspace_behind(problem, division.workspace(problem), shared),
                             std::span(compiled.kernels).subspan(launched), device,
                             writes_dbias ? DBias::written : DBias::missing);
  }

  HopperBackwardLine line_;
};

}  // namespace

std::int64_t HopperBackwardTiles::row_blocks(const Problem& problem) const {
  return problem.mode() == Mode::group ? ceil_div(problem.total_q(), tile_q) + problem.batch() + 1
                                       : ceil_div(problem.s_q(), tile_q) * problem.batch();
}
std::int64_t HopperBackwardTiles::key_tiles(const Problem& problem) const {
  return problem.mode() == Mode::group ? ceil_div(problem.total_k(), tile_k) + problem.batch()
                                       : ceil_div(problem.s_k(), tile_k) * problem.batch();
}
BackwardWorkspace HopperBackwardTiles::workspace(const Problem& problem) const {
  const std::int64_t blocks = row_blocks(problem);
  return divide_workspace(
      problem, {.row_space = blocks * tile_q,
                .dq_sum_floats = problem.heads_q() * blocks * tile_q * d * sum_bytes / 4,
                .turns = kCounterWords + (zeroing > 0 ? problem.batch() * problem.heads_k() * parts
                                          : problem.deterministic() && sum_bytes > 0 ? 2 * problem.heads_q() * blocks
                                                                                     : 0),
                .key_sum_floats = parts == 1 ? 0 : 2 * problem.heads_k() * parts * key_tiles(problem) * tile_k * d,
                .row_parts = false});
}
void HopperBackwardTiles::schedule(const Problem& problem, kernels::BackwardParams& p, int section) const {
  p.counter = p.turns;
  p.turns += kCounterWords;
  p.row_blocks = static_cast<int>(ceil_div(problem.s_q(), tile_q));
  p.key_tiles = static_cast<int>(ceil_div(problem.s_k(), tile_k));
  p.parts = parts;
  p.key_space = key_tiles(problem) * tile_k;
  const std::int64_t heads = problem.batch() * problem.heads_k() * parts;
  p.section = static_cast<int>(section_of(problem, features_of(problem), heads, p.key_tiles, section));
  p.zeroed_before = std::numeric_limits<int>::max();
  if (zeroing > 0) {
    p.zeroed = p.turns;
    // Who zeroes has begun before who adds: a pair further on by all tiles at work, or the next section's.
    p.zeroed_before = std::max(p.section, static_cast<int>(ceil_div(zeroing, p.key_tiles)) + 1);
  }
}

std::int64_t heads_of_queries(std::int64_t all, std::int64_t row_tiles) {
  constexpr std::int64_t kTiles = 400;
  return core::even_part(all, std::clamp<std::int64_t>(ceil_div(kTiles, row_tiles), 4, 32));
}

std::span<const HopperBackwardLine> general_backward_lines() { return kLines; }

std::shared_ptr<const CudaBackwardKernel> make_hopper_backward(const HopperBackwardLine& line,
                                                               std::shared_ptr<EngineState> state) {
  return std::make_shared<HopperBackward>(line, std::move(state));
}

}  // namespace heed::cuda
