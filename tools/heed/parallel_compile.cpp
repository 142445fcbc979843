#include "heed/parallel_compile.hpp"

#include "heed/terminal.hpp"

#include <heed/error.hpp>
#include <heed/executor.hpp>

#include <algorithm>
#include <mutex>
#include <thread>

namespace heed::command {

std::vector<CompileOutcome> compile_all(cuda::Jit& jit, const std::vector<cuda::ListedKernel>& kernels, int threads,
                                        const std::string& what) {
  std::vector<CompileOutcome> outcomes(kernels.size());
  Progress progress(what, static_cast<double>(kernels.size()));
  std::mutex mutex;  // of what stands below
  std::size_t next = 0, done = 0;
  const auto work = [&] {
    for (std::unique_lock lock(mutex); next < kernels.size();) {
      const std::size_t index = next++;
      const cuda::ListedKernel& mine = kernels[index];
      lock.unlock();
      CompileOutcome outcome;
      try {
        outcome.resources = jit.get(mine.source, mine.arch)->resources;
      } catch (const Error& error) {
        outcome.failure = error.what();
      }
      lock.lock();
      outcomes[index] = std::move(outcome);
      progress.show(static_cast<double>(++done), mine.source.name);
    }
  };
  if (threads == 0) threads = usable_threads();
  std::vector<std::thread> helpers;
  for (int i = 1; i < std::min(threads, static_cast<int>(kernels.size())); ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  return outcomes;
}

}  // namespace heed::command
