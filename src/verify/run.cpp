#include "verify/run.hpp"

#include "verify/buffers.hpp"

#include <heed/error.hpp>
#include <heed/executor.hpp>

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <span>

namespace heed::verify {
namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

void run_kernel(Context& context, const PlanOptions& options, Executor& executor, const ForwardArgs& args) {
  const Plan plan = context.plan(Problem::of(args), options);
  const std::size_t bytes = (plan.workspace_bytes() + 63) / 64 * 64;
  const std::unique_ptr<std::byte, Free> workspace(static_cast<std::byte*>(std::aligned_alloc(64, bytes + 64)));
  plan.run(args, std::span(workspace.get(), bytes), &executor);
}

}  // namespace

Target Target::of(Context& context, EngineChoice engine, Executor* executor, std::string kernel) {
  Executor* const threads = executor != nullptr ? executor : &context.executor();
  Target target{.name = engine == EngineChoice::cuda  ? "cuda"
                        : engine == EngineChoice::cpu ? "cpu"
                                                      : "auto",
                .forward = {},
                .executor = threads};
  if (kernel.empty()) {
    target.forward = [&context, engine, executor](const ForwardArgs& args) {
      context.forward(args, {.engine = engine, .executor = executor});
    };
  } else {
    target.name = kernel;
    const PlanOptions options{.engine = engine, .threads = threads->concurrency(), .kernel = std::move(kernel)};
    target.forward = [&context, options, threads](const ForwardArgs& args) {
      run_kernel(context, options, *threads, args);
    };
  }
  return target;
}

Verdict run_case(const Case& c, const Target& target, JudgeOptions options) {
  if (options.executor == nullptr) options.executor = target.executor;
  Buffers buffers(c, options.executor);
  try {
    target.forward(buffers.args());
  } catch (const Error& error) {
    Verdict verdict;
    verdict.status = Verdict::Status::refused;
    verdict.complaints.push_back(error.what());
    if (!buffers.outputs_untouched()) verdict.complaints.push_back("it was refused, and yet an output was written");
    for (const std::string& change : buffers.check_guards()) verdict.complaints.push_back(change);
    return verdict;
  }
  return judge(buffers, options);
}

}  // namespace heed::verify
