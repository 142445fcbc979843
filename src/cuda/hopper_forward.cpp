#include "cuda/hopper_forward.hpp"

#include "core/ceil_div.hpp"
#include "cuda/expected_work.hpp"
#include "cuda/kernel_text.hpp"
#include "cuda/tensor_map.hpp"
#include "cuda/tile_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace heed::cuda {
namespace {

using core::ceil_div;
using kernels::HopperConfig;

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
    const double fit = (tuned ? line_.preference : 1.2) * (1 + kCostOfRoom * line_.room);
    return 4e-6 + fit * share_of_tiles(problem) * 2 * pairs * (c.d + c.d_v) / rate;
  }

  std::string impossible(const Problem& problem) const override { return broken_limit(hopper_config(line_, problem)); }

  std::string too_much(const Problem& problem) const override {
    if (line_.only_block_masks && (!problem.block_mask() || problem.block_mask()->block_k % line_.config.tile_k != 0))
      return fmt::format("it is for block masks whose blocks are multiples of {} keys", line_.config.tile_k);
    if (line_.only_narrow_biases && !has_narrow_bias(problem))
      return "it is for a bias of 16 bits with an even number of keys";
    const int weight = line_.config.weight_of(features_of(problem));
    if (weight <= line_.room) return {};
    return fmt::format("the features weigh {}, there is room for {}", weight, line_.room);
  }

  Compilation compilation(const Problem& problem, const Device&) const override {
    const HopperConfig config = hopper_config(line_, problem);
    return {kernel_source(config), "sm_90a", config.shared_bytes()};
  }

 private:
  /// Query heads whose rows share tiles.
  static std::int64_t heads_together(const HopperConfig& config, const Problem& problem) {
    return config.features.packed ? problem.heads_q() / problem.heads_k() : 1;
  }
  /// What is left of the tiles of single heads where heads share them. Only where a head alone does not fill a tile:
  /// what the ends of longer sequences save would have every other length served by another kernel.
  double share_of_tiles(const Problem& problem) const {
    const HopperConfig config = hopper_config(line_, problem);
    if (!config.features.packed || row_tiles(config, problem, 1) > 1) return 1;
    const std::int64_t group = heads_together(config, problem);
    return static_cast<double>(row_tiles(config, problem, group)) / static_cast<double>(group);
  }

  void launch(const dispatch::ForwardCall& call, const Compiled& compiled, int device) const override {
    const Problem& problem = call.problem;
    const HopperConfig config = hopper_config(line_, problem);
    const bool group = problem.mode() == Mode::group;
    kernels::ForwardParams p = forward_params(call);
    const auto map = [&](Operand which, const void* data, std::int64_t columns, std::int64_t rows, std::int64_t heads,
                         int box_rows) {
      return map_tensor(data, problem.type(), problem.strides(which), columns, rows, heads, problem.batch(),
                        static_cast<unsigned>(box_rows));
    };
    // By columns V is a matrix of d_v rows of keys.
    const auto map_v = [&] {
      if (!config.v_by_columns)
        return map(Operand::v, p.v, problem.d_v(), p.s_k, problem.heads_k(), config.tile_k / config.cluster);
      Strides strides = problem.strides(Operand::v);
      std::swap(strides.sequence, strides.dim);
      return map_tensor(p.v, problem.type(), strides, p.s_k, problem.d_v(), problem.heads_k(), problem.batch(),
                        static_cast<unsigned>(config.d_v));
    };
    const std::int64_t together = heads_together(config, problem);
    const auto map_rows = [&](Operand which, const void* data, std::int64_t columns, int box_rows) {
      if (!config.features.packed) return map(which, data, columns, p.s_q, problem.heads_q(), box_rows);
      return map_groups(data, problem.type(), problem.strides(which), columns, p.s_q, problem.heads_q(), together,
                        problem.batch(), static_cast<unsigned>(box_rows));
    };
    LastMaps::Maps maps = compiled.maps.get({p.q, p.k, p.v, p.o}, [&] {
      return LastMaps::Maps{
          .q = map_rows(Operand::q, p.q, problem.d(), 64),
          .k = map(Operand::k, p.k, problem.d(), p.s_k, problem.heads_k(), config.tile_k / config.cluster),
          .v = map_v(),
          .o = map_rows(Operand::o, p.o, problem.d_v(), 16)};
    });
    p.q_map = maps.q.steps;
    p.k_map = maps.k.steps;
    p.v_map = maps.v.steps;
    p.o_map = maps.o.steps;
    p.counter = reinterpret_cast<unsigned*>(call.workspace.data());
    p.group_shift = std::countr_zero(static_cast<std::uint64_t>(together));
    p.row_tiles = static_cast<int>(row_tiles(config, problem, together));
    const TileOrder order = tile_order(problem, p.row_tiles);
    p.section = static_cast<int>(ceil_div(order.section, together));
    p.light = order.light;
    // Sequences of their own lengths: what is left over at each one's end makes one tile more.
    const std::int64_t heads = problem.heads_q() / together;
    const std::int64_t tiles = group
                                   ? (ceil_div(problem.total_q() * together, config.tile_q()) + problem.batch()) * heads
                                   : p.row_tiles * heads * problem.batch();
    const std::int64_t most = config.persistence == kernels::Persistence::one_tile
                                  ? std::numeric_limits<std::int32_t>::max() / config.cluster
                                  : devices().at(static_cast<std::size_t>(device)).multiprocessors / config.cluster;
    const std::int64_t blocks = std::min(tiles, most) * config.cluster;
    void* parameters[] = {&maps.q.map, &maps.k.map, &maps.v.map, &maps.o.map, &p};
    compiled.main->launch(device, static_cast<unsigned>(blocks), static_cast<unsigned>(config.threads()),
                          static_cast<CUstream>(call.stream), parameters);
  }

  HopperLine line_;
};

}  // namespace

std::shared_ptr<const CudaForwardKernel> make_hopper_forward(const HopperLine& line,
                                                             std::shared_ptr<EngineState> state) {
  return std::make_shared<HopperForward>(line, std::move(state));
}

}  // namespace heed::cuda
