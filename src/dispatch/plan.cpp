#include <heed/plan.hpp>

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
