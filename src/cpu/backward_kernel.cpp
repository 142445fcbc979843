#include "cpu/backward_kernel.hpp"

#include "core/ceil_div.hpp"
#include "core/visible_pairs.hpp"
#include "cpu/backward_jobs.hpp"
#include "cpu/isa.hpp"
#include "cpu/key_columns.hpp"
#include "cpu/shared_gradients.hpp"

#include <heed/executor.hpp>

#include <algorithm>
#include <array>

namespace heed::cpu {
namespace {

using core::ceil_div;
using dispatch::BackwardAlgorithm;
using dispatch::BackwardCall;
using dispatch::BackwardKernelSpec;
using dispatch::BackwardSignature;
using dispatch::CpuIsa;
using dispatch::MathUnit;

constexpr std::int64_t kMaxHeadDim = 1024;
constexpr std::int64_t kMaxLength = (std::int64_t{1} << 31) - 4096;  // key numbers are 32-bit lanes

constexpr BackwardSignature any_type() {
  return {.types = {DataType::f32, DataType::f16, DataType::bf16},
          .d = dispatch::up_to(kMaxHeadDim),
          .d_v = dispatch::up_to(kMaxHeadDim),
          .accumulate = {DataType::f32, DataType::f16, DataType::bf16},
          .lengths = {0, kMaxLength, 1}};
}
constexpr BackwardSignature bf16_products() {
  BackwardSignature signature = any_type();
  signature.types = signature.output_types = {DataType::bf16};
  signature.math = {Math::fast};
  return signature;
}
constexpr BackwardAlgorithm tiles(CpuIsa isa, MathUnit unit, int strip) {
  return {.arch = isa,
          .unit = unit,
          .tile_q = strip,
          .tile_k = kKeyBlock,
          .notes = "five products with queries in the vector lanes, chunks of keys outermost"};
}

constexpr std::array kSpecs {
  BackwardKernelSpec{"bwd_tile_f32", any_type(), tiles(CpuIsa::baseline, MathUnit::f32_fma, 12)},
#if HEED_X86
      BackwardKernelSpec{"bwd_tile_f32", any_type(), tiles(CpuIsa::avx2, MathUnit::f32_fma, 24)},
      BackwardKernelSpec{"bwd_tile_f32", any_type(), tiles(CpuIsa::avx512, MathUnit::f32_fma, 64)},
      BackwardKernelSpec{"bwd_tile_dot", bf16_products(), tiles(CpuIsa::avx512bf16, MathUnit::bf16_dot, 64)},
      BackwardKernelSpec{"bwd_tile_amx", bf16_products(), tiles(CpuIsa::amx, MathUnit::amx_bf16, 64)},
#endif
};

/// The functions behind one line of the table.
struct Functions {
  const BackwardKernels* level;
  double gflops;  ///< of one core, roughly: ranks the kernels
};

Functions functions_of(const BackwardAlgorithm& algorithm) {
  switch (*algorithm.arch.cpu_isa()) {
#if HEED_X86
    case CpuIsa::avx2:
      return {&kBackwardAvx2, 60};
    case CpuIsa::avx512:
      return {&kBackwardAvx512, 100};
    case CpuIsa::avx512bf16:
      return {&kBackwardAvx512Bf16, 170};
    case CpuIsa::amx:
      return {&kBackwardAmx, 300};
#endif
    default:
      return {&kBackwardBaseline, 15};
  }
}

std::size_t align_up(std::size_t n) { return (n + 127) / 128 * 128; }
/// Below it other threads take longer to wake than they would save. Results are the same for every number of them.
bool worth_waking_threads(const Problem& problem) {
  constexpr double kMultiplications = 1e6;
  const double rows = problem.mode() == Mode::group ? static_cast<double>(problem.total_q())
                                                    : static_cast<double>(problem.batch() * problem.s_q());
  return rows * static_cast<double>(problem.heads_q() * problem.s_k()) * 5 * static_cast<double>(problem.d()) >
         kMultiplications;
}

/// Whether threads that take a head at a time, with all its keys, are done together. Then the columns of a head need
/// not meet again; they are added up in the same order, so that nobody sees it in the result.
bool heads_come_out_even(const Problem& problem, int threads) {
  if (threads == 1) return true;
  const bool alike =
      problem.batch() == 1 || (problem.mode() == Mode::batch && !problem.logical_q() && !problem.logical_k());
  return alike && problem.batch() * problem.heads_k() % threads == 0;
}

class CpuBackwardKernel final : public dispatch::BackwardKernel {
 public:
  explicit CpuBackwardKernel(const BackwardKernelSpec& spec)
      : BackwardKernel(spec), functions_(functions_of(spec.algorithm)) {}

