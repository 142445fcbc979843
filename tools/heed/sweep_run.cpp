#include "heed/sweep_run.hpp"

#include "dispatch/backward_kernel.hpp"
#include "dispatch/forward_kernel.hpp"
#include "heed/gpu_clock.hpp"
#include "heed/problem_of.hpp"
#include "heed/terminal.hpp"
#include "verify/device_buffers.hpp"
#include "verify/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace heed::command {
namespace {

/// Kernels of other heads than this machine's need no GPU to be compiled for.
cuda::Device hopper() {
  cuda::Device device;
  device.sm = 90;
  constexpr int kSharedMemory = 227 * 1024;
  device.max_shared_memory = kSharedMemory;
  return device;
}

/// The tensors of a problem on the GPU, for as many kernels as come.
class Tensors {
 public:
  Tensors(const verify::Case& c, Executor& executor)
      : problem_(problem_of(c, Memory::gpu)), buffers_(c, &executor), executor_(executor) {
    device_.upload(buffers_);
    args_ = device_.translated(buffers_.backward_args());
  }

  /// A kernel that is ready to be run on them.
  struct Loaded {
    std::shared_ptr<const dispatch::AttentionKernel> kernel;
    std::unique_ptr<const dispatch::Prepared> prepared;
  };
  /// All of them before the first clock: a workspace that grows moves, and graphs remember where it was.
  Loaded load(const SweepCandidate& candidate) {
    std::size_t bytes = 0;
    for (const Plan::Stage& stage : candidate.kernel->stages(problem_, 1))
      bytes = std::max(bytes, stage.workspace_offset + stage.workspace_bytes);
    if (workspace_.size() < bytes) workspace_ = device_.workspace(bytes);
    return {candidate.kernel, candidate.kernel->prepare(problem_, 1)};
  }
  void run(const Loaded& loaded) {
    if (problem_.operation() == Operation::forward) {
      static_cast<const dispatch::ForwardKernel&>(*loaded.kernel)
          .run({problem_, args_.forward, workspace_, serial_, 1, loaded.prepared.get(), device_.stream()});
    } else {
      static_cast<const dispatch::BackwardKernel&>(*loaded.kernel)
          .run({problem_, args_, workspace_, serial_, 1, loaded.prepared.get(), device_.stream()});
    }
  }

  /// Empty when the result is right; of an inaccurate one its error.
  std::string check(const Loaded& loaded, bool inaccurate) {
    buffers_.clear_outputs();
    device_.upload(buffers_);
    run(loaded);
    device_.download(buffers_);
    const verify::Verdict verdict = verify::judge(buffers_, {.executor = &executor_});
    return verdict.valid() && !inaccurate ? "" : verdict.to_string();
  }

  const verify::DeviceBuffers& device() const { return device_; }

 private:
  Problem problem_;
  verify::Buffers buffers_;
  verify::DeviceBuffers device_;
  BackwardArgs args_;  ///< of a forward pass the forward half alone
  std::span<std::byte> workspace_;
  SerialExecutor serial_;
  Executor& executor_;
};

/// A kernel with a clock of its own.
struct Timed {
  SweepRow* row;
  Tensors::Loaded loaded;
  std::unique_ptr<GpuClock> clock;
  int together = 1;
};

/// One timing lasts about this long.
constexpr double kTiming = 3e-3;
/// Others than these are not looked at twice, however many finalists there may be.
constexpr double kWorthALook = 1.25;

}  // namespace

std::string SweepRow::status() const {
  if (!compiled.failure.empty()) return "does not compile";
  const cuda::Resources& r = compiled.resources;
  if (r.spill_bytes > 0 || r.local_bytes > 0) return fmt::format("spills {} bytes", r.spill_bytes + r.local_bytes);
  if (r.serialized_wgmma) return "wgmma serialised";
  if (!wrong) return "not checked";
  if (candidate.inaccurate) return "inaccurate: " + *wrong;
  return wrong->empty() ? "ok" : "wrong: " + *wrong;
}

