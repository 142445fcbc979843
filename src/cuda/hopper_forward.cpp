#include "cuda/hopper_forward.hpp"

#include "cuda/expected_work.hpp"
#include "cuda/kernel_text.hpp"
#include "cuda/tensor_map.hpp"
#include "cuda/tile_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace heed::cuda {
namespace {

using kernels::HopperConfig;

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
    const double fit = (tuned ? line_.preference : 1.2) * (1 + 0.05 * line_.room);
    return 4e-6 + fit * 2 * pairs * (c.d + c.d_v) / rate;
  }

  std::string impossible(const Problem& problem) const override { return broken_limit(hopper_config(line_, problem)); }

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
    LastMaps::Maps maps = compiled.maps.get({p.q, p.k, p.v, p.o}, [&] {
      return LastMaps::Maps{
          .q = map(Operand::q, p.q, problem.d(), p.s_q, problem.heads_q(), 64),
          .k = map(Operand::k, p.k, problem.d(), p.s_k, problem.heads_k(), config.tile_k / config.cluster),
          .v = map_v(),
          .o = map(Operand::o, p.o, problem.d_v(), p.s_q, problem.heads_q(), 16)};
    });
    p.q_map = maps.q.steps;
    p.k_map = maps.k.steps;
    p.v_map = maps.v.steps;
    p.o_map = maps.o.steps;
    p.counter = reinterpret_cast<unsigned*>(call.workspace.data());
    p.row_tiles = static_cast<int>(ceil_div(problem.s_q(), config.tile_rows()));
    const TileOrder order = tile_order(problem, p.row_tiles);
    p.section = order.section;
    p.light = order.light;
    // Sequences of their own lengths: what is left over at each one's end makes one tile more.
    const std::int64_t tiles =
        group ? (ceil_div(problem.total_q(), config.tile_q()) + problem.batch()) * problem.heads_q()
              : p.row_tiles * problem.heads_q() * problem.batch();
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
