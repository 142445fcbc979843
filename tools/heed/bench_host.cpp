#include "heed/bench_host.hpp"

#include "cuda/device.hpp"
#include "heed/command.hpp"
#include "heed/machine.hpp"
#include "heed/text.hpp"
#include "verify/buffers.hpp"
#include "verify/device_buffers.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

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

HostCost measure_host_cost(Context& context) {
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
  return {
      plan.kernel(),
      {{"forward()", time_calls(device, [&] { context.forward(args, {.stream = device.stream()}); })},
       {"Plan::run_on_stream()", time_calls(device, [&] { plan.run_on_stream(args, workspace, device.stream()); })}}};
}

std::string to_text(const HostCost& cost) {
  std::string text = fmt::format("host cost of a call, {} ({} rounds of {} calls)\n", cost.kernel, kRounds, kCalls);
  for (const auto& [call, times] : cost.calls)
    text += fmt::format("  {:<22} best {:.2f} us, median {:.2f} us\n", call, times.best() * 1e6, times.median() * 1e6);
  return text;
}

std::string to_json(const HostCost& cost, const std::string& command) {
  nlohmann::ordered_json json{
      {"suite", "host"},   {"command", command},        {"machine", to_json(this_machine())}, {"kernel", cost.kernel},
      {"rounds", kRounds}, {"calls_per_round", kCalls}, {"rows", nlohmann::json::array()}};
  for (const auto& [call, times] : cost.calls)
    json["rows"].push_back({{"call", call}, {"best_us", times.best() * 1e6}, {"median_us", times.median() * 1e6}});
  return json_text(json);
}

}  // namespace heed::command