std::vector<std::size_t> SweepResult::ranking(std::int64_t s) const {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].times.contains(s)) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Times &x = rows[a].times.at(s), &y = rows[b].times.at(s);
    // Who came through the first look stands before who did not.
    return std::pair(x.count() == 1, x.median()) < std::pair(y.count() == 1, y.median());
  });
  return order;
}

void compile(SweepResult& result, cuda::Jit& jit, const SweepOptions& options) {
  const Problem problem = problem_of(result.of.small_problem(), Memory::gpu);
  // What some candidates share is compiled once.
  std::vector<cuda::ListedKernel> list;
  std::map<std::string, std::size_t> places;
  std::vector<std::vector<std::size_t>> parts;
  for (SweepRow& row : result.rows) {
    auto& mine = parts.emplace_back();
    for (cuda::ListedKernel& each : cuda::sources_of(*row.candidate.kernel, problem, hopper())) {
      row.shared_bytes = std::max(row.shared_bytes, each.shared_bytes);
      const auto [place, is_new] = places.emplace(each.source.text, list.size());
      mine.push_back(place->second);
      if (is_new) list.push_back(std::move(each));
    }
  }
  const auto outcomes = compile_all(jit, list, options.threads, "compiling " + result.of.to_string());
  for (std::size_t i = 0; i < result.rows.size(); ++i) {
    SweepRow& row = result.rows[i];
    // A pass of several kernels is told by its main one, or by one that is not clean.
    const auto told = std::max_element(parts[i].begin(), parts[i].end(), [&](std::size_t a, std::size_t b) {
      return std::pair(!outcomes[a].clean(), list[a].shared_bytes) <
             std::pair(!outcomes[b].clean(), list[b].shared_bytes);
    });
    row.compiled = outcomes[*told];
  }
}

void check(SweepResult& result, Executor& executor) {
  Tensors tensors(result.of.small_problem(), executor);
  Progress progress("checking " + result.of.to_string(), static_cast<double>(result.rows.size()));
  double done = 0;
  for (SweepRow& row : result.rows) {
    progress.show(++done, row.candidate.algo);
    if (row.compiled.clean()) row.wrong = tensors.check(tensors.load(row.candidate), row.candidate.inaccurate);
  }
}

void measure(SweepResult& result, std::int64_t s, const SweepOptions& options, Executor& executor) {
  Tensors tensors(result.of.problem(s), executor);
  std::vector<Timed> all;
  for (SweepRow& row : result.rows)
    if (row.may_be_timed()) all.push_back({&row, tensors.load(row.candidate), nullptr});
  Progress progress(fmt::format("timing {} s={}", result.of.to_string(), s),
                    static_cast<double>(all.size() + static_cast<std::size_t>(options.rounds * options.finalists)));
  double done = 0;
  std::vector<double> first;
  for (Timed& each : all) {
    progress.show(++done, each.row->candidate.algo);
    each.clock = std::make_unique<GpuClock>(tensors.device(), [&tensors, &each] { tensors.run(each.loaded); });
    const double once = each.clock->seconds(1);
    each.together = static_cast<int>(std::clamp(kTiming / once, 1.0, 100.0));
    each.clock->seconds(each.together);
    const double seconds = each.clock->seconds(each.together);
    each.row->times[s].add(seconds);
    first.push_back(seconds);
  }
  if (all.empty()) return;

  std::vector<std::size_t> finalists(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) finalists[i] = i;
  std::sort(finalists.begin(), finalists.end(), [&](std::size_t a, std::size_t b) { return first[a] < first[b]; });
  finalists.resize(std::min(finalists.size(), static_cast<std::size_t>(options.finalists)));
  std::erase_if(finalists, [&](std::size_t i) { return first[i] > kWorthALook * first[finalists.front()]; });
  std::mt19937 order(1);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same order every time
  for (const std::size_t i : finalists) all[i].row->times[s] = {};
  for (int round = 0; round < options.rounds; ++round) {
    std::shuffle(finalists.begin(), finalists.end(), order);
    for (const std::size_t i : finalists) {
      progress.show(++done, all[i].row->candidate.algo);
      all[i].row->times[s].add(all[i].clock->seconds(all[i].together));
    }
  }
}

}  // namespace heed::command
