#include "cuda/portable_backward.hpp"

#include "core/ceil_div.hpp"
#include "cuda/expected_work.hpp"
#include "cuda/forward_params.hpp"
#include "cuda/kernel_text.hpp"
#include "cuda/tensor_map.hpp"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <numeric>

namespace heed::cuda {
namespace {

using core::ceil_div;
using dispatch::BackwardAlgorithm;
using dispatch::BackwardKernelSpec;
using dispatch::BackwardSignature;
using dispatch::MathUnit;
using dispatch::Sm;
using dispatch::up_to;
using kernels::BackwardPart;
using kernels::BackwardTypes;
using kernels::PortableBackwardConfig;

constexpr std::int64_t kMaxHeadDim = 1024;

/// dQ is summed in f32: what dq_accumulation allows makes no difference.
constexpr BackwardSignature signature(dispatch::Set<DataType> types, dispatch::Set<Math> math) {
  return {.types = types,
          .d = up_to(kMaxHeadDim),
          .d_v = up_to(kMaxHeadDim),
          .math = math,
          .accumulate = dispatch::any,
          .lengths = {0, std::int64_t{1} << 28, 1}};
}

constexpr std::array kSpecs{
    BackwardKernelSpec{
        "portable_bwd_16bit", signature({DataType::f16, DataType::bf16}, {Math::fast}),
        BackwardAlgorithm{.arch = Sm{80},
                          .unit = MathUnit::mma,
                          .tile_q = 128,
                          .tile_k = 128,
                          .notes = "five products where dQ may be added up in any order; any stride and address"}},
    BackwardKernelSpec{"portable_bwd_accurate", signature({DataType::f16, DataType::bf16}, {Math::accurate}),
                       BackwardAlgorithm{.arch = Sm{80},
                                         .unit = MathUnit::f32_fma,
                                         .tile_q = 64,
                                         .tile_k = 64,
                                         .notes = "16-bit elements, f32 products; any stride and address"}},
    BackwardKernelSpec{"portable_bwd_f32", signature({DataType::f32}, dispatch::any),
                       BackwardAlgorithm{.arch = Sm{80},
                                         .unit = MathUnit::f32_fma,
                                         .tile_q = 64,
                                         .tile_k = 64,
                                         .notes = "true f32 products; any stride and address"}},
};

/// See PortableBackwardConfig::row_bytes.
int row_bytes(const Problem& problem, std::initializer_list<Operand> operands) {
  std::int64_t bytes = 16, least = 16;
  bool neighbours = problem.aligned();
  for (const Operand which : operands) {
    const bool output = which == Operand::o || which == Operand::d_o;
    const std::int64_t element = bits(output ? problem.output_type() : problem.type()) / 8;
    const Strides s = problem.strides(which);
    least = std::min(least, element);
    neighbours = neighbours && s.dim == 1;
    for (const std::int64_t step : {s.sequence, s.head, s.batch}) bytes = std::gcd(bytes, step * element);
  }
  return static_cast<int>(neighbours ? std::max(bytes, least) : least);
}

/// What products are computed in. A dO of another type than Q, K and V must not be rounded to theirs: D, computed from
/// all of dO, would no longer cancel dP where they are equal.
kernels::Element product_type(const Problem& problem) {
  const bool one_type = problem.type() == problem.output_type();
  return problem.math() == Math::accurate || !one_type ? kernels::Element::f32 : element_of(problem.type());
}

/// Whether tiles of keys may add to dQ in memory, in any order. With few rows blocks would be empty for the most part,
/// and who owns a row of dQ sums up its part of dSlopes, too.
bool adds_up_dq(const Problem& problem) {
  constexpr std::int64_t kFewRows = 64;
  return !problem.deterministic() && !problem.dslopes() && problem.s_q() >= kFewRows;
}

std::string_view purpose(BackwardPart part) {
  switch (part) {
    case BackwardPart::rows:
      return "LSE and D of rows";
    case BackwardPart::together:
      return "dK, dV and the sum of dQ";
    case BackwardPart::gather:
      return "dQ from its sum";
    case BackwardPart::keys_values:
      return "dK and dV";
    case BackwardPart::values:
      return "dV";
    case BackwardPart::keys:
      return "dK";
    case BackwardPart::queries:
      return "dQ";
    case BackwardPart::bias:
      return "dBias";
    case BackwardPart::bias_sum:
      return "dBias from its parts";
    case BackwardPart::sums:
      return "sums over rows";
  }
  return "";
}

/// Heads whose tiles of keys go together under a right mask, the longest first: some 700 tiles, and sections of one
/// size, for in a small last one the longest tiles would come too late. Of all heads, Q, dO and dQ would not stay in
/// the second-level cache.
int section(std::int64_t key_tiles, std::int64_t heads) {
  constexpr std::int64_t kTiles = 700;
  const std::int64_t most = std::max<std::int64_t>(kTiles / std::max<std::int64_t>(key_tiles, 1), 1);
  return static_cast<int>(std::min<std::int64_t>(core::even_part(heads, most), std::numeric_limits<int>::max()));
}

/// The tiles of dBias, as many as its kernels count (DBiasTiles), and how many pairs of batch entry and head share
/// each. How long a table is beyond the longest sequence is known only when it comes: it has no tiles there.
struct SharedDBias {
  std::int64_t tiles, pairs;
};
SharedDBias shared_dbias(const Problem& problem, const PortableBackwardConfig& c) {
  const Broadcast shape = problem.bias()->shape;
  const std::int64_t rows = shape.query ? problem.s_q() : 1, columns = shape.key ? problem.s_k() : 1,
                     heads = shape.head ? problem.heads_q() : 1, batch = shape.batch ? problem.batch() : 1;
  return {ceil_div(columns, c.block) * ceil_div(rows, c.tile()) * heads * batch,
          (shape.head ? 1 : problem.heads_q()) * (shape.batch ? 1 : problem.batch())};
}

/// Parts of what a tile of dBias sums, so that all multiprocessors have some. Each costs as much as some pairs more:
/// the way of its sums through memory.
int parts_of_dbias(const SharedDBias& bias, int multiprocessors) {
  constexpr double kCostInPairs = 1.5;
  if (multiprocessors == 0) return 1;  // of a GPU that is only imagined
  const std::int64_t most = std::min(bias.pairs, 4 * multiprocessors / std::max<std::int64_t>(bias.tiles, 1));
  int best = 1;
  double least = static_cast<double>(ceil_div(bias.tiles, multiprocessors) * bias.pairs);
  for (int parts = 2; parts <= most; ++parts) {
    const double time = static_cast<double>(ceil_div(bias.tiles * parts, multiprocessors)) *
                        (static_cast<double>(ceil_div(bias.pairs, parts)) + kCostInPairs);
    if (time < least) least = time, best = parts;
  }
  return best;
}

/// Of a dBias that has come, DBiasTiles: what its sizes are where sequences reach, and the tiles of that.
std::int64_t dbias_rows(const kernels::BackwardParams& p) {
  return p.d_bias_rows == 1 ? 1 : std::min(p.d_bias_rows, p.forward.longest_q);
}
std::int64_t dbias_columns(const kernels::BackwardParams& p) {
  return p.d_bias_columns == 1 ? 1 : std::min(p.d_bias_columns, p.forward.longest_k);
}
std::int64_t dbias_tiles(const PortableBackwardConfig& c, const kernels::BackwardParams& p) {
  return ceil_div(dbias_columns(p), c.block) * ceil_div(dbias_rows(p), c.tile()) * p.d_bias_heads * p.d_bias_batch;
}
/// Thread blocks that the zeros behind those are worth, whether there are tiles or not.
std::int64_t blocks_for_unreached_dbias(const kernels::BackwardParams& p) {
  constexpr std::int64_t kElements = 1 << 14, kMost = 128;
  const std::int64_t all = std::int64_t{p.d_bias_rows} * p.d_bias_columns,
                     behind = (all - dbias_rows(p) * dbias_columns(p)) * p.d_bias_heads * p.d_bias_batch;
  return std::min(ceil_div(behind, kElements), kMost);
}

class PortableBackward final : public CudaBackwardKernel {
 public:
  PortableBackward(const BackwardKernelSpec& spec, std::shared_ptr<EngineState> state)
      : CudaBackwardKernel(spec, std::move(state)) {}