  double expected_seconds(const Problem& problem) const override {
    const double pairs = static_cast<double>(problem.batch() * problem.heads_q()) *
                         std::max(static_cast<double>(problem.s_q()), 16.0) * static_cast<double>(problem.s_k());
    constexpr double kStart = 1e-6;
    return kStart + 5e-9 * pairs * static_cast<double>(problem.d() + problem.d_v()) / functions_.gflops;
  }

  std::vector<Plan::Stage> stages(const Problem& problem, int threads) const override {
    const Layout layout = layout_of(problem, threads);
    std::vector<Plan::Stage> list;
    if (layout.whole_heads)
      list = {{name(), "dQ, dK and dV", layout.delta, layout.total - layout.delta}};
    else
      list = {{name(), "dot of dO and O", layout.delta, layout.strips - layout.delta},
              {name(), "dK, dV and the parts of dQ", layout.strips, layout.total - layout.strips},
              {name(), "sum of dQ", layout.dq, layout.scratch - layout.dq}};
    if (problem.dbias() || problem.dslopes())
      list.push_back({name(), "dBias and dSlopes", layout.scratch, layout.total - layout.scratch});
    if (problem.dsink()) list.push_back({name(), "dSink", layout.delta, 0});
    return list;
  }

  void run(const BackwardCall& call) const override {
    if (!worth_waking_threads(call.problem)) {
      SerialExecutor alone;
      Run(*this, {call.problem, call.args, call.workspace, alone, call.threads, call.prepared, call.stream}).all();
      return;
    }
    Run(*this, call).all();
  }

 private:
  /// A batch entry in the order in which they are computed.
  struct Turn {
    double pairs = 0;  ///< visible ones of a head
    std::int64_t batch = 0;
  };

  /// Slices of the workspace.
  struct Layout {
    std::size_t delta = 0;       ///< D of every row
    std::size_t strips = 0;      ///< number of the first strip of each batch entry
    std::size_t turns = 0;       ///< of the batch entries
    std::size_t dq = 0;          ///< [columns, or column and total][heads][strips] of dQ, where it has to be added up
    std::size_t scratch = 0;     ///< of each worker
    std::size_t score_sums = 0;  ///< within it: where dBias and dSlopes are summed
    std::size_t scratch_stride = 0, total = 0;
    std::int64_t columns = 1, most_strips = 0, strip_floats = 0;
    std::int32_t stretch = 0;  ///< keys that a worker holds at a time
    bool whole_heads = true;   ///< a worker goes over all columns of a head, one after the other
    std::int64_t pieces_per_head() const { return whole_heads ? 1 : columns; }
  };

  /// As many keys as a thread's caches hold with their sums, in whole chunks unless these are all keys: a strip of
  /// queries is packed once for them. Shows in no bit of the result.
  std::int32_t stretch_of(const Problem& problem) const {
    constexpr std::int64_t kMostChunks = 4, kUnknownCache = 2 << 20;
    constexpr std::int64_t kMostCache = 4 << 20;  // of a virtual machine, others may have a part
    const auto scratch = [&](std::int32_t keys) {
      return functions_.level->unit.scratch_bytes(static_cast<std::int32_t>(problem.d()),
                                                  static_cast<std::int32_t>(problem.d_v()), keys);
    };
    const auto chunk = static_cast<std::int64_t>(scratch(2 * kBackwardChunk) - scratch(kBackwardChunk));
    const std::int64_t known = machine().cache_bytes, cache = known == 0 ? kUnknownCache : std::min(known, kMostCache);
    const std::int64_t chunks = std::clamp<std::int64_t>(cache / chunk, 1, kMostChunks);
    const std::int64_t blocks = std::max<std::int64_t>(1, ceil_div(problem.s_k(), kKeyBlock));
    return static_cast<std::int32_t>(std::min(chunks * kBackwardChunk, blocks * kKeyBlock));
  }

