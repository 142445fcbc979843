#include <heed/plan.hpp>

#include "core/backward_args.hpp"
#include "core/overlap.hpp"
#include "dispatch/backward_family.hpp"
#include "dispatch/duration_text.hpp"
#include "dispatch/forward_family.hpp"
#include "dispatch/place.hpp"
#include "dispatch/plan_impl.hpp"
#include "dispatch/workspace_pool.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace heed {
namespace {

void check_workspace(const Plan::Impl& plan, std::span<const std::byte> workspace) {
  if (workspace.size() < plan.workspace_bytes)
    throw Error(ErrorCode::invalid_argument, fmt::format("the workspace holds {} bytes, this plan needs {}.",
                                                         workspace.size(), plan.workspace_bytes));
  constexpr std::size_t kAlignment = dispatch::WorkspacePool::kAlignment;
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(workspace.data()) % kAlignment;
  if (plan.workspace_bytes > 0 && misaligned != 0)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the workspace begins {} bytes behind a multiple of {}: it must be aligned to {} bytes.",
                            misaligned, kAlignment, kAlignment));
  if (plan.workspace_bytes > 0)
    dispatch::check_place(*plan.registry, "the workspace", workspace.data(), plan.kernel->arch().engine());
}

/// Whether the addresses from the view's lowest to its highest element meet [low, high).
template <class View>
bool meets(const View& view, std::int64_t low, std::int64_t high) {
  if (view.rank == 0) return false;
  const std::int64_t element = (bits(view.type) + 7) / 8;
  std::int64_t first = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data)), last = first;
  for (int i = 0; i < view.rank; ++i) {
    if (view.size(i) <= 1) continue;  // its stride may be anything
    const std::int64_t reach = (view.size(i) - 1) * view.stride(i) * element;
    (reach < 0 ? first : last) += reach;
  }
  return first < high && low < last + element;
}
template <class... Views>
bool any_meets(std::int64_t low, std::int64_t high, const Views&... views) {
  return (meets(views, low, high) || ...);
}
bool may_overlap(const ForwardArgs& a, std::int64_t low, std::int64_t high) {
  return any_meets(low, high, a.q, a.k, a.v, a.o, a.lse, a.bias, a.bool_mask, a.block_mask.keep, a.alibi_slopes, a.sink,
                   a.seqstart_q, a.seqstart_k, a.seqlen_q, a.seqlen_k, a.dropout.randval, a.dropout.state);
}
bool may_overlap(const BackwardArgs& a, std::int64_t low, std::int64_t high) {
  return any_meets(low, high, a.d_o, a.dq, a.dk, a.dv, a.d_lse, a.dbias, a.dsink, a.dslopes) ||
         may_overlap(a.forward, low, high);
}

/// What a kernel writes into its workspace would else show in a tensor, or the other way round. A workspace in the gaps
/// of a strided tensor shares nothing with it. Names and gaps are looked at where ranges meet: this is asked in each
/// run.
template <class Args>
void check_apart(const Plan::Impl& plan, const Args& args, std::span<const std::byte> workspace) {
  core::Footprint used;
  used.base = used.low = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(workspace.data()));
  used.element = static_cast<std::int64_t>(plan.workspace_bytes);
  used.high = used.low + used.element;
  if (plan.workspace_bytes == 0 || !may_overlap(args, used.low, used.high)) return;
  for (const core::NamedView& each : core::all_views(args))
    if (each.view.given() && core::overlap(used, core::footprint(each.view)))
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("the workspace and {} overlap in memory: the {} bytes that this plan needs must be its own.",
                      each.name, plan.workspace_bytes));
}

/// The problem that the arguments pose, told as the plan was: the arguments of a forward call have no say in what sums
/// are kept in and in determinism.
Problem posed(const ForwardArgs& args, const Plan::Impl& plan, Memory memory) {
  return Problem::of(args, memory).accumulate(plan.problem.accumulate()).deterministic(plan.problem.deterministic());
}
Problem posed(const BackwardArgs& args, const Plan::Impl&, Memory memory) { return Problem::of(args, memory); }

template <class Args>
void check_call(const Plan::Impl& plan, const Args& args, std::span<const std::byte> workspace) {
  const dispatch::EngineKind engine = plan.kernel->arch().engine();
  dispatch::check_places(*plan.registry, args, engine);
  Problem call = posed(args, plan, dispatch::memory_of(engine));
  if (!plan.problem.aligned()) call.aligned(false);  // a plan for any memory takes aligned memory, too
  if (!(call == plan.problem))
    throw Error(ErrorCode::invalid_argument, fmt::format("these arguments pose another problem than the plan's: {}.",
                                                         dispatch::first_difference(plan.problem, call)));
  check_workspace(plan, workspace);
  check_apart(plan, args, workspace);
}

void check_executor(const Plan::Impl& plan, const Executor& executor) {
  const int workers = executor.concurrency();
  if (workers < 1 || workers > plan.threads)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the executor brings {} workers, this plan was made for 1 to {} (PlanOptions::threads).",
                            workers, plan.threads));
}

