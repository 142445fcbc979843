#include <heed/heed.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace heed {
namespace {

/// Two query heads on one key/value head and enough keys for several columns, with everything that is summed over rows.
struct BackwardCaller {
  static constexpr std::int64_t kRows = 90, kKeys = 1700, kHeads = 2, kDim = 24;
  std::vector<float> q = fill(kRows * kHeads * kDim, 3), k = fill(kKeys * kDim, 5), v = fill(kKeys * kDim, 7),
                     d_o = fill(kRows * kHeads * kDim, 9), bias = fill(kRows * kKeys, 11), sink = fill(kHeads, 13);
  std::vector<float> o = q, lse = std::vector<float>(kRows * kHeads);
  std::vector<float> dq = o, dk = k, dv = v, dbias = bias, dsink = sink;

  BackwardArgs args() {
    BackwardArgs args{.forward = {.q = {q.data(), f32, {1, kRows, kHeads, kDim}},
                                  .k = {k.data(), f32, {1, kKeys, 1, kDim}},
                                  .v = {v.data(), f32, {1, kKeys, 1, kDim}},
                                  .o = {o.data(), f32, {1, kRows, kHeads, kDim}},
                                  .lse = {lse.data(), f32, {1, kHeads, kRows}},
                                  .bias = {bias.data(), f32, {kRows, kKeys}},
                                  .sink = {sink.data(), f32, {kHeads}}},
                      .d_o = {d_o.data(), f32, {1, kRows, kHeads, kDim}},
                      .dq = {dq.data(), f32, {1, kRows, kHeads, kDim}},
                      .dk = {dk.data(), f32, {1, kKeys, 1, kDim}},
                      .dv = {dv.data(), f32, {1, kKeys, 1, kDim}}};
    args.dbias = {dbias.data(), f32, {kRows, kKeys}};
    args.dsink = {dsink.data(), f32, {kHeads}};
    return args;
  }
  /// All gradients, one behind the other.
  std::vector<float> gradients() const {
    std::vector<float> all;
    for (const auto* each : {&dq, &dk, &dv, &dbias, &dsink}) all.insert(all.end(), each->begin(), each->end());
    return all;
  }
  std::vector<float> run(Context& context, Executor* executor = nullptr) {
    context.forward(args().forward, {.executor = executor});
    context.backward(args(), {.executor = executor});
    return gradients();
  }

 private:
  static std::vector<float> fill(std::int64_t count, std::uint32_t seed) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& x : values) x = static_cast<float>((seed = seed * 1664525U + 1013904223U) >> 28) / 8.F - 1.F;
    return values;
  }
};

std::vector<float> alone() {
  Context context({.threads = 1});
  return BackwardCaller().run(context);
}

// What the thread sanitizer watches: columns of keys on several threads, the sum of their dQ, several callers on one
// context.
TEST(BackwardThreads, ManyCallersOnOneContextGetTheBitsOfASingleThread) {
  const std::vector<float> expected = alone();
  Context context({.threads = 4});
  std::vector<std::vector<float>> results(3);
  std::vector<std::thread> callers;
  for (auto& result : results) callers.emplace_back([&context, &result] { result = BackwardCaller().run(context); });
  for (std::thread& caller : callers) caller.join();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

TEST(BackwardThreads, AnyNumberOfThreadsGivesTheSameBits) {
  const std::vector<float> expected = alone();
  for (const int threads : {2, 3, 7}) {
    ThreadPool pool(threads);
    Context context;
    EXPECT_EQ(BackwardCaller().run(context, &pool), expected) << threads;
  }
}

}  // namespace
}  // namespace heed
