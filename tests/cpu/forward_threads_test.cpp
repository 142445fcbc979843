#include <heed/heed.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace heed {
namespace {

/// q, k, v of whole numbers, and an o that nobody has written yet.
struct ForwardCaller {
  static constexpr std::int64_t kBatch = 2, kQueries = 150, kKeys = 1500, kHeads = 4, kDim = 24;
  std::vector<float> q, k, v, o;

  explicit ForwardCaller(std::int64_t s_q = kQueries)
      : q(fill(kBatch * s_q * kHeads * kDim, 3)),
        k(fill(kBatch * kKeys * 2 * kDim, 5)),
        v(fill(kBatch * kKeys * 2 * kDim, 7)),
        o(q.size(), -1.F),
        queries(s_q) {}

  ForwardArgs args() {
    return {.q = {q.data(), f32, {kBatch, queries, kHeads, kDim}},
            .k = {k.data(), f32, {kBatch, kKeys, 2, kDim}},
            .v = {v.data(), f32, {kBatch, kKeys, 2, kDim}},
            .o = {o.data(), f32, {kBatch, queries, kHeads, kDim}},
            .mask = Mask::causal()};
  }

 private:
  static std::vector<float> fill(std::int64_t count, std::uint32_t seed) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& x : values) x = static_cast<float>((seed = seed * 1664525U + 1013904223U) >> 28) / 8.F - 1.F;
    return values;
  }
  std::int64_t queries;
};

std::vector<float> alone(std::int64_t s_q) {
  ForwardCaller call(s_q);
  Context({.threads = 1}).forward(call.args());
  return call.o;
}

// What the thread sanitizer watches: pieces on several threads, several callers on one context, splits with their
// merge.
TEST(ForwardThreads, ManyCallersOnOneContextGetTheBitsOfASingleThread) {
  for (const std::int64_t s_q : {std::int64_t{1}, std::int64_t{150}}) {
    const std::vector<float> expected = alone(s_q);
    Context context({.threads = 4});
    std::vector<std::vector<float>> results(3);
    std::vector<std::thread> callers;
    for (auto& result : results)
      callers.emplace_back([&context, &result, s_q] {
        for (int i = 0; i < 3; ++i) {
          ForwardCaller call(s_q);
          context.forward(call.args());
          result = call.o;
        }
      });
    for (std::thread& caller : callers) caller.join();
    for (const auto& result : results) EXPECT_EQ(result, expected);
  }
}

TEST(ForwardThreads, AnyNumberOfThreadsGivesTheSameBits) {
  const std::vector<float> expected = alone(ForwardCaller::kQueries);
  for (const int threads : {2, 3, 7}) {
    ForwardCaller call;
    ThreadPool pool(threads);
    Context().forward(call.args(), {.executor = &pool});
    EXPECT_EQ(call.o, expected) << threads;
  }
}

}  // namespace
}  // namespace heed