  Layout layout_of(const Problem& problem, int threads) const {
    const auto d = static_cast<std::int32_t>(problem.d()), d_v = static_cast<std::int32_t>(problem.d_v());
    const std::int64_t strip = functions_.level->strip;
    Layout layout;
    layout.columns = most_key_columns(problem);
    layout.whole_heads = layout.columns == 1 || heads_come_out_even(problem, threads);
    layout.most_strips = problem.mode() == Mode::group ? problem.total_q() / strip + problem.batch()
                                                       : problem.batch() * ceil_div(problem.s_q(), strip);
    layout.strip_floats = ceil_div(d, 4) * 4 * strip;
    layout.strips = align_up(static_cast<std::size_t>(BackwardJobs::delta_rows(problem)) * sizeof(float));
    layout.turns = layout.strips + align_up(static_cast<std::size_t>(problem.batch() + 1) * sizeof(std::int64_t));
    layout.dq = layout.turns + align_up(static_cast<std::size_t>(problem.batch()) * sizeof(Turn));
    layout.stretch = stretch_of(problem);
    std::int64_t sums = layout.columns;
    if (layout.whole_heads) {
      // Keys of a single stretch leave nothing to add up later: a strip's dQ is written where it is made.
      sums = problem.s_k() > layout.stretch ? std::min<std::int64_t>(layout.columns, 2) : 0;
    }
    layout.scratch =
        layout.dq +
        align_up(static_cast<std::size_t>(sums * problem.heads_q() * layout.most_strips * layout.strip_floats) *
                 sizeof(float));
    layout.score_sums = align_up(functions_.level->unit.scratch_bytes(d, d_v, layout.stretch));
    layout.scratch_stride = layout.score_sums;
    if (problem.dbias() || problem.dslopes())
      layout.scratch_stride += static_cast<std::size_t>(kBackwardChunk * strip) * sizeof(double);
    layout.total = layout.scratch + layout.scratch_stride * static_cast<std::size_t>(threads);
    return layout;
  }

  class Run {
   public:
    Run(const CpuBackwardKernel& kernel, const BackwardCall& call)
        : kernel_(kernel),
          call_(call),
          problem_(call.problem),
          layout_(kernel.layout_of(call.problem, call.threads)),
          jobs_(call, layout_.stretch, reinterpret_cast<float*>(call.workspace.data() + layout_.delta)),
          strips_(reinterpret_cast<std::int64_t*>(call.workspace.data() + layout_.strips)),
          turns_(reinterpret_cast<Turn*>(call.workspace.data() + layout_.turns)),
          dq_(reinterpret_cast<float*>(call.workspace.data() + layout_.dq)) {}

    void all() {
      strips_[0] = 0;
      for (std::int64_t b = 0; b < problem_.batch(); ++b)
        strips_[b + 1] = strips_[b] + ceil_div(jobs_.sequences()[b].s_q, strip());
      if (problem_.heads_q() == 0) {
        zero_key_gradients();
      } else {
        find_turns();
        if (!layout_.whole_heads) make_delta();
        parallel_for(call_.executor, problem_.batch() * problem_.heads_k() * layout_.pieces_per_head(),
                     [&](std::int64_t index, int worker) { compute(piece(index), worker); });
        if (!layout_.whole_heads) sum_dq();
      }
      if (problem_.dbias() || problem_.dslopes())
        write_bias_and_slope_gradients(call_, jobs_,
                                       {.unit = &kernel_.functions_.level->unit,
                                        .strip = strip(),
                                        .scratch = [this](int worker) { return scratch(worker); },
                                        .sums = [this](int worker) { return score_sums(worker); }});
      if (problem_.dsink()) write_sink_gradient(call_, jobs_);
    }

