#include "verify/run.hpp"

#include "verify/buffers.hpp"
#include "verify/device_buffers.hpp"

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

void run_kernel_on(DeviceBuffers& device, Context& context, const PlanOptions& options, const ForwardArgs& args) {
  const Plan plan = context.plan(Problem::of(args, Memory::gpu), options);
  plan.run_on_stream(args, device.workspace(plan.workspace_bytes()), device.stream());
  if (device.workspace_overrun())
    throw Error(ErrorCode::internal,
                fmt::format("{} wrote behind its workspace of {} bytes.", plan.kernel(), plan.workspace_bytes()));
}

/// Copies there, runs, and copies back, also what a call that fails has left.
template <class Run>
void run_on_device(DeviceBuffers& device, const Buffers& buffers, const ForwardArgs& args, Run&& run) {
  device.upload(buffers);
  try {
    run(device.translated(args));
  } catch (...) {
    try {
      device.download(buffers);
    } catch (const Error&) {  // what went wrong first tells more
    }
    throw;
  }
  device.download(buffers);
}

}  // namespace

Target Target::of(Context& context, EngineChoice engine, Executor* executor, std::string kernel) {
  Executor* const threads = executor != nullptr ? executor : &context.executor();
  Target target{.name = !kernel.empty()                ? kernel
                        : engine == EngineChoice::cuda ? "cuda"
                        : engine == EngineChoice::cpu  ? "cpu"
                                                       : "auto",
                .forward = {},
                .executor = threads};
  const PlanOptions options{.engine = engine, .threads = threads->concurrency(), .kernel = std::move(kernel)};
  if (engine == EngineChoice::cuda) {
    target.forward = [&context, options, executor, pool = std::make_shared<DeviceBuffersPool>()](
                         const Buffers& buffers, const ForwardArgs& args) {
      const DeviceBuffersPool::Lease device = pool->take();
      run_on_device(*device, buffers, args, [&](const ForwardArgs& there) {
        if (!options.kernel.empty()) return run_kernel_on(*device, context, options, there);
        context.forward(there, {.engine = options.engine, .executor = executor, .stream = device->stream()});
      });
    };
  } else if (!options.kernel.empty()) {
    target.forward = [&context, options, threads](const Buffers&, const ForwardArgs& args) {
      run_kernel(context, options, *threads, args);
    };
  } else {
    target.forward = [&context, engine, executor](const Buffers&, const ForwardArgs& args) {
      context.forward(args, {.engine = engine, .executor = executor});
    };
  }
  return target;
}

Verdict run_case(const Case& c, const Target& target, JudgeOptions options) {
  if (options.executor == nullptr) options.executor = target.executor;
  Buffers buffers(c, options.executor);
  try {
    target.forward(buffers, buffers.args());
  } catch (const Error& error) {
    Verdict verdict;
    verdict.status = Verdict::Status::refused;
    verdict.complaints.push_back(error.what());
    verdict.device_failed = error.code() == ErrorCode::device_failed;
    if (!buffers.outputs_untouched()) verdict.complaints.push_back("it was refused, and yet an output was written");
    for (const std::string& change : buffers.check_guards()) verdict.complaints.push_back(change);
    return verdict;
  }
  return judge(buffers, options);
}

}  // namespace heed::verify