  /// Seven products where the scores are computed for keys and for queries, else five, in more launches.
  double expected_seconds(const Problem& problem) const override {
    const double rate = product_type(problem) == kernels::Element::f32 ? 25e12 : 250e12;
    const double pairs = 2 * expected_pairs(problem), d = static_cast<double>(problem.d()),
                 d_v = static_cast<double>(problem.d_v());
    const bool together = configs(problem).dq_sum_columns() > 0;
    return together ? 20e-6 + pairs * (3 * d + 2 * d_v) / rate : 12e-6 + pairs * (4 * d + 3 * d_v) / rate;
  }

  std::vector<Step> steps(const Problem& problem, const Device& device) const override {
    return portable_backward_steps({problem, portable_device(device), device.multiprocessors}, portable_arch(device));
  }

 private:
  BackwardWorkspace workspace(const Problem& problem) const override { return workspace(problem, configs(problem)); }
  static BackwardWorkspace workspace(const Problem& problem, const PortableBackwardConfigs& configs) {
    const std::int64_t rows = packed_row_space(problem);
    return divide_workspace(problem, {.row_space = rows,
                                      .dq_sum_floats = problem.heads_q() * rows * configs.dq_sum_columns(),
                                      .d_bias_floats = configs.dbias_floats()});
  }

