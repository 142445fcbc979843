#include "heed/gpu_clock.hpp"

#include "cuda/device.hpp"
#include "cuda/driver.hpp"

#include <utility>

namespace heed::command {
namespace {

const cuda::Driver& driver() { return *cuda::Driver::get(); }

cuda::CUstream stream_of(const verify::DeviceBuffers& device) { return static_cast<cuda::CUstream>(device.stream()); }

}  // namespace

GpuClock::GpuClock(const verify::DeviceBuffers& device, std::function<void()> run)
    : device_(device), run_(std::move(run)) {
  const cuda::DeviceGuard guard(device_.ordinal());
  cuda::check(driver().cuEventCreate(&begin_, 0), "making an event");
  cuda::check(driver().cuEventCreate(&end_, 0), "making an event");
}

GpuClock::~GpuClock() {
  driver().cuEventDestroy(begin_);
  if (end_ != nullptr) driver().cuEventDestroy(end_);
  if (graph_ != nullptr) driver().cuGraphExecDestroy(graph_);
}

double GpuClock::seconds(int runs) {
  const cuda::DeviceGuard guard(device_.ordinal());
  if (captured_ != runs) capture(runs);
  const cuda::CUstream stream = stream_of(device_);
  cuda::check(driver().cuEventRecord(begin_, stream), "timing");
  cuda::check(driver().cuGraphLaunch(graph_, stream), "timing");
  cuda::check(driver().cuEventRecord(end_, stream), "timing");
  cuda::check(driver().cuEventSynchronize(end_), "timing");
  float milliseconds = 0;
  cuda::check(driver().cuEventElapsedTime(&milliseconds, begin_, end_), "timing");
  return static_cast<double>(milliseconds) * 1e-3 / runs;
}

void GpuClock::capture(int runs) {
  const cuda::CUstream stream = stream_of(device_);
  run_();  // what is loaded or allocated once is so before the capture
  device_.synchronize();
  if (graph_ != nullptr) driver().cuGraphExecDestroy(std::exchange(graph_, nullptr));
  cuda::CUgraph graph = nullptr;
  cuda::check(driver().cuStreamBeginCapture(stream, cuda::CaptureMode::thread_local_), "capturing runs into a graph");
  for (int i = 0; i < runs; ++i) run_();
  cuda::check(driver().cuStreamEndCapture(stream, &graph), "capturing runs into a graph");
  const cuda::CUresult made = driver().cuGraphInstantiateWithFlags(&graph_, graph, 0);
  driver().cuGraphDestroy(graph);
  cuda::check(made, "making a graph of the runs");
  captured_ = runs;
}

}  // namespace heed::command
