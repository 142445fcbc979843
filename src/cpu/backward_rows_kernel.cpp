#include "cpu/backward_rows_kernel.hpp"

#include "core/float_bits.hpp"
#include "cpu/backward_jobs.hpp"
#include "cpu/backward_rows.hpp"
#include "cpu/shared_gradients.hpp"

#include <heed/executor.hpp>

#include <algorithm>
#include <array>

namespace heed::cpu {
namespace {

using dispatch::BackwardCall;
using dispatch::BackwardKernelSpec;

constexpr std::int64_t kMaxHeadDim = 1024;
constexpr std::int64_t kMaxLength = (std::int64_t{1} << 31) - 4096;

constexpr BackwardKernelSpec kSpec{.stem = "bwd_rows",
                                   .signature = {.types = {DataType::f32, DataType::f16, DataType::bf16},
                                                 .d = dispatch::up_to(kMaxHeadDim),
                                                 .d_v = dispatch::up_to(kMaxHeadDim),
                                                 .accumulate = {DataType::f32, DataType::f16, DataType::bf16},
                                                 .lengths = {0, kMaxLength, 1}},
                                   .algorithm = {.arch = dispatch::CpuIsa::baseline,
                                                 .unit = dispatch::MathUnit::f32_fma,
                                                 .tile_q = kBackwardRows,
                                                 .tile_k = kBackwardKeys,
                                                 .notes = "plain loops; P once for dQ, and again for dK and dV"}};

std::size_t align_up(std::size_t n) { return (n + 127) / 128 * 128; }

/// Slices of the workspace: D of all rows, then scratch of each worker.
struct Layout {
  std::size_t delta_bytes = 0, scratch_floats = 0, total = 0;

  Layout(const Problem& problem, int threads) {
    const auto d = static_cast<std::size_t>(problem.d()), d_v = static_cast<std::size_t>(problem.d_v());
    delta_bytes = align_up(static_cast<std::size_t>(BackwardJobs::delta_rows(problem)) * sizeof(float));
    // K and V of a block, a row of Q and dO, and sums: of dQ of all rows of a piece, or of dK and dV of a block.
    const std::size_t sums = std::max(kBackwardRows * d, kBackwardKeys * (d + d_v));
    scratch_floats = align_up((kBackwardKeys * (d + d_v) + d + d_v + sums) * sizeof(float)) / sizeof(float);
    total = delta_bytes + scratch_floats * sizeof(float) * static_cast<std::size_t>(threads);
  }
};

/// One piece's memory.
struct Scratch {
  BackwardBlock block;
  BackwardRow row;
  float* sums;

  Scratch(float* memory, const Problem& problem) {
    const auto take = [&](std::int64_t n) {
      float* const at = memory;
      memory += n;
      return at;
    };
    block.k = take(kBackwardKeys * problem.d());
    block.v = take(kBackwardKeys * problem.d_v());
    row.q = take(problem.d());
    row.d_o = take(problem.d_v());
    sums = memory;
  }
};

class BackwardRowsKernel final : public dispatch::BackwardKernel {
 public:
  BackwardRowsKernel() : BackwardKernel(kSpec) {}

  double expected_seconds(const Problem& problem) const override {
    constexpr double kGflops = 4;
    const double pairs = static_cast<double>(problem.batch() * problem.heads_q()) * static_cast<double>(problem.s_q()) *
                         static_cast<double>(problem.s_k());
    return 1e-6 + 10e-9 * pairs * static_cast<double>(problem.d() + problem.d_v()) / kGflops;
  }

  std::vector<Plan::Stage> stages(const Problem& problem, int threads) const override {
    const Layout layout(problem, threads);
    const std::size_t scratch = layout.total - layout.delta_bytes;
    std::vector<Plan::Stage> list{{name(), "dot of dO and O", 0, layout.delta_bytes},
                                  {name(), "dQ", layout.delta_bytes, scratch},
                                  {name(), "dK and dV", layout.delta_bytes, scratch}};
    if (problem.dbias() || problem.dslopes())
      list.push_back({name(), "dBias and dSlopes", layout.delta_bytes, scratch});
    if (problem.dsink()) list.push_back({name(), "dSink", 0, 0});
    return list;
  }

  void run(const BackwardCall& call) const override { Run(call).all(); }

 private:
  class Run {
   public:
    explicit Run(const BackwardCall& call)
        : call_(call),
          problem_(call.problem),
          layout_(call.problem, call.threads),
          jobs_(call, reinterpret_cast<float*>(call.workspace.data())) {}

    void all() {
      if (problem_.heads_q() > 0) {
        make_delta();
        make_dq();
        make_dk_and_dv();
      }
      if (problem_.dbias() || problem_.dslopes())
        write_bias_and_slope_gradients(call_, jobs_, [this](int worker) { return scratch(worker).block_and_row(); });
      if (problem_.dsink()) write_sink_gradient(call_, jobs_);
    }

   private:
    struct Piece : Scratch {
      using Scratch::Scratch;
      std::pair<BackwardBlock, BackwardRow> block_and_row() const { return {block, row}; }
    };
    Piece scratch(int worker) const {
      auto* const memory = reinterpret_cast<float*>(call_.workspace.data() + layout_.delta_bytes);
      return Piece(memory + layout_.scratch_floats * static_cast<std::size_t>(worker), problem_);
    }

