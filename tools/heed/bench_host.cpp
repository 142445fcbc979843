#include "heed/bench_host.hpp"

#include "cuda/device.hpp"
#include "heed/command.hpp"
#include "heed/timing.hpp"
#include "verify/buffers.hpp"
#include "verify/device_buffers.hpp"

#include <fmt/format.h>

namespace heed::command {
namespace {

/// Fewer than the driver queues before it makes the host wait.
constexpr int kCalls = 200;
constexpr int kRounds = 50;

template <class Call>
Times time_calls(const verify::DeviceBuffers& device, const Call& call) {
  Times times;
  times.together = kCalls;
  for (int round = 0; round <= kRounds; ++round) {
    const double seconds = seconds_of([&] {
      for (int i = 0; i < kCalls; ++i) call();
    });
    device.synchronize();
    if (round > 0) times.add(seconds / kCalls);  // the first one compiles and loads
  }
  return times;
}

}  // namespace

std::string measure_host_cost(Context& context) {
  if (cuda::devices().empty()) throw UnsupportedError("not supported: bench host : there is no GPU here.");
  verify::Case c;
  c.b = c.h = c.h_k = 1;
  c.s_q = c.s_k = {64};
  c.d = c.d_v = 64;
  const verify::Buffers buffers(c);
  verify::DeviceBuffers device;
  device.upload(buffers);
  const ForwardArgs args = device.translated(buffers.args());
  const Plan plan = context.plan(args);
  const auto workspace = device.workspace(plan.workspace_bytes());
  const auto line = [](const char* what, const Times& times) {
    return fmt::format("  {:<22} best {:.2f} us, median {:.2f} us\n", what, times.best() * 1e6, times.median() * 1e6);
  };
  std::string text = fmt::format("host cost of a call, {} ({} rounds of {} calls)\n", plan.kernel(), kRounds, kCalls);
  text += line("forward()", time_calls(device, [&] { context.forward(args, {.stream = device.stream()}); }));
  text +=
      line("Plan::run_on_stream()", time_calls(device, [&] { plan.run_on_stream(args, workspace, device.stream()); }));
  return text;
}

}  // namespace heed::command
