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

template <class Args>
void run_kernel(Context& context, const PlanOptions& options, Executor& executor, const Args& args) {
  const Plan plan = context.plan(Problem::of(args), options);
  const std::size_t bytes = (plan.workspace_bytes() + 63) / 64 * 64;
  const std::unique_ptr<std::byte, Free> workspace(static_cast<std::byte*>(std::aligned_alloc(64, bytes + 64)));
  plan.run(args, std::span(workspace.get(), bytes), &executor);
}

template <class Args>
void run_kernel_on(DeviceBuffers& device, Context& context, const PlanOptions& options, const Args& args) {
  const Plan plan = context.plan(Problem::of(args, Memory::gpu), options);
  plan.run_on_stream(args, device.workspace(plan.workspace_bytes()), device.stream());
  if (device.workspace_overrun())
    throw Error(ErrorCode::internal,
                fmt::format("{} wrote behind its workspace of {} bytes.", plan.kernel(), plan.workspace_bytes()));
}

void run_engine(Context& context, const ForwardArgs& args, const RunOptions& options) {
  context.forward(args, options);
}
void run_engine(Context& context, const BackwardArgs& args, const RunOptions& options) {
  context.backward(args, options);
}

/// Copies there, runs, and copies back, also what a call that fails has left.
template <class Args, class Run>
void run_on_device(DeviceBuffers& device, const Buffers& buffers, const Args& args, Run&& run) {
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

/// What a Target calls.
struct Runner {
  Context& context;
  PlanOptions options;
  Executor* executor;  ///< as the caller gave it
  Executor* threads;   ///< never null
  std::shared_ptr<DeviceBuffersPool> devices = std::make_shared<DeviceBuffersPool>();

  template <class Args>
  void operator()(const Buffers& buffers, const Args& args) const {
    if (options.engine == EngineChoice::cuda) {
      const DeviceBuffersPool::Lease device = devices->take();
      run_on_device(*device, buffers, args, [&](const Args& there) {
        if (!options.kernel.empty()) return run_kernel_on(*device, context, options, there);
        run_engine(context, there, {.engine = options.engine, .executor = executor, .stream = device->stream()});
      });
    } else if (!options.kernel.empty()) {
      run_kernel(context, options, *threads, args);
    } else {
      run_engine(context, args, {.engine = options.engine, .executor = executor});
    }
  }
};

}  // namespace

Target Target::of(Context& context, EngineChoice engine, Executor* executor, std::string kernel) {
  Executor* const threads = executor != nullptr ? executor : &context.executor();
  Target target{.name = !kernel.empty()                ? kernel
                        : engine == EngineChoice::cuda ? "cuda"
                        : engine == EngineChoice::cpu  ? "cpu"
                                                       : "auto",
                .forward = {},
                .executor = threads};
  const Runner runner{
      context, {.engine = engine, .threads = threads->concurrency(), .kernel = std::move(kernel)}, executor, threads};
  target.forward = [runner](const Buffers& buffers, const ForwardArgs& args) { runner(buffers, args); };
  target.backward = [runner](const Buffers& buffers, const BackwardArgs& args) { runner(buffers, args); };
  return target;
}

Verdict run_case(const Case& c, const Target& target, JudgeOptions options) {
  if (options.executor == nullptr) options.executor = target.executor;
  const Buffers buffers(c, options.executor);
  try {
    if (c.backward()) {
      target.backward(buffers, buffers.backward_args());
    } else {
      target.forward(buffers, buffers.args());
    }
  } catch (const Error& error) {
    Verdict verdict;
    verdict.status = Verdict::Status::refused;
    verdict.complaints.push_back(error.what());
    verdict.device_failed = error.code() == ErrorCode::device_failed;
    if (!buffers.outputs_untouched()) verdict.complaints.push_back("it was refused, and yet an output was written");
    for (const std::string& change : buffers.check_guards()) verdict.complaints.push_back(change);
    verdict.unsupported = error.code() == ErrorCode::unsupported && verdict.complaints.size() == 1;
    return verdict;
  }
  return judge(buffers, options);
}

}  // namespace heed::verify
