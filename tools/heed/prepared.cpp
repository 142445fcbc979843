#include "heed/prepared.hpp"

#include "core/float_bits.hpp"
#include "heed/gpu_clock.hpp"
#include "heed/problem_of.hpp"
#include "heed/terminal.hpp"
#include "verify/device_buffers.hpp"

#include <heed/error.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <new>
#include <span>
#include <sys/mman.h>

namespace heed::command {
namespace {

/// Passes work on to another executor and shows how much of it is done.
class WatchedExecutor final : public Executor {
 public:
  WatchedExecutor(Executor& inner, const std::string& what) : inner_(inner), what_(what) {}

  int concurrency() const noexcept override { return inner_.concurrency(); }
  void parallel_for(std::int64_t count, Body body, void* context) override {
    Progress progress(what_, static_cast<double>(count));
    std::atomic<std::int64_t> done{0};
    heed::parallel_for(inner_, count, [&](std::int64_t index, int worker) {
      body(context, index, worker);
      const std::int64_t now = done.fetch_add(1, std::memory_order_relaxed) + 1;
      if (worker == 0) progress.show(static_cast<double>(now));
    });
  }

 private:
  Executor& inner_;
  std::string what_;
};

/// Short runs on a GPU are timed together: its clock has a resolution of half a microsecond.
constexpr double kShortestGpuTiming = 200e-6;

Plan make_plan(Context& context, const Where& where, const verify::Case& problem) {
  PlanOptions options = plan_options(where);
  options.engine = engine_for(context, where, problem);
  return context.plan(problem_of(problem, memory_of(options.engine)), options);
}

std::unique_ptr<verify::Buffers> make_buffers(Context& context, const verify::Case& problem, const Plan& plan) {
  const Problem& posed = plan.problem();
  require_memory(problem, posed);
  WatchedExecutor watched(context.executor(), "making data");
  auto buffers = std::make_unique<verify::Buffers>(problem, &watched);
  const Problem made = problem.backward() ? Problem::of(buffers->backward_args(), plan.memory())
                                          : Problem::of(buffers->args(), plan.memory());
  if (made != posed)
    throw Error(ErrorCode::internal,
                "the tensors of '" + problem.to_command() + "' pose another problem than it tells.");
  return buffers;
}

}  // namespace

struct Prepared::OnGpu {
  OnGpu(const Plan& its_plan, const verify::Buffers& buffers) : plan(its_plan) {
    tensors.upload(buffers);
    args = tensors.translated(buffers.backward_args());
    workspace = tensors.workspace(plan.workspace_bytes());
  }

  void run() const {
    if (plan.problem().operation() == Operation::backward) {
      plan.run_on_stream(args, workspace, tensors.stream());
    } else {
      plan.run_on_stream(args.forward, workspace, tensors.stream());
    }
  }

  Plan plan;
  verify::DeviceBuffers tensors;
  BackwardArgs args;  ///< of a forward plan the forward half alone
  std::span<std::byte> workspace;
  GpuClock clock{tensors, [this] { run(); }};
};

Prepared::Prepared(Context& context, const Where& where, const verify::Case& problem)
    : context_(context), plan_(make_plan(context, where, problem)), buffers_(make_buffers(context, problem, plan_)) {
  if (plan_.memory() == Memory::gpu) {
    gpu_ = std::make_unique<OnGpu>(plan_, *buffers_);
    return;
  }
  // On huge pages where it is large, as forward()'s own is.
  constexpr std::size_t kLine = 64, kHugePage = std::size_t{2} << 20;
  const std::size_t unit = plan_.workspace_bytes() >= kHugePage ? kHugePage : kLine;
  const std::size_t bytes = (plan_.workspace_bytes() / unit + 1) * unit;
  workspace_.reset(static_cast<std::byte*>(std::aligned_alloc(unit, bytes)));
  if (workspace_ == nullptr) throw std::bad_alloc();
  if (unit == kHugePage) madvise(workspace_.get(), bytes, MADV_HUGEPAGE);
}

Prepared::Prepared(Prepared&&) noexcept = default;
Prepared::~Prepared() = default;

void Prepared::run() const {
  if (gpu_ != nullptr) return gpu_->run();
  const std::span workspace{workspace_.get(), plan_.workspace_bytes()};
  if (problem().backward()) {
    plan_.run(buffers_->backward_args(), workspace, &context_.executor());
  } else {
    plan_.run(buffers_->args(), workspace, &context_.executor());
  }
}

double Prepared::seconds(int runs, Clock clock) const {
  if (gpu_ != nullptr && clock == Clock::engine) return gpu_->clock.seconds(runs);
  return seconds_of([&] {
           for (int i = 0; i < runs; ++i) run();
           if (gpu_ != nullptr) gpu_->tensors.synchronize();
         }) /
         runs;
}

void spoil(const OutputView& o) {
  for (int i = 0; i < o.rank; ++i)
    if (o.size(i) == 0) return;
  const double right = core::load(o.data, o.type, 0);
  core::store(o.data, o.type, 0, std::isfinite(right) ? right * 2 + 1 : 1.0);
}

verify::Verdict Prepared::check(double budget, bool spoiled) const {
  buffers_->clear_outputs();
  if (gpu_ != nullptr) gpu_->tensors.upload(*buffers_);
  run();
  if (gpu_ != nullptr) gpu_->tensors.download(*buffers_);
  if (spoiled) spoil(problem().backward() ? buffers_->backward_args().dq : buffers_->args().o);
  WatchedExecutor watched(context_.executor(), "checking");
  return verify::judge(*buffers_, {.executor = &watched, .budget = budget});
}

int runs_per_timing(const Prepared& prepared, double once, double shortest) {
  // A graph of more runs than this takes longer to make than it saves.
  const double most = prepared.plan().memory() == Memory::gpu ? 500 : 10000;
  return static_cast<int>(std::clamp(std::ceil(shortest / std::max(once, 1e-7)), 1.0, most));
}

Times time_runs(const Prepared& prepared, const Run& run, double seconds) {
  Progress progress("timing", run.warmup + run.repeat);
  Times times;
  double spent = 0;
  const auto in_time = [&] { return run.counts_given || spent < seconds; };
  for (int i = 0; i < run.warmup && in_time(); ++i) {
    // The first run alone tells whether the others will fit.
    const double took = prepared.seconds(1, run.clock);
    spent += took;
    if (prepared.plan().memory() == Memory::gpu) times.together = runs_per_timing(prepared, took, kShortestGpuTiming);
    progress.show(i + 1);
    if (!run.counts_given && took * (run.warmup + run.repeat) > seconds) break;
  }
  for (int i = 0; i < run.repeat && (in_time() || times.empty()); ++i) {
    const double took = prepared.seconds(times.together, run.clock);
    spent += took * times.together;
    times.add(took);
    progress.show(run.warmup + i + 1);
  }
  return times;
}

}  // namespace heed::command
