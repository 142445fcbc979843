#include "cpu/forward_kernel.hpp"

#include "cpu/forward_jobs.hpp"
#include "cpu/forward_schedule.hpp"
#include "cpu/randval.hpp"

#include <heed/error.hpp>
#include <heed/work.hpp>

#include <algorithm>
#include <array>

namespace heed::cpu {

using dispatch::CpuIsa;
using dispatch::ForwardAlgorithm;
using dispatch::ForwardCall;
using dispatch::ForwardKernelSpec;
using dispatch::ForwardSignature;
using dispatch::MathUnit;
using dispatch::Schedule;
using dispatch::up_to;

namespace {

constexpr std::int64_t kMaxHeadDim = 1024;
constexpr std::int64_t kMaxRows = 8;  // query rows per key/value head up to which reading K and V is the whole cost
constexpr std::int64_t kMaxLength = (std::int64_t{1} << 31) - 4096;  // key numbers are 32-bit lanes

constexpr ForwardSignature any_type(dispatch::Sizes rows = dispatch::any) {
  return {.types = {DataType::f32, DataType::f16, DataType::bf16},
          .d = up_to(kMaxHeadDim),
          .d_v = up_to(kMaxHeadDim),
          .rows_per_kv_head = rows};
}
constexpr ForwardSignature bf16_products(dispatch::Sizes rows = dispatch::any) {
  ForwardSignature signature = any_type(rows);
  signature.types = {DataType::bf16};
  signature.math = {Math::fast};
  return signature;
}
constexpr dispatch::Sizes kFewRows{0, kMaxRows, 1};

constexpr ForwardAlgorithm tiles(CpuIsa isa, MathUnit unit, int strip) {
  return {.arch = isa,
          .unit = unit,
          .schedule = Schedule::tiles,
          .tile_q = strip,
          .tile_k = kKeyBlock,
          .notes = "queries in the vector lanes, exponentials inside the products"};
}
constexpr ForwardAlgorithm rows(CpuIsa isa, MathUnit unit) {
  return {.arch = isa,
          .unit = unit,
          .schedule = Schedule::split_keys,
          .tile_q = static_cast<int>(kMaxRows),
          .tile_k = 64,
          .notes = "head dim in the vector lanes, each K and V row read once per group of heads"};
}

constexpr std::array kSpecs {
  ForwardKernelSpec{"fwd_tile_f32", any_type(), tiles(CpuIsa::baseline, MathUnit::f32_fma, 12)},
      ForwardKernelSpec{"fwd_rows_f32", any_type(kFewRows), rows(CpuIsa::baseline, MathUnit::f32_fma)},
#if HEED_X86
      ForwardKernelSpec{"fwd_tile_f32", any_type(), tiles(CpuIsa::avx2, MathUnit::f32_fma, 24)},
      ForwardKernelSpec{"fwd_rows_f32", any_type(kFewRows), rows(CpuIsa::avx2, MathUnit::f32_fma)},
      ForwardKernelSpec{"fwd_tile_f32", any_type(), tiles(CpuIsa::avx512, MathUnit::f32_fma, 64)},
      ForwardKernelSpec{"fwd_rows_f32", any_type(kFewRows), rows(CpuIsa::avx512, MathUnit::f32_fma)},
      ForwardKernelSpec{"fwd_tile_dot", bf16_products(), tiles(CpuIsa::avx512bf16, MathUnit::bf16_dot, 64)},
      ForwardKernelSpec{"fwd_rows_dot", bf16_products(kFewRows), rows(CpuIsa::avx512bf16, MathUnit::bf16_dot)},
      ForwardKernelSpec{"fwd_tile_amx", bf16_products(), tiles(CpuIsa::amx, MathUnit::amx_bf16, 64)},
#endif
};

using Compute = void (*)(const ForwardJob&, const ForwardPart&, void*);

/// The functions behind one line of the table: tiles of one level, and the rows kernel for short sequences.
struct Functions {
  const ForwardKernels *tile_level, *rows_level;
  Compute tile, rows;
  double gflops;   ///< of one core, roughly: ranks the kernels
  double packing;  ///< see ScheduleTraits
  std::int32_t most_strips;
};

Functions functions_of(const ForwardAlgorithm& algorithm) {
  switch (*algorithm.arch.cpu_isa()) {
#if HEED_X86
    case CpuIsa::avx2:
      return {&kForwardAvx2, &kForwardAvx2, kForwardAvx2.tile_f32, kForwardAvx2.rows_f32, 60, 0.03, 8};
    case CpuIsa::avx512:
      return {&kForwardAvx512, &kForwardAvx512, kForwardAvx512.tile_f32, kForwardAvx512.rows_f32, 100, 0.065, 4};
    case CpuIsa::avx512bf16:
      return {&kForwardAvx512Bf16,
              &kForwardAvx512Bf16,
              kForwardAvx512Bf16.tile_dot,
              kForwardAvx512Bf16.rows_dot,
              180,
              0.06,
              4};
    case CpuIsa::amx:
      return {&kForwardAmx, &kForwardAvx512Bf16, kForwardAmx.tile_amx, kForwardAvx512Bf16.rows_dot, 500, 0.4, 8};
#endif
    default:
      return {&kForwardBaseline, &kForwardBaseline, kForwardBaseline.tile_f32, kForwardBaseline.rows_f32, 15, 0.02, 8};
  }
}

constexpr std::size_t align_up(std::size_t n) { return (n + 127) / 128 * 128; }

class CpuForwardKernel final : public dispatch::ForwardKernel {
 public:
  explicit CpuForwardKernel(const ForwardKernelSpec& spec)
      : ForwardKernel(spec), functions_(functions_of(spec.algorithm)) {}

