// For callers who run the same problem many times: decide once, then run without allocating, in memory and on threads
// of their own.
#include "example.hpp"

#include <atomic>
#include <memory>
#include <new>
#include <span>
#include <thread>

using example::Floats;

namespace {

// The smallest executor there can be: threads that take the next piece until none is left. Yours would hand the pieces
// to the pool that your program has anyway.
class Threads final : public heed::Executor {
 public:
  explicit Threads(int count) : count_(count) {}
  int concurrency() const noexcept override { return count_; }
  void parallel_for(std::int64_t count, Body body, void* context) override {
    std::atomic<std::int64_t> next{0};
    const auto work = [&](int worker) {
      for (std::int64_t index; (index = next++) < count;) body(context, index, worker);
    };
    std::vector<std::thread> others;
    for (int worker = 1; worker < count_; ++worker) others.emplace_back(work, worker);
    work(0);
    for (std::thread& thread : others) thread.join();
  }

 private:
  int count_;
};

struct AlignedDelete {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
};

}  // namespace

int main() {
  constexpr std::int64_t b = 2, s = 200, h = 8, h_k = 4, d = 64;
  // What is to be computed, before any memory exists.
  const auto problem = heed::Problem::forward().type(heed::f32).batch(b).heads(h, h_k).lengths(s, s).head_dims(d).mask(
      heed::Mask::window(64, 0));
  const heed::Plan plan = heed::plan(problem, {.threads = 3});
  std::printf("%s\nruns on %s with %zu bytes of workspace\n", problem.to_string().c_str(), plan.kernel().c_str(),
              plan.workspace_bytes());
  const std::unique_ptr<std::byte[], AlignedDelete> memory(new (std::align_val_t{64})
                                                               std::byte[plan.workspace_bytes()]);
  const std::span<std::byte> workspace(memory.get(), plan.workspace_bytes());

  const Floats q = example::random_floats(b * s * h * d, 1), k = example::random_floats(b * s * h_k * d, 2),
               v = example::random_floats(b * s * h_k * d, 3);
  const auto run = [&](heed::Executor* executor) {
    Floats o = example::unwritten(b * s * h * d);
    plan.run({.q = {q.data(), heed::f32, {b, s, h, d}},
              .k = {k.data(), heed::f32, {b, s, h_k, d}},
              .v = {v.data(), heed::f32, {b, s, h_k, d}},
              .o = {o.data(), heed::f32, {b, s, h, d}},
              .mask = heed::Mask::window(64, 0)},
             workspace, executor);
    return o;
  };
  Threads three(3);
  example::Checks checks;
  const Floats serial = run(nullptr);
  checks.expect(run(&three) == serial, "three threads give the same bits as one");
  checks.expect(run(&three) == serial, "and again in the next run");
  return checks.exit_code();
}
