#include "heed/prepared.hpp"

#include "core/float_bits.hpp"
#include "heed/problem_of.hpp"
#include "heed/terminal.hpp"

#include <heed/error.hpp>

#include <atomic>
#include <cmath>
#include <new>
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

std::unique_ptr<verify::Buffers> make_buffers(Context& context, const verify::Case& problem, const Problem& posed) {
  require_memory(problem, posed);
  WatchedExecutor watched(context.executor(), "making data");
  auto buffers = std::make_unique<verify::Buffers>(problem, &watched);
  if (Problem::of(buffers->args()) != posed)
    throw Error(ErrorCode::internal,
                "the tensors of '" + problem.to_command() + "' pose another problem than it tells.");
  return buffers;
}

}  // namespace

Prepared::Prepared(Context& context, const Where& where, const verify::Case& problem)
    : context_(context),
      plan_(context.plan(problem_of(problem), plan_options(where))),
      buffers_(make_buffers(context, problem, plan_.problem())) {
  // On huge pages where it is large, as forward()'s own is.
  constexpr std::size_t kLine = 64, kHugePage = std::size_t{2} << 20;
  const std::size_t unit = plan_.workspace_bytes() >= kHugePage ? kHugePage : kLine;
  const std::size_t bytes = (plan_.workspace_bytes() / unit + 1) * unit;
  workspace_.reset(static_cast<std::byte*>(std::aligned_alloc(unit, bytes)));
  if (workspace_ == nullptr) throw std::bad_alloc();
  if (unit == kHugePage) madvise(workspace_.get(), bytes, MADV_HUGEPAGE);
}

void spoil(const ForwardArgs& args) {
  const OutputView& o = args.o;
  for (int i = 0; i < o.rank; ++i)
    if (o.size(i) == 0) return;
  const double right = core::load(o.data, o.type, 0);
  core::store(o.data, o.type, 0, std::isfinite(right) ? right * 2 + 1 : 1.0);
}

verify::Verdict Prepared::check(double budget, bool spoiled) const {
  buffers_->clear_outputs();
  run();
  if (spoiled) spoil(buffers_->args());
  WatchedExecutor watched(context_.executor(), "checking");
  return verify::judge(*buffers_, {.executor = &watched, .budget = budget});
}

Times time_runs(const Prepared& prepared, const Run& run, double seconds) {
  Progress progress("timing", run.warmup + run.repeat);
  Times times;
  double spent = 0;
  const auto in_time = [&] { return run.counts_given || spent < seconds; };
  for (int i = 0; i < run.warmup && in_time(); ++i) {
    // The first run alone tells whether the others will fit.
    const double took = seconds_of([&] { prepared.run(); });
    spent += took;
    progress.show(i + 1);
    if (!run.counts_given && took * (run.warmup + run.repeat) > seconds) break;
  }
  for (int i = 0; i < run.repeat && (in_time() || times.empty()); ++i) {
    const double took = seconds_of([&] { prepared.run(); });
    spent += took;
    times.add(took);
    progress.show(run.warmup + i + 1);
  }
  return times;
}

}  // namespace heed::command