   private:
    std::int64_t strip() const { return kernel_.functions_.level->strip; }
    std::int64_t column_stride() const { return problem_.heads_q() * layout_.most_strips * layout_.strip_floats; }
    float* dq(std::int64_t column, std::int64_t b, std::int64_t h) const {
      return dq_ + column * column_stride() + (h * layout_.most_strips + strips_[b]) * layout_.strip_floats;
    }
    /// Of the columns that are done, for whoever goes over all of them.
    float* total(std::int64_t b, std::int64_t h) const { return dq(1, b, h); }
    void* scratch(int worker) const {
      return call_.workspace.data() + layout_.scratch + layout_.scratch_stride * static_cast<std::size_t>(worker);
    }
    double* score_sums(int worker) const {
      return reinterpret_cast<double*>(static_cast<std::byte*>(scratch(worker)) + layout_.score_sums);
    }

    /// Entries that take longest come first: nobody is left with one when the others are done.
    void find_turns() {
      for (std::int64_t b = 0; b < problem_.batch(); ++b) {
        const core::Sequence sequence = jobs_.sequences()[b];
        const MaskBounds bounds = problem_.mask().bounds(sequence.s_q, sequence.s_k);
        turns_[b] = {core::visible_pairs(bounds, sequence.s_q), b};
        if (layout_.columns > 1)
          columns_[static_cast<std::size_t>(b)] = KeyColumns(layout_.columns, bounds, sequence.s_q);
      }
      std::sort(turns_, turns_ + problem_.batch(), [](const Turn& one, const Turn& other) {
        return one.pairs != other.pairs ? one.pairs > other.pairs : one.batch < other.batch;
      });
    }

    /// What a worker computes at a time.
    struct Piece {
      std::int64_t batch, kv_head, column;  ///< of whole heads: the first of all
    };

    /// Columns of a head are near each other, for they read the same Q and dO. But heads come in twos: two threads with
    /// the same column of both are done at the same time, with one column each of different sizes they would not be.
    Piece piece(std::int64_t index) const {
      const std::int64_t heads = problem_.heads_k(), columns = layout_.pieces_per_head(), of_entry = heads * columns;
      const std::int64_t two = index % of_entry / (2 * columns), within = index % of_entry % (2 * columns);
      const std::int64_t together = std::min<std::int64_t>(2, heads - 2 * two);
      return {turns_[index / of_entry].batch, 2 * two + within % together, within / together};
    }

    KeyColumns columns_of(std::int64_t b, const core::Sequence& sequence) const {
      if (layout_.columns > 1) return columns_[static_cast<std::size_t>(b)];
      return KeyColumns(1, problem_.mask().bounds(sequence.s_q, sequence.s_k), sequence.s_q);
    }

    // Of sequences with several columns; whoever has all columns of a head does both itself.
    void make_delta() const {
      for_each_strip([&](const BackwardJob& job, std::int64_t b, std::int64_t, std::int64_t first, std::int32_t rows) {
        if (columns_[static_cast<std::size_t>(b)].count() > 1) kernel_.functions_.level->delta(job, first, rows);
      });
    }
    void sum_dq() const {
      for_each_strip([&](const BackwardJob& job, std::int64_t b, std::int64_t h, std::int64_t first,
                         std::int32_t rows) {
        const KeyColumns& columns = columns_[static_cast<std::size_t>(b)];
        if (columns.count() > 1)
          kernel_.functions_.level->finish_dq(job, first, rows, dq(0, b, h) + first / strip() * layout_.strip_floats,
                                              column_stride(), columns.first_keys(), columns.count());
      });
    }

    /// Calls f(job, batch, head, first row, rows) for a few strips at a time, and then for each of them.
    template <class F>
    void for_each_strip(F&& f) const {
      constexpr std::int64_t kStripsPerPiece = 8;
      const std::int64_t heads = problem_.heads_q(), step = kStripsPerPiece * strip();
      const std::int64_t pieces = ceil_div(problem_.s_q(), step);
      parallel_for(call_.executor, problem_.batch() * heads * pieces, [&](std::int64_t index, int) {
        const std::int64_t b = index / pieces / heads, h = index / pieces % heads, from = index % pieces * step;
        const core::Sequence sequence = jobs_.sequences()[b];
        if (from >= sequence.s_q) return;
        const BackwardJob job = jobs_.job(b, sequence, h);
        for (std::int64_t first = from; first < std::min(from + step, sequence.s_q); first += strip())
          f(job, b, h, first, static_cast<std::int32_t>(std::min(strip(), sequence.s_q - first)));
      });
    }