  PortableBackwardConfigs configs(const Problem& problem) const {
    if (!has_state()) return {problem, {}, 1};
    return {problem, portable_device(state().device), state().device.multiprocessors};
  }

  void launch(const dispatch::BackwardCall& call, const Compiled& compiled, int device) const override {
    const PortableBackwardConfigs all = configs(call.problem);
    launch_portable_backward(all, call, workspace(call.problem, all), compiled.kernels, device);
  }
};

}  // namespace

std::span<const BackwardKernelSpec> portable_backward_specs() { return kSpecs; }

std::int64_t portable_backward_blocks(const PortableBackwardConfig& c, const Problem& problem,
                                      kernels::BackwardParams& p) {
  const kernels::ForwardParams& f = p.forward;
  const auto passes = [&](int columns) { return c.in_pieces() ? ceil_div(columns, c.pass) : 1; };
  const std::int64_t rows = ceil_div(f.longest_q, c.tile()), keys = ceil_div(f.longest_k, c.tile());
  switch (c.part) {
    case BackwardPart::rows:
    case BackwardPart::gather:
    case BackwardPart::queries:
      p.forward.row_tiles = static_cast<int>(rows);
      return rows * f.heads * f.batch * (c.part == BackwardPart::queries ? passes(f.d) : 1);
    case BackwardPart::together:
      p.forward.row_tiles = static_cast<int>(keys);
      p.forward.section = section(keys, problem.heads_k() * f.batch);
      return keys * problem.heads_k() * f.batch;
    case BackwardPart::keys_values:
    case BackwardPart::values:
    case BackwardPart::keys:
      p.forward.row_tiles = static_cast<int>(keys);
      return keys * problem.heads_k() * f.batch * passes(c.has_keys() ? f.d : f.d_v);
    case BackwardPart::bias:
      return std::max(dbias_tiles(c, p) * p.d_bias_parts, blocks_for_unreached_dbias(p));
    case BackwardPart::bias_sum:
      return dbias_tiles(c, p);
    case BackwardPart::sums:
      return (p.d_sink ? problem.heads_q() : 0) +
             (p.d_slopes ? problem.heads_q() * (p.d_slope_steps.batch != 0 ? problem.batch() : 1) : 0);
  }
  return 0;
}

std::vector<CudaBackwardKernel::Step> portable_backward_steps(const PortableBackwardConfigs& configs,
                                                              const std::string& arch) {
  std::vector<CudaBackwardKernel::Step> list;
  for (const PortableBackwardConfig& config : configs)
    list.push_back({std::string(purpose(config.part)),
                    {kernel_source(config), config.by_wgmma ? "sm_90a" : arch, config.shared_bytes()}});
  return list;
}

void launch_portable_backward(const PortableBackwardConfigs& configs, const dispatch::BackwardCall& call,
                              const BackwardWorkspace& workspace,
                              std::span<const std::shared_ptr<const LoadedKernel>> kernels, int device, DBias dbias) {
  // Where a tile of dBias sums little, the copies of the next one must be under way before: so each thread block has
  // several.
  constexpr std::int64_t kFewPairs = 8;
  const std::int64_t multiprocessors = devices().at(static_cast<std::size_t>(device)).multiprocessors;
  kernels::BackwardParams p = backward_params(call, workspace);
  p.d_bias_parts = configs.dbias_parts();
  void* parameters[] = {&p};
  auto kernel = kernels.begin();
  for (const PortableBackwardConfig& config : configs) {
    const LoadedKernel& step = **kernel++;
    if (dbias == DBias::written && (config.part == BackwardPart::bias || config.part == BackwardPart::bias_sum))
      continue;
    std::int64_t count = portable_backward_blocks(config, call.problem, p);
    if (count == 0) continue;
    if (config.part == BackwardPart::bias && shared_dbias(call.problem, config).pairs < kFewPairs)
      count = std::min(count, multiprocessors * config.resident_blocks());
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(count, std::numeric_limits<std::int32_t>::max()));
    const auto threads = static_cast<unsigned>(config.launched_threads());
    const auto stream = static_cast<CUstream>(call.stream);
    if (config.by_wgmma) {
      const auto map = [&](Operand which, const void* data, int rows, kernels::MapSteps& steps) {
        const MappedTensor mapped = map_operand(call.problem, p.forward, which, data, static_cast<unsigned>(rows));
        steps = mapped.steps;
        return mapped.map;
      };
      CUtensorMap q = map(Operand::q, p.forward.q, config.tile(), p.q_map),
                  d_o = map(Operand::d_o, p.d_o, config.tile(), p.d_o_map),
                  k = map(Operand::k, p.forward.k, config.block, p.k_map),
                  v = map(Operand::v, p.forward.v, config.block, p.v_map);
      void* mapped[] = {&q, &d_o, &k, &v, &p};
      step.launch(device, blocks, threads, stream, mapped);
    } else {
      step.launch(device, blocks, threads, stream, parameters);
    }
  }
}

