#include "dispatch/plan_cache.hpp"

#include "dispatch/fakes.hpp"
#include "dispatch/plan_impl.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>
#include <vector>

namespace heed::dispatch {
namespace {

using heed::testing::FakeContext;
using heed::testing::FakeSpec;

Problem of_length(std::int64_t s) { return Problem::forward().type(f32).lengths(s, s); }

PlanCache::Value some_plan(FakeContext& fake, const Problem& problem) {
  return make_plan(fake.context->impl().registry, problem, {}, 1, false);
}

TEST(PlanCache, finds_what_was_kept_for_an_equal_key_and_nothing_else) {
  FakeContext fake({FakeSpec{}});
  PlanCache cache(8);
  const Problem problem = of_length(5);
  const auto plan = some_plan(fake, problem);
  EXPECT_EQ(cache.insert({problem, EngineChoice::automatic, "", 2}, plan), plan);

  const Problem equal = of_length(5);
  EXPECT_EQ(cache.find({equal, EngineChoice::automatic, "", 2}), plan);
  EXPECT_EQ(cache.find({of_length(6), EngineChoice::automatic, "", 2}), nullptr);
  EXPECT_EQ(cache.find({problem, EngineChoice::cpu, "", 2}), nullptr);
  EXPECT_EQ(cache.find({problem, EngineChoice::automatic, "cpu/baseline/fwd_fake", 2}), nullptr);
  EXPECT_EQ(cache.find({problem, EngineChoice::automatic, "", 3}), nullptr);
}

TEST(PlanCache, keeps_the_first_of_two_plans_for_one_key) {
  FakeContext fake({FakeSpec{}});
  PlanCache cache(8);
  const Problem problem = of_length(5);
  const auto first = some_plan(fake, problem), second = some_plan(fake, problem);
  cache.insert({problem, EngineChoice::cpu, "", 1}, first);
  EXPECT_EQ(cache.insert({problem, EngineChoice::cpu, "", 1}, second), first);
  EXPECT_EQ(cache.size(), 1u);
}

TEST(PlanCache, drops_the_plan_that_was_not_used_for_longest) {
  FakeContext fake({FakeSpec{}});
  PlanCache cache(3);
  const auto key = [](const Problem& problem) { return PlanCache::Key{problem, EngineChoice::cpu, "", 1}; };
  const Problem p1 = of_length(1), p2 = of_length(2), p3 = of_length(3), p4 = of_length(4);
  for (const Problem* p : {&p1, &p2, &p3}) cache.insert(key(*p), some_plan(fake, *p));
  cache.find(key(p1));
  cache.insert(key(p4), some_plan(fake, p4));
  EXPECT_EQ(cache.size(), 3u);
  EXPECT_NE(cache.find(key(p1)), nullptr);
  EXPECT_EQ(cache.find(key(p2)), nullptr);
  EXPECT_NE(cache.find(key(p3)), nullptr);
  EXPECT_NE(cache.find(key(p4)), nullptr);
}

/// What a plan holds, whose end asks the cache something, as that of anything may.
struct AsksTheCache : Prepared {
  struct Answers {
    const PlanCache* cache = nullptr;             ///< null: it is not asked any more, for it ends itself
    std::vector<std::future<std::size_t>> sizes;  ///< outlive the plan: a lock that is held is free by then
    int late = 0;
  };
  explicit AsksTheCache(Answers& to) : answers(to) {}
  ~AsksTheCache() override {
    if (answers.cache == nullptr) return;
    answers.sizes.push_back(std::async(std::launch::async, [cache = answers.cache] { return cache->size(); }));
    if (answers.sizes.back().wait_for(std::chrono::seconds(2)) != std::future_status::ready) ++answers.late;
  }
  Answers& answers;
};

TEST(PlanCache, is_not_locked_while_a_plan_is_destroyed) {
  FakeContext fake({FakeSpec{}});
  AsksTheCache::Answers answers;
  PlanCache cache(1);
  answers.cache = &cache;
  const auto insert = [&](std::int64_t s) {
    const Problem problem = of_length(s);
    auto plan = std::make_shared<Plan::Impl>(Plan::Impl{.problem = problem,
                                                        .engine = EngineChoice::cpu,
                                                        .named_kernel = "",
                                                        .threads = 1,
                                                        .log = false,
                                                        .registry = fake.context->impl().registry,
                                                        .kernel = nullptr,
                                                        .prepared = std::make_unique<AsksTheCache>(answers)});
    cache.insert({problem, EngineChoice::cpu, "", 1}, std::move(plan));
  };
  insert(5);
  insert(5);  // another one was first
  EXPECT_EQ(answers.sizes.size(), 1u);
  insert(6);  // the one of before makes room
  EXPECT_EQ(answers.sizes.size(), 2u);
  EXPECT_EQ(answers.late, 0);
  answers.cache = nullptr;
}

TEST(PlanCache, a_context_makes_a_plan_once_per_problem_and_options) {
  FakeContext fake({FakeSpec{}}, 2);
  for (int i = 0; i < 3; ++i) fake.context->plan(of_length(7));
  EXPECT_EQ(fake.engine->kernel(0).plans_made, 1);
  fake.context->plan(of_length(7), {.threads = 2});  // as many as the pool has: the same
  EXPECT_EQ(fake.engine->kernel(0).plans_made, 1);
  fake.context->plan(of_length(7), {.threads = 1});
  EXPECT_EQ(fake.engine->kernel(0).plans_made, 2);
  fake.context->plan(of_length(7), {.kernel = "cpu/baseline/fwd_fake"});
  EXPECT_EQ(fake.engine->kernel(0).plans_made, 3);
  EXPECT_EQ(fake.context->impl().plans.size(), 3u);
}

TEST(PlanCache, a_context_keeps_a_bounded_number_of_plans) {
  FakeContext fake({FakeSpec{}});
  constexpr auto kMost = static_cast<std::int64_t>(Context::Impl::kPlans);
  for (std::int64_t s = 1; s <= kMost + 10; ++s) fake.context->plan(of_length(s));
  EXPECT_EQ(fake.context->impl().plans.size(), Context::Impl::kPlans);
}

// Not a benchmark: a bound far above what it takes (0.2 us), to see that nothing is copied, sorted or selected again.
TEST(PlanCache, looking_up_takes_microseconds_even_when_full) {
  FakeContext fake({FakeSpec{}});
  for (std::int64_t s = 1; s <= 1024; ++s) fake.context->plan(of_length(s));
  const Problem problem = of_length(512);
  constexpr int kLookups = 1000;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kLookups; ++i) fake.context->plan(problem);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took / kLookups, std::chrono::microseconds(50));
  RecordProperty("nanoseconds_per_lookup", static_cast<int>((took / kLookups).count()));
}

}  // namespace
}  // namespace heed::dispatch