  double expected_seconds(const Problem& problem) const override {
    const double keys = static_cast<double>(problem.s_k()) * static_cast<double>(problem.d() + problem.d_v());
    const double units = static_cast<double>(problem.batch() * problem.heads_k());
    const double group = problem.heads_k() == 0 ? 1 : static_cast<double>(problem.heads_q() / problem.heads_k());
    const double rows = static_cast<double>(problem.s_q()) * group;
    const double tile_rows = algorithm().schedule == Schedule::tiles ? std::max(rows, 16.0) : rows;
    constexpr double kStart = 1e-6;
    return kStart + units * tile_rows * keys * 2e-9 / functions_.gflops;
  }

  std::vector<Plan::Stage> stages(const Problem& problem, int threads) const override {
    if (problem.s_k() > kMaxLength || problem.s_q() > kMaxLength)
      throw Error(ErrorCode::unsupported, "sequences of " + std::to_string(std::max(problem.s_q(), problem.s_k())) +
                                              " rows: the CPU engine takes up to " + std::to_string(kMaxLength) + ".");
    const Layout layout = layout_of(problem, threads);
    std::vector<Plan::Stage> list;
    if (problem.randval()) list.push_back({name(), "random words", 0, 0});
    list.push_back({name(), "attention", 0, layout.total});
    if (layout.partials_end > layout.partials)
      list.push_back({name(), "combine", layout.partials, layout.partials_end - layout.partials});
    return list;
  }

  void run(const ForwardCall& call) const override {
    if (call.problem.randval()) write_random_words(call.args, call.executor);
    Run(*this, call).all();
  }

 private:
  /// Slices of the workspace.
  struct Layout {
    std::int64_t strips = 1;
    std::size_t table = 0, partials = 0, partials_end = 0, scratch = 0, scratch_stride = 0, total = 0;
  };

  ScheduleTraits traits() const {
    return {.strip = functions_.tile_level->strip,
            .max_rows = static_cast<std::int32_t>(kMaxRows),
            .most_strips = functions_.most_strips,
            .packing = functions_.packing};
  }

  Layout layout_of(const Problem& problem, int threads) const {
    Layout layout;
    layout.strips = strips_per_tile(problem, traits(), threads);
    const auto d = static_cast<std::int32_t>(problem.d()), d_v = static_cast<std::int32_t>(problem.d_v());
    layout.partials = align_up(sizeof(TableEntry) * static_cast<std::size_t>(problem.batch() + 1));
    const auto partial_rows = static_cast<std::size_t>(most_partial_rows(problem, traits()));
    layout.partials_end =
        layout.partials + align_up(partial_rows * static_cast<std::size_t>(d_v + kPartialExtra) * sizeof(float));
    layout.scratch = layout.partials_end;
    layout.scratch_stride =
        align_up(std::max(functions_.tile_level->tile_scratch(d, d_v, static_cast<std::int32_t>(layout.strips)),
                          functions_.rows_level->rows_scratch(d, d_v)));
    layout.total = layout.scratch + layout.scratch_stride * static_cast<std::size_t>(threads);
    return layout;
  }

  /// Where the pieces and the partial rows of each batch entry start; one more entry holds the totals.
  struct TableEntry {
    std::int64_t first_piece = 0;
    std::int64_t first_partial_row = 0;
  };

  class Run {
   public:
    Run(const CpuForwardKernel& kernel, const ForwardCall& call)
        : kernel_(kernel),
          call_(call),
          jobs_(call),
          layout_(kernel.layout_of(call.problem, call.threads)),
          table_(reinterpret_cast<TableEntry*>(call.workspace.data() + layout_.table)),
          partials_(reinterpret_cast<float*>(call.workspace.data() + layout_.partials)) {}