    /// Calls f(batch, sequence, head, tile, worker) for tiles of `step` of the longest sequence's rows or keys.
    template <class F>
    void for_each_tile(std::int64_t heads, std::int64_t longest, std::int64_t step, F&& f) const {
      const std::int64_t tiles = (longest + step - 1) / step;
      parallel_for(call_.executor, problem_.batch() * heads * tiles, [&](std::int64_t index, int worker) {
        const std::int64_t tile = index % tiles, head = index / tiles % heads, b = index / tiles / heads;
        f(b, jobs_.sequences()[b], head, tile * step, worker);
      });
    }

    void make_delta() {
      for_each_tile(problem_.heads_q(), problem_.s_q(), kBackwardRows,
                    [&](std::int64_t b, const core::Sequence& sequence, std::int64_t h, std::int64_t first, int) {
                      const BackwardJob job = jobs_.job(b, sequence, h);
                      for (std::int64_t i = first; i < std::min(first + kBackwardRows, sequence.s_q); ++i)
                        job.delta[i] = backward_delta(job, i);
                    });
    }

    /// dQ = scale * dS K, by the piece that has the rows.
    void make_dq() {
      for_each_tile(
          problem_.heads_q(), problem_.s_q(), kBackwardRows,
          [&](std::int64_t b, const core::Sequence& sequence, std::int64_t h, std::int64_t first, int worker) {
            const BackwardJob job = jobs_.job(b, sequence, h);
            const int d = job.forward.d;
            const std::int64_t rows = std::min(first + kBackwardRows, sequence.s_q) - first;
            if (rows <= 0) return;
            Piece piece = scratch(worker);
            std::fill_n(piece.sums, rows * d, 0.f);
            BackwardPairs pairs;
            for (int key = 0; key < job.forward.s_k; key += kBackwardKeys) {
              piece.block.pack(job.forward, key, std::min(key + kBackwardKeys, job.forward.s_k));
              for (std::int64_t r = 0; r < rows; ++r) {
                piece.row.read(job, first + r);
                if (!backward_pairs(job, piece.row, piece.block, pairs)) continue;
                for (int e = 0; e < d; ++e) {
                  const float* const k = piece.block.k + e * kBackwardKeys;
                  float sum = 0;
                  for (int n = 0; n < piece.block.keys; ++n)
                    if (pairs.d_logits[n] != 0) sum += pairs.d_logits[n] * k[n];
                  float& dq = piece.sums[r * d + e];
                  dq += job.forward.scale * sum;
                  if (job.dq_in_16_bits) dq = rounded_to(job.dq.type, dq);
                }
              }
            }
            for (std::int64_t r = 0; r < rows; ++r)
              for (int e = 0; e < d; ++e) store_number(job.dq, first + r, e, piece.sums[r * d + e]);
          });
    }

    /// dK = scale * dS^T Q and dV = P^T dO over the heads of a group, by the piece that has the keys.
    void make_dk_and_dv() {
      const std::int64_t group = problem_.heads_q() / problem_.heads_k();
      for_each_tile(
          problem_.heads_k(), problem_.s_k(), kBackwardKeys,
          [&](std::int64_t b, const core::Sequence& sequence, std::int64_t g, std::int64_t first, int worker) {
            if (first >= sequence.s_k) return;
            Piece piece = scratch(worker);
            BackwardJob job = jobs_.job(b, sequence, g * group);
            const int d = job.forward.d, d_v = job.forward.d_v;
            float *const dk = piece.sums, *const dv = dk + static_cast<std::ptrdiff_t>(kBackwardKeys) * d;
            std::fill_n(piece.sums, static_cast<std::ptrdiff_t>(kBackwardKeys) * (d + d_v), 0.f);
            piece.block.pack(job.forward, static_cast<int>(first),
                             static_cast<int>(std::min(first + kBackwardKeys, sequence.s_k)));
            BackwardPairs pairs;
            for (std::int64_t h = g * group; h < (g + 1) * group; ++h) {
              job = jobs_.job(b, sequence, h);
              for (std::int64_t i = 0; i < sequence.s_q; ++i) {
                piece.row.read(job, i);
                if (!backward_pairs(job, piece.row, piece.block, pairs)) continue;
                add_outer(dk, piece.row.q, pairs.d_logits, d);
                add_outer(dv, piece.row.d_o, pairs.weights, d_v);
              }
            }
            for (int n = 0; n < piece.block.keys; ++n) {
              for (int e = 0; e < d; ++e)
                store_number(job.dk, first + n, e, job.forward.scale * dk[e * kBackwardKeys + n]);
              for (int e = 0; e < d_v; ++e) store_number(job.dv, first + n, e, dv[e * kBackwardKeys + n]);
            }
          });
    }

    /// sums [n][keys] += row [n] times weights [keys]; a weight of 0 is a hidden pair, and touches nothing.
    static void add_outer(float* sums, const float* row, const float* weights, int n) {
      for (int e = 0; e < n; ++e, sums += kBackwardKeys)
        for (int j = 0; j < kBackwardKeys; ++j) sums[j] += weights[j] == 0 ? 0.f : row[e] * weights[j];
    }

    const BackwardCall& call_;
    const Problem& problem_;
    const Layout layout_;
    const BackwardJobs jobs_;
  };
};

}  // namespace

std::shared_ptr<const dispatch::BackwardKernel> make_backward_rows_kernel() {
  return std::make_shared<BackwardRowsKernel>();
}

}  // namespace heed::cpu