template <class KernelT, class Args>
void run_and_log(const Plan::Impl& plan, const Args& args, std::span<std::byte> workspace, Executor& executor,
                 void* stream) {
  const dispatch::Call<Args> call{plan.problem, args, workspace, executor, plan.threads, plan.prepared.get(), stream};
  const auto& kernel = static_cast<const KernelT&>(*plan.kernel);
  if (!plan.log) return kernel.run(call);
  const auto begin = std::chrono::steady_clock::now();
  kernel.run(call);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  // One write: lines of several threads do not mix.
  fmt::print(stderr, "heed: {} {}, {} threads, {}\n", kernel.name(), plan.problem.to_string(), executor.concurrency(),
             dispatch::duration_text(took.count()));
}

template <class Args>
void run_on_cpu(const Plan::Impl& plan, const Args& args, std::span<std::byte> workspace, Executor* executor) {
  check_call(plan, args, workspace);
  SerialExecutor serial;
  Executor& chosen = executor == nullptr ? serial : *executor;
  check_executor(plan, chosen);
  plan.run(args, workspace, chosen, nullptr);
}

template <class Args>
void run_on_gpu(const Plan::Impl& plan, const Args& args, std::span<std::byte> workspace, void* stream) {
  if (dispatch::memory_of(plan.kernel->arch().engine()) != Memory::gpu)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} runs on the CPU, which has no streams: use Plan::run.", plan.kernel->name()));
  check_call(plan, args, workspace);
  SerialExecutor serial;
  plan.run(args, workspace, serial, stream);
}

}  // namespace

void Plan::Impl::run(const ForwardArgs& args, std::span<std::byte> workspace, Executor& executor, void* stream) const {
  run_and_log<dispatch::ForwardKernel>(*this, args, workspace, executor, stream);
}
void Plan::Impl::run(const BackwardArgs& args, std::span<std::byte> workspace, Executor& executor, void* stream) const {
  run_and_log<dispatch::BackwardKernel>(*this, args, workspace, executor, stream);
}

namespace dispatch {

std::shared_ptr<const Plan::Impl> make_plan(std::shared_ptr<const Registry> registry, const Problem& problem,
                                            const PlanOptions& options, int threads, bool log) {
  if (const auto error = problem.validate()) throw *error;
  const Wishes wishes{.engine = options.engine, .kernel = options.kernel};
  std::shared_ptr<const AttentionKernel> kernel;
  if (problem.operation() == Operation::forward) {
    kernel = kForwardFamily.select(*registry, problem, wishes);
  } else {
    kernel = kBackwardFamily.select(*registry, problem, wishes);
  }
  auto plan = std::make_shared<Plan::Impl>(
      Plan::Impl{problem, options.engine, options.kernel, threads, log, std::move(registry), std::move(kernel)});
  plan->prepared = plan->kernel->prepare(problem, threads);
  plan->stages = plan->kernel->stages(problem, threads);
  for (const Plan::Stage& stage : plan->stages) {
    if (stage.workspace_offset % WorkspacePool::kAlignment != 0)
      throw Error(ErrorCode::internal,
                  fmt::format("{}: stage '{}' begins at byte {} of the workspace, not a multiple of {}.", stage.kernel,
                              stage.purpose, stage.workspace_offset, WorkspacePool::kAlignment));
    plan->workspace_bytes = std::max(plan->workspace_bytes, stage.workspace_offset + stage.workspace_bytes);
  }
  return plan;
}

Explanation explain(const Registry& registry, const Problem& problem, const Wishes& wishes) {
  return problem.operation() == Operation::forward ? kForwardFamily.explain(registry, problem, wishes)
                                                   : kBackwardFamily.explain(registry, problem, wishes);
}

}  // namespace dispatch

Plan::Plan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

const Problem& Plan::problem() const { return impl_->problem; }
const std::string& Plan::kernel() const { return impl_->kernel->name(); }
const std::vector<Plan::Stage>& Plan::stages() const { return impl_->stages; }
std::size_t Plan::workspace_bytes() const { return impl_->workspace_bytes; }
int Plan::threads() const { return impl_->threads; }

std::string Plan::explain() const {
  const dispatch::Wishes wishes{.engine = impl_->engine, .kernel = impl_->named_kernel};
  return dispatch::explain(*impl_->registry, impl_->problem, wishes).to_string();
}

Memory Plan::memory() const { return dispatch::memory_of(impl_->kernel->arch().engine()); }

void Plan::run(const ForwardArgs& args, std::span<std::byte> workspace, Executor* executor) const {
  if (memory() == Memory::gpu) return run_on_stream(args, workspace, nullptr);
  run_on_cpu(*impl_, args, workspace, executor);
}
void Plan::run(const BackwardArgs& args, std::span<std::byte> workspace, Executor* executor) const {
  if (memory() == Memory::gpu) return run_on_stream(args, workspace, nullptr);
  run_on_cpu(*impl_, args, workspace, executor);
}

void Plan::run_on_stream(const ForwardArgs& args, std::span<std::byte> workspace, void* stream) const {
  run_on_gpu(*impl_, args, workspace, stream);
}
void Plan::run_on_stream(const BackwardArgs& args, std::span<std::byte> workspace, void* stream) const {
  run_on_gpu(*impl_, args, workspace, stream);
}

}  // namespace heed