    /// dK and dV where there are heads of keys and none of queries.
    void zero_key_gradients() const {
      for (std::int64_t b = 0; b < problem_.batch(); ++b)
        for (std::int64_t key = 0; key < jobs_.sequences()[b].s_k; ++key)
          for (std::int64_t g = 0; g < problem_.heads_k(); ++g) {
            zero_row(Operand::dk, call_.args.dk, b, jobs_.sequences()[b].k_row + key, g, problem_.d());
            zero_row(Operand::dv, call_.args.dv, b, jobs_.sequences()[b].k_row + key, g, problem_.d_v());
          }
    }
    void zero_row(Operand which, const TensorView& view, std::int64_t b, std::int64_t row, std::int64_t head,
                  std::int64_t dim) const {
      const Strides step = problem_.strides(which);
      const std::int64_t bytes = bits(view.type) / 8, at = b * step.batch + row * step.sequence + head * step.head;
      auto* const data = static_cast<std::byte*>(const_cast<void*>(view.data));
      std::fill_n(data + at * bytes, dim * bytes, std::byte{0});
    }

    /// All keys of a column, or of all columns of a head, each against every query head that shares them.
    void compute(const Piece& piece, int worker) const {
      const core::Sequence sequence = jobs_.sequences()[piece.batch];
      const KeyColumns columns = columns_of(piece.batch, sequence);
      const std::int64_t group = problem_.heads_q() / problem_.heads_k(), first_head = piece.kv_head * group;
      const auto job_of = [&](std::int64_t h) { return jobs_.job(piece.batch, sequence, h); };
      if (columns.count() == 0 && piece.column == 0)
        for (std::int64_t h = first_head; h < first_head + group; ++h) finish_without_keys(job_of(h));
      if (piece.column >= columns.count()) return;
      const KeyPiece keys = layout_.whole_heads ? columns.all() : columns.one(piece.column);
      const BackwardUnit& unit = kernel_.functions_.level->unit;
      for (std::int32_t first = keys.first(); first < keys.end(); first += layout_.stretch) {
        const std::int32_t count = std::min(layout_.stretch, keys.end() - first);
        unit.begin(job_of(first_head), first, count, scratch(worker));
        for (std::int64_t h = first_head; h < first_head + group; ++h)
          unit.add(job_of(h), keys, first, count, dq(piece.column, piece.batch, h), total(piece.batch, h),
                   scratch(worker));
        unit.end(job_of(first_head), first, count, scratch(worker));
      }
    }

    /// D and dQ of a sequence that no chunk of keys comes by.
    void finish_without_keys(const BackwardJob& job) const {
      const auto rows = static_cast<std::int32_t>(job.forward.s_q);
      kernel_.functions_.level->delta(job, 0, rows);
      kernel_.functions_.level->finish_dq(job, 0, rows, nullptr, 0, nullptr, 0);
    }

    const CpuBackwardKernel& kernel_;
    const BackwardCall& call_;
    const Problem& problem_;
    const Layout layout_;
    const BackwardJobs jobs_;
    std::int64_t* strips_;
    Turn* turns_;
    float* dq_;
    /// Of each batch entry, where there are several: then there are fewer entries than columns.
    std::array<KeyColumns, kMostKeyColumns> columns_ = {};
  };

  Functions functions_;
};

}  // namespace

std::span<const BackwardKernelSpec> backward_kernel_specs() { return kSpecs; }

std::shared_ptr<const dispatch::BackwardKernel> make_backward_kernel(const BackwardKernelSpec& spec) {
  return std::make_shared<CpuBackwardKernel>(spec);
}

}  // namespace heed::cpu