    void all() {
      const std::int64_t batch = jobs_.sequences().size();
      TableEntry entry;
      for (std::int64_t b = 0; b < batch; ++b) {
        table_[b] = entry;
        const SequencePlan plan = plan_of(jobs_.sequences()[b]);
        entry.first_piece += plan.pieces();
        entry.first_partial_row += plan.partial_rows();
      }
      table_[batch] = entry;
      parallel_for(call_.executor, entry.first_piece,
                   [this](std::int64_t piece, int worker) { compute(piece, worker); });
      if (entry.first_partial_row == 0) return;
      parallel_for(call_.executor, batch * call_.problem.heads_k(), [this](std::int64_t index, int) {
        combine(index / call_.problem.heads_k(), index % call_.problem.heads_k());
      });
    }

   private:
    SequencePlan plan_of(const core::Sequence& sequence) const {
      return plan_sequence(kernel_.traits(), call_.problem.heads_q(), call_.problem.heads_k(), sequence.s_q,
                           sequence.s_k, layout_.strips);
    }

    void compute(std::int64_t piece, int worker) const {
      const std::int64_t batch = jobs_.sequences().size();
      const TableEntry* next =
          std::upper_bound(table_, table_ + batch, piece,
                           [](std::int64_t value, const TableEntry& entry) { return value < entry.first_piece; });
      const std::int64_t b = next - table_ - 1;
      const core::Sequence sequence = jobs_.sequences()[b];
      const SequencePlan plan = plan_of(sequence);
      std::int64_t rest = piece - table_[b].first_piece;
      const std::int64_t split = rest % plan.splits;
      rest /= plan.splits;
      // The last rows see the most keys of a causal mask: they come first, so that the light pieces fill the end.
      const std::int64_t tile = plan.tiles - 1 - rest % plan.tiles, unit = rest / plan.tiles;

      const ForwardJob job = jobs_.job(b, sequence, unit, plan.heads_together);
      ForwardPart part;
      part.first_row = tile * plan.rows_per_tile;
      part.rows = static_cast<std::int32_t>(std::min(plan.rows_per_tile, plan.rows - part.first_row));
      set_keys(part, job, sequence, split * plan.keys_per_split,
               std::min((split + 1) * plan.keys_per_split, sequence.s_k));
      if (plan.splits > 1)
        part.partial = partials_ + (table_[b].first_partial_row + (unit * plan.splits + split) * plan.rows) *
                                       (job.d_v + kPartialExtra);
      void* scratch =
          call_.workspace.data() + layout_.scratch + layout_.scratch_stride * static_cast<std::size_t>(worker);
      (plan.use_rows_kernel ? kernel_.functions_.rows : kernel_.functions_.tile)(job, part, scratch);
    }

    /// Of the keys [begin, end) those that some row of the part sees, in whole groups.
    void set_keys(ForwardPart& part, const ForwardJob& job, const core::Sequence& sequence, std::int64_t begin,
                  std::int64_t end) const {
      constexpr std::int64_t kGroup = 32;
      const MaskBounds bounds = call_.problem.mask().bounds(sequence.s_q, sequence.s_k);
      const std::int64_t first = part.first_row / job.heads, last = (part.first_row + part.rows - 1) / job.heads;
      const std::int64_t seen_begin = bounds.sink > 0 ? 0 : bounds.begin(first), seen_end = bounds.end(last);
      begin = std::max(begin, seen_begin / kKeyBlock * kKeyBlock);
      end = std::min(end, (seen_end + kGroup - 1) / kGroup * kGroup);
      part.key_begin = static_cast<std::int32_t>(begin);
      part.key_end = static_cast<std::int32_t>(std::max(begin, end));
    }

    void combine(std::int64_t b, std::int64_t kv_head) const {
      const core::Sequence sequence = jobs_.sequences()[b];
      const SequencePlan plan = plan_of(sequence);
      if (plan.splits == 1) return;
      const std::int64_t units = plan.units / call_.problem.heads_k();
      for (std::int64_t unit = kv_head * units; unit < (kv_head + 1) * units; ++unit) {
        const ForwardJob job = jobs_.job(b, sequence, unit, plan.heads_together);
        float* partial =
            partials_ + (table_[b].first_partial_row + unit * plan.splits * plan.rows) * (job.d_v + kPartialExtra);
        kernel_.functions_.tile_level->combine(job, 0, static_cast<std::int32_t>(plan.rows), partial,
                                               plan.rows * (job.d_v + kPartialExtra),
                                               static_cast<std::int32_t>(plan.splits));
      }
    }

    const CpuForwardKernel& kernel_;
    const ForwardCall& call_;
    const ForwardJobs jobs_;
    const Layout layout_;
    TableEntry* table_;
    float* partials_;
  };

  Functions functions_;
};

}  // namespace

std::span<const ForwardKernelSpec> forward_kernel_specs() { return kSpecs; }

std::shared_ptr<const dispatch::ForwardKernel> make_forward_kernel(const ForwardKernelSpec& spec) {
  return std::make_shared<CpuForwardKernel>(spec);
}

}  // namespace heed::cpu