PortableBackwardConfigs::PortableBackwardConfigs(const Problem& problem, const kernels::PortableDevice& device,
                                                 int multiprocessors, PortableGradients which) {
  if (which == PortableGradients::shared && !problem.dbias() && !problem.dsink()) return;
  const kernels::ForwardFeatures features = features_of(problem);
  const BackwardTypes types{.type = product_type(problem),
                            .input = element_of(problem.type()),
                            .output = element_of(problem.output_type()),
                            .d = static_cast<int>(problem.d()),
                            .d_v = static_cast<int>(problem.d_v()),
                            .row_bytes = row_bytes(problem, {Operand::q, Operand::k, Operand::v, Operand::d_o})};
  const auto add = [&](BackwardPart part) {
    BackwardTypes of_part = types;
    if (part == BackwardPart::rows) of_part.row_bytes = row_bytes(problem, {Operand::o, Operand::d_o});
    list_[count_++] = kernels::portable_backward_config(part, of_part, features, device);
  };
  add(BackwardPart::rows);
  if (which == PortableGradients::all) {
    if (adds_up_dq(problem) && kernels::computed_together(types, features, device)) {
      list_.front().d = kernels::head_tile(types.d);
      add(BackwardPart::together);
      add(BackwardPart::gather);
    } else {
      if (kernels::keys_and_values_together(types, features)) {
        add(BackwardPart::keys_values);
      } else {
        add(BackwardPart::values);
        add(BackwardPart::keys);
      }
      add(BackwardPart::queries);
    }
  }
  if (problem.dbias()) {
    add(BackwardPart::bias);
    PortableBackwardConfig& config = list_[count_ - 1];
    config.d_bias = element_of(*problem.dbias());
    if (which == PortableGradients::shared && kernels::can_be_by_wgmma(config, types.d, types.d_v))
      config = kernels::bias_config_by_wgmma(config, types.d, types.d_v);
    const SharedDBias shared = shared_dbias(problem, config);
    dbias_parts_ = parts_of_dbias(shared, multiprocessors);
    if (dbias_parts_ > 1) {
      dbias_floats_ = shared.tiles * dbias_parts_ * config.tile() * config.block;
      list_[count_++] = kernels::bias_sum_config(config);
    }
  }
  if (problem.dsink() || problem.dslopes()) add(BackwardPart::sums);
}

std::shared_ptr<const dispatch::BackwardKernel> make_portable_backward(const BackwardKernelSpec& spec,
                                                                       std::shared_ptr<EngineState> state) {
  return std::make_shared<PortableBackward>(spec, std::move(state));
}

}  // namespace heed::cuda
