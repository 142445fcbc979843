#include "cuda/hopper_forward.hpp"

#include "cuda/expected_work.hpp"
#include "cuda/kernel_text.hpp"
#include "cuda/tensor_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace heed::cuda {
namespace {

using dispatch::Feature;
using dispatch::ForwardAlgorithm;
using dispatch::ForwardSignature;
using dispatch::MaskClass;
using dispatch::MathUnit;
using dispatch::Set;
using dispatch::Sizes;
using kernels::HopperConfig;
using kernels::Turns;

/// Everything but a V whose keys are neighbours.
constexpr Set<Feature> kAllFeatures{Feature::lse,        Feature::bias,           Feature::alibi,   Feature::soft_cap,
                                    Feature::sink,       Feature::dropout,        Feature::randval, Feature::bool_mask,
                                    Feature::block_mask, Feature::logical_lengths};
constexpr Set<Feature> kFewFeatures{Feature::lse, Feature::sink};
constexpr Set<MaskClass> kFull{MaskClass::none}, kCausal{MaskClass::causal};

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
constexpr Sizes dims(std::int64_t from, std::int64_t to) { return {from, to, 8}; }

constexpr HopperLine line(std::string_view stem, const ForwardSignature& s, const HopperConfig& config,
                          std::string_view notes, int room, std::int64_t from_s_k = 0,
                          std::int64_t to_s_k = Sizes::kNoLimit) {
  return {{stem, s,
           ForwardAlgorithm{.arch = dispatch::Sm{90},
                            .unit = MathUnit::wgmma,
                            .tile_q = config.tile_q(),
                            .tile_k = config.tile_k,
                            .notes = notes}},
          config,
          room,
          from_s_k,
          to_s_k};
}

constexpr std::array kLines{
    line("hopper_fwd_d64_full", lean(signature(dims(8, 64), dims(8, 64)), kFull),
         {.d = 64, .d_v = 64, .tile_k = 64, .warpgroups = 4, .turns = Turns::products},
         "4 warpgroups in turns, lazy maximum", 0),
    line("hopper_fwd_d64_causal", lean(signature(dims(8, 64), dims(8, 64)), kCausal),
         {.d = 64, .d_v = 64, .tile_k = 64, .warpgroups = 4, .k_stages = 5, .v_stages = 5},
         "4 free warpgroups, lazy maximum", 0),
    line("hopper_fwd_d64_192x112", masks_and_lengths(signature(dims(8, 64), dims(8, 64))),
         {.d = 64, .d_v = 64, .tile_k = 112, .warpgroups = 3, .k_stages = 3, .v_stages = 3},
         "3 free warpgroups, wide blocks", 1),
    line("hopper_fwd_d64", signature(dims(8, 64), dims(8, 64)), {.d = 64, .d_v = 64, .tile_k = 64, .warpgroups = 3},
         "3 free warpgroups", 3),
    line("hopper_fwd_d64_features", signature(dims(8, 64), dims(8, 64)),
         {.d = 64, .d_v = 64, .tile_k = 64, .warpgroups = 2}, "2 free warpgroups with room for every feature", 12),
    line("hopper_fwd_d96", signature(dims(8, 96), dims(8, 96)), {.d = 96, .d_v = 96, .tile_k = 64, .warpgroups = 3},
         "3 free warpgroups", 1),
    line("hopper_fwd_d128_short", lean(signature(dims(8, 128), dims(8, 128)), kFull),
         {.d = 128, .d_v = 128, .tile_k = 128, .warpgroups = 2, .k_stages = 2, .v_stages = 2},
         "2 free warpgroups, wide blocks", 0, 0, 1024),
    line("hopper_fwd_d128_full", lean(signature(dims(8, 128), dims(8, 128)), kFull),
         {.d = 128, .d_v = 128, .tile_k = 64, .warpgroups = 3, .turns = Turns::products},
         "3 warpgroups in turns, lazy maximum", 0, 1025),
    line("hopper_fwd_d128", signature(dims(8, 128), dims(8, 128)),
         {.d = 128, .d_v = 128, .tile_k = 64, .warpgroups = 3}, "3 free warpgroups", 2),
    line("hopper_fwd_d128_128x64", signature(dims(8, 128), dims(8, 128)),
         {.d = 128, .d_v = 128, .tile_k = 64, .warpgroups = 2, .k_stages = 4, .v_stages = 4}, "2 free warpgroups", 4),
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

/// Which row tiles come when under a causal mask: measured, see docs/kernels/log.md, "causal order".
struct CausalOrder {
  int section, light;
};
CausalOrder causal_order(const Problem& problem, int row_tiles) {
  // Sections of heads whose K and V share the second-level cache, smaller for short sequences, which are read from
  // memory more often per product; about equal in size. The light rows of all heads come last and even out the finish.
  constexpr double kMost = 64 << 20, kLeast = 8 << 20;
  const double s_k = static_cast<double>(problem.s_k());
  const double heads = static_cast<double>(problem.batch() * problem.heads_k());
  const double bytes = heads * s_k * static_cast<double>(problem.d() + problem.d_v()) * 2;
  const double limit = std::min(kMost, std::max(kLeast, s_k * 16384));
  const double sections = std::max(1.0, std::round(bytes / limit));
  const double group = static_cast<double>(problem.heads_q()) / static_cast<double>(problem.heads_k());
  return {static_cast<int>(std::ceil(heads / sections) * group),
          static_cast<int>(row_tiles * (problem.s_k() < 2048 ? 0.25 : 0.375))};
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

class HopperForward final : public CudaForwardKernel {
 public:
  HopperForward(const HopperLine& line, std::shared_ptr<EngineState> state)
      : CudaForwardKernel(line.spec, std::move(state)), line_(line) {}

  double expected_seconds(const Problem& problem) const override {
    // The tile that is computed, whole, at a rate that grows with d. What was measured to be worse here counts a fifth
    // more; room for features costs, too.
    const HopperConfig& c = line_.config;
    const double pairs = expected_pairs(problem);
    const double rate = (c.d_v >= 128 ? 600e12 : 500e12);
    const bool tuned = problem.s_k() >= line_.from_s_k && problem.s_k() <= line_.to_s_k;
    const double fit = (tuned ? 1.0 : 1.2) * (1 + 0.05 * line_.room);
    return 4e-6 + fit * 2 * pairs * (c.d + c.d_v) / rate;
  }

  std::string too_much(const Problem& problem) const override {
    const int weight = features_of(problem).weight();
    if (weight <= line_.room) return {};
    return fmt::format("the features weigh {}, there is room for {}", weight, line_.room);
  }

  Compilation compilation(const Problem& problem, const Device&) const override {
    const HopperConfig config = hopper_config(line_, problem);
    return {kernel_source(config), "sm_90a", config.shared_bytes()};
  }

 private:
  void launch(const dispatch::ForwardCall& call, const Compiled& compiled, int device) const override {
    const Problem& problem = call.problem;
    const HopperConfig& config = line_.config;
    const bool group = problem.mode() == Mode::group;
    kernels::ForwardParams p = forward_params(call);
    const auto map = [&](Operand which, const void* data, std::int64_t columns, std::int64_t rows, std::int64_t heads,
                         int box_rows) {
      return map_tensor(data, problem.type(), problem.strides(which), columns, rows, heads, problem.batch(),
                        static_cast<unsigned>(box_rows));
    };
    MappedTensor q = map(Operand::q, p.q, problem.d(), p.s_q, problem.heads_q(), 64);
    MappedTensor k = map(Operand::k, p.k, problem.d(), p.s_k, problem.heads_k(), config.tile_k);
    MappedTensor v = map(Operand::v, p.v, problem.d_v(), p.s_k, problem.heads_k(), config.tile_k);
    MappedTensor o = map(Operand::o, p.o, problem.d_v(), p.s_q, problem.heads_q(), 16);
    p.q_map = q.steps;
    p.k_map = k.steps;
    p.v_map = v.steps;
    p.o_map = o.steps;
    p.counter = reinterpret_cast<unsigned*>(call.workspace.data());
    p.row_tiles = static_cast<int>(ceil_div(problem.s_q(), config.tile_q()));
    const CausalOrder order = causal_order(problem, p.row_tiles);
    p.section = order.section;
    p.light = order.light;
    // Sequences of their own lengths: what is left over at each one's end makes one tile more.
    const std::int64_t tiles =
        group ? (ceil_div(problem.total_q(), config.tile_q()) + problem.batch()) * problem.heads_q()
              : p.row_tiles * problem.heads_q() * problem.batch();
    const std::int64_t blocks =
        std::min<std::int64_t>(tiles, devices().at(static_cast<std::size_t>(device)).multiprocessors);
    void* parameters[] = {&q.map, &k.map, &v.map, &o.map, &p};
    compiled.main->launch(device, static_cast<unsigned>(blocks), static_cast<unsigned>(config.threads()),
                          static_cast<CUstream>(call.stream), parameters);
  }

  HopperLine line_;
};

}  // namespace

std::span<const HopperLine> hopper_lines() { return kLines; }

HopperConfig hopper_config(const HopperLine& line, const Problem& problem) {
  HopperConfig config = line.config;
  config.type = element_of(problem.type());
  config.features = features_of(problem);
  // Scores that need more than a factor leave no registers for a second look at them.
  if (config.features.changes_scores() && config.warpgroups > 2 && config.d_v > 64) config.lazy_maximum = false;
  return config;
}

std::shared_ptr<const dispatch::ForwardKernel> make_hopper_forward(const HopperLine& line,
                                                                   std::shared_ptr<EngineState> state) {
  return std::make_shared<HopperForward>(line, std::move(state));
}

}  // namespace heed::cuda
