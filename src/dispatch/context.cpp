#include <heed/plan.hpp>

#include "dispatch/context_impl.hpp"
#include "dispatch/place.hpp"
#include "dispatch/plan_impl.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <optional>
#include <utility>

namespace heed {
namespace {

std::optional<dispatch::CpuIsa> max_cpu_isa(const Context::Options& options) {
  if (!options.max_cpu_isa.empty()) return dispatch::parse_cpu_isa(options.max_cpu_isa, "max_cpu_isa");
  constexpr const char* kVariable = "HEED_MAX_CPU_ISA";
  const std::string_view wish = dispatch::environment(kVariable);
  if (wish.empty()) return std::nullopt;
  return dispatch::parse_cpu_isa(wish, kVariable);
}

std::string cuda_family(const Context::Options& options) {
  constexpr const char* kVariable = "HEED_CUDA_FAMILY";
  const bool told = !options.cuda_family.empty();
  const std::string family = told ? options.cuda_family : std::string(dispatch::environment(kVariable));
  if (!family.empty() && family != "hopper" && family != "portable" && family != "portable_ptx")
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format(
            "{}={} : the CUDA engine's families are hopper, portable, and portable_ptx, which is portable as PTX "
            "for sm_80; nothing means hopper and portable.",
            told ? "cuda_family" : kVariable, family));
  return family;
}

/// What was told, or what the environment says. Checked by the engine, which alone knows its knobs.
std::string algo_or(const std::string& told, const char* variable) {
  return told.empty() ? std::string(dispatch::environment(variable)) : told;
}

/// What arguments pose, and to which engine.
struct Posed {
  EngineChoice engine;
  Problem problem;
};

const void* first_pointer(const ForwardArgs& args) { return args.q.data; }
const void* first_pointer(const BackwardArgs& args) { return args.forward.q.data; }

/// Where q lies is asked once.
template <class Args>
Posed pose(const dispatch::Registry& registry, const Args& args, EngineChoice engine) {
  const void* known = nullptr;
  if (engine == EngineChoice::automatic) {
    engine = dispatch::engine_for(registry, args);
    known = first_pointer(args);
  }
  const dispatch::EngineKind kind =
      engine == EngineChoice::cuda ? dispatch::EngineKind::cuda : dispatch::EngineKind::cpu;
  dispatch::check_places(registry, args, kind, known);
  return {engine, Problem::of(args, dispatch::memory_of(kind))};
}

PlanOptions on_engine(PlanOptions options, EngineChoice engine) {
  options.engine = engine;
  return options;
}

bool log_wanted() {
  const std::string_view wish = dispatch::environment("HEED_LOG");
  if (wish.empty() || wish == "0") return false;
  if (wish == "1") return true;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("HEED_LOG={} : 1 prints a line for every call, 0 or nothing does not.", wish));
}

void check_threads(int threads) {
  if (threads < 0 || threads > ThreadPool::kMaxThreads)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("threads = {} : a plan is made for 1 to {} threads, or 0 for as many as the context has.",
                            threads, ThreadPool::kMaxThreads));
}

}  // namespace

namespace dispatch {

std::string_view environment(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

}  // namespace dispatch

Context::Impl::Impl(dispatch::Engines engines_here, int threads, bool log_calls)
    : engines(std::move(engines_here)), registry(dispatch::make_registry(engines)), log(log_calls), pool(threads) {}

std::shared_ptr<const Plan::Impl> Context::Impl::plan(const Problem& problem, const PlanOptions& options) {
  check_threads(options.threads);
  const int threads = options.threads == 0 ? pool.concurrency() : options.threads;
  const dispatch::PlanCache::Key key{problem, options.engine, options.kernel, threads};
  if (auto plan = plans.find(key)) return plan;
  // Made without a lock: two threads that ask for the same new plan at once both make it, and the first one's is kept.
  return plans.insert(key, dispatch::make_plan(registry, problem, options, threads, log));
}

Context::Context() : Context(Options{}) {}

Context::Context(const Options& options)
    : Context(std::make_unique<Impl>(dispatch::make_engines({.max_cpu_isa = max_cpu_isa(options),
                                                             .cuda_family = cuda_family(options),
                                                             .cuda_algo = algo_or(options.cuda_algo, "HEED_CUDA_ALGO"),
                                                             .cuda_backward_algo = algo_or(options.cuda_backward_algo,
                                                                                           "HEED_CUDA_BACKWARD_ALGO")}),
                                     options.threads, log_wanted())) {}

Context::Context(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Context::~Context() = default;

Plan Context::plan(const Problem& problem, const PlanOptions& options) { return Plan(impl_->plan(problem, options)); }

Explanation Context::explain(const Problem& problem, const PlanOptions& options) {
  if (const auto error = problem.validate()) throw *error;
  check_threads(options.threads);
  return dispatch::explain(*impl_->registry, problem, {.engine = options.engine, .kernel = options.kernel});
}

namespace {

template <class Args>
void run_once(Context::Impl& context, const Args& args, const RunOptions& options) {
  const auto [engine, problem] = pose(*context.registry, args, options.engine);
  Executor& executor = options.executor == nullptr ? context.pool : *options.executor;
  const int workers = executor.concurrency();
  if (workers < 1 || workers > ThreadPool::kMaxThreads)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the executor brings {} workers: it must be 1 to {}.", workers, ThreadPool::kMaxThreads));
  const auto plan = context.plan(problem, {.engine = engine, .threads = workers});
  if (const auto own = plan->kernel->own_workspace(first_pointer(args), options.stream, plan->workspace_bytes))
    return plan->run(args, *own, executor, options.stream);
  const auto workspace = context.workspaces.take(plan->workspace_bytes);
  plan->run(args, workspace.bytes(), executor, nullptr);
}

}  // namespace

Problem Context::problem(const ForwardArgs& args, EngineChoice engine) const {
  return pose(*impl_->registry, args, engine).problem;
}
Problem Context::problem(const BackwardArgs& args, EngineChoice engine) const {
  return pose(*impl_->registry, args, engine).problem;
}

Plan Context::plan(const ForwardArgs& args, const PlanOptions& options) {
  const auto [engine, problem] = pose(*impl_->registry, args, options.engine);
  return plan(problem, on_engine(options, engine));
}
Plan Context::plan(const BackwardArgs& args, const PlanOptions& options) {
  const auto [engine, problem] = pose(*impl_->registry, args, options.engine);
  return plan(problem, on_engine(options, engine));
}

Explanation Context::explain(const ForwardArgs& args, const PlanOptions& options) {
  const auto [engine, problem] = pose(*impl_->registry, args, options.engine);
  return explain(problem, on_engine(options, engine));
}
Explanation Context::explain(const BackwardArgs& args, const PlanOptions& options) {
  const auto [engine, problem] = pose(*impl_->registry, args, options.engine);
  return explain(problem, on_engine(options, engine));
}

void Context::forward(const ForwardArgs& args, const RunOptions& options) { run_once(*impl_, args, options); }
void Context::backward(const BackwardArgs& args, const RunOptions& options) { run_once(*impl_, args, options); }

std::vector<KernelInfo> Context::kernels(std::string_view filter) const {
  std::vector<KernelInfo> list;
  for (const auto* entry : impl_->registry->filter(filter)) list.push_back(entry->info());
  return list;
}

std::string Context::kernels_json(std::string_view filter) const { return impl_->registry->to_json(filter).dump(2); }

Executor& Context::executor() { return impl_->pool; }

}  // namespace heed
