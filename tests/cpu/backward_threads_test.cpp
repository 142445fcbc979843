#include <heed/heed.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <utility>
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

/// dQ of four heads, whose 4200 keys are four columns of one to six chunks. Of a small head dim four chunks are in
/// memory at a time, of a large one fewer, as the caches have room.
std::vector<float> dq_of_columns(int threads, const Mask& mask, std::int64_t rows, std::int64_t dim) {
  constexpr std::int64_t kKeys = 4200, kHeads = 4;
  std::vector<float> q = BackwardCaller::fill(rows * kHeads * dim, 17),
                     k = BackwardCaller::fill(kKeys * kHeads * dim, 19), v = k, d_o = q, o = q, dq = q, dk = k, dv = v;
  std::vector<float> lse(static_cast<std::size_t>(rows * kHeads));
  const auto of_queries = [&](auto& x) { return OutputView(x.data(), f32, {1, rows, kHeads, dim}); };
  const auto of_keys = [&](auto& x) { return OutputView(x.data(), f32, {1, kKeys, kHeads, dim}); };
  const ForwardArgs forward{.q = of_queries(q),
                            .k = of_keys(k),
                            .v = of_keys(v),
                            .o = of_queries(o),
                            .lse = {lse.data(), f32, {1, kHeads, rows}},
                            .mask = mask};
  Context context({.threads = threads});
  context.forward(forward);
  context.backward(
      {.forward = forward, .d_o = of_queries(d_o), .dq = of_queries(dq), .dk = of_keys(dk), .dv = of_keys(dv)});
  return dq;
}

// Where the heads come out even among the threads, each takes a head at a time and adds up its columns as it goes;
// otherwise columns are computed apart and added at the end.
TEST(BackwardThreads, ColumnsAddUpToTheSameBitsWhoeverComputesThem) {
  for (const Mask& mask : {Mask::none(), Mask::causal(), Mask::window(700, 0), Mask::window(700, 300, 5),
                           Mask::causal_top_left(), Mask::window_top_left(20, 0, 2)}) {
    for (const auto& [rows, dim] : {std::pair{700, 8}, {150, 100}, {90, 140}}) {
      const std::vector<float> apart = dq_of_columns(3, mask, rows, dim);
      for (const int threads : {1, 2, 4})
        EXPECT_EQ(dq_of_columns(threads, mask, rows, dim), apart) << threads << " threads, d " << dim;
    }
  }
}

}  // namespace
}  // namespace heed
