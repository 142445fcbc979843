/// A reference that is kept is used again for the same problem with the same data, and for nothing else.

#include "verify/reference_cache.hpp"
#include "core/float_bits.hpp"
#include "verify/judge.hpp"
#include "verify/run.hpp"

#include <heed/oracle.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace heed::verify {
namespace {

constexpr double kBudget = 4e9;

/// A reference that knows for which case it was made.
struct Stamp {
  std::string made_for;
  std::size_t bytes() const { return 100; }
};

/// Asks for references, and counts those that were not there.
struct Asker {
  ReferenceCache cache{std::size_t{1} << 30};
  int made = 0;

  std::string ask(const Buffers& buffers, double budget = kBudget) {
    return cache
        .get<Stamp>(buffers, budget,
                    [&] {
                      ++made;
                      return std::make_shared<Stamp>(Stamp{buffers.get_case().to_command()});
                    })
        ->made_for;
  }
};

Case plain_case() {
  Case c;
  c.b = 2, c.h = 2, c.h_k = 1, c.s_q = {9}, c.s_k = {14}, c.d = 16, c.d_v = 8;
  c.type = bf16;
  c.lse = true;
  return c;
}

Case plain_backward_case() {
  Case c = plain_case();
  c.operation = Operation::backward;
  return c;
}

/// Each differs from plain_case() in one thing; from some of the others, too, in what the tensors' bytes do not show.
std::vector<Case> cases_that_differ() {
  std::vector<Case> list{plain_case(), plain_backward_case()};
  const auto add = [&](auto change) {
    for (const Case& plain : {plain_case(), plain_backward_case()}) {
      list.push_back(plain);
      change(list.back());
    }
  };
  add([](Case& c) { c.seed = 1; });
  add([](Case& c) { c.distribution = Distribution::uniform; });
  add([](Case& c) { c.b = 1; });
  add([](Case& c) { c.h = 1; });
  add([](Case& c) { c.h_k = 2; });
  add([](Case& c) { c.s_q = {8}; });
  add([](Case& c) { c.s_k = {15}; });
  add([](Case& c) { c.d = 15; });
  add([](Case& c) { c.d_v = 9; });
  add([](Case& c) { c.mode = Mode::group, c.s_q = {9, 9}, c.s_k = {14, 14}; });
  add([](Case& c) { c.q_eff_lens = {9, 5}; });
  add([](Case& c) { c.kv_eff_lens = {9, 5}; });
  add([](Case& c) { c.type = f16; });
  add([](Case& c) { c.output_type = f32; });
  add([](Case& c) { c.math = Math::accurate; });
  add([](Case& c) { c.scale = 0.5; });
  for (const char* mask : {"t", "b", "b:3,0", "b:4,0", "b:3,0,2", "xb:8"})
    add([&](Case& c) { c.mask = Mask::parse(mask); });
  add([](Case& c) { c.bias = BiasSpec{f32, {.query = true}}; });
  add([](Case& c) { c.bias = BiasSpec{f32, {.query = true}}, c.bias_inf = true; });
  add([](Case& c) { c.bool_mask = Broadcast{.query = true}; });
  add([](Case& c) { c.block_mask = BlockMaskSpec{4, 4, {.query = true}}; });
  add([](Case& c) { c.alibi = Alibi::per_head; });
  add([](Case& c) { c.sink = SinkInit::normal; });
  add([](Case& c) { c.sink = SinkInit::large; });
  add([](Case& c) { c.soft_cap = 5; });
  add([](Case& c) { c.p_drop = 0.2; });
  add([](Case& c) { c.p_drop = 0.3; });
  add([](Case& c) { c.p_drop = 0.3, c.drop_seed = 2; });
  add([](Case& c) { c.p_drop = 0.3, c.drop_offset = 2; });
  add([](Case& c) { c.q_layout = Layout::bshd; });
  add([](Case& c) { c.zero_strides = {{ZeroStride::Tensor::k, 'b'}}; });
  const auto add_backward = [&](auto change) {
    list.push_back(plain_backward_case());
    change(list.back());
  };
  add_backward([](Case& c) { c.d_lse = true; });
  add_backward([](Case& c) { c.sink = SinkInit::normal, c.dsink = true; });
  add_backward([](Case& c) { c.alibi = Alibi::per_head, c.dslopes = true; });
  add_backward([](Case& c) { c.bias = BiasSpec{f32, {.query = true}}, c.dbias = f32; });
  add_backward([](Case& c) { c.bias = BiasSpec{f32, {.query = true}}, c.dbias = bf16; });
  return list;
}

TEST(ReferenceCache, has_one_reference_for_each_case_and_makes_it_once) {
  Asker asker;
  const std::vector<Case> cases = cases_that_differ();
  for (int time = 0; time < 2; ++time) {
    for (const Case& c : cases) EXPECT_EQ(asker.ask(Buffers(c)), c.to_command());
    EXPECT_EQ(asker.made, static_cast<int>(cases.size()));
  }
}

TEST(ReferenceCache, has_one_for_each_choice_of_rows) {
  Asker asker;
  const Buffers buffers(plain_case());
  asker.ask(buffers);
  asker.ask(buffers, 1000);
  EXPECT_EQ(asker.made, 2);
}

// A test puts something else into an input; an engine writes where it must not.
TEST(ReferenceCache, sees_every_byte_of_the_inputs) {
  for (const Case& c : {plain_case(), plain_backward_case()}) {
    Asker asker;
    const Buffers buffers(c);
    asker.ask(buffers);
    const ForwardArgs& args = buffers.args();
    std::vector<TensorView> inputs{args.q, args.k, args.v};
    if (c.backward()) inputs.insert(inputs.end(), {args.o, args.lse, buffers.backward_args().d_o});
    int changes = 0;
    for (const TensorView& input : inputs) {
      core::store(const_cast<void*>(input.data), input.type, 3, 100.0);
      asker.ask(buffers);
      EXPECT_EQ(asker.made, 1 + ++changes);
    }
    asker.ask(Buffers(c));  // as it was in the beginning
    EXPECT_EQ(asker.made, 1 + changes);
  }
}

TEST(ReferenceCache, keeps_nothing_of_arguments_that_may_not_be_the_cases) {
  Asker asker;
  Buffers buffers(plain_case());
  asker.ask(buffers);
  buffers.args().scale = 3;
  for (int time = 0; time < 2; ++time) asker.ask(buffers);
  EXPECT_EQ(asker.made, 3);
  Buffers backward(plain_backward_case());
  backward.backward_args().forward.scale = 3;
  for (int time = 0; time < 2; ++time) asker.ask(backward);
  EXPECT_EQ(asker.made, 5);
}

TEST(ReferenceCache, holds_no_more_than_it_may_until_it_is_cleared) {
  Asker asker;
  asker.ask(Buffers(plain_case()));
  const std::size_t one = asker.cache.bytes();
  EXPECT_GT(one, Stamp{}.bytes());

  ReferenceCache small(2 * one + one / 2);
  int made = 0;
  const auto ask = [&](std::uint64_t seed) {
    Case c = plain_case();
    c.seed = seed;
    small.get<Stamp>(Buffers(c), kBudget, [&] {
      ++made;
      return std::make_shared<Stamp>();
    });
  };
  for (int time = 0; time < 2; ++time)
    for (const std::uint64_t seed : {1, 2, 3}) ask(seed);
  EXPECT_EQ(made, 4);  // the third is made twice
  EXPECT_EQ(small.bytes(), 2 * one);
  small.clear();
  EXPECT_EQ(small.bytes(), 0U);
  ask(3);
  ask(3);
  EXPECT_EQ(made, 5);
}

/// The plain computation as an engine, of arguments that are changed before, if at all.
Target plain_of(std::function<void(BackwardArgs&)> change = [](BackwardArgs&) {}) {
  return {.name = "plain",
          .forward =
              [change](const Buffers&, const ForwardArgs& args) {
                BackwardArgs changed;
                changed.forward = args;
                change(changed);
                oracle::plain_forward(changed.forward);
              },
          .backward =
              [change](const Buffers&, const BackwardArgs& args) {
                BackwardArgs changed = args;
                change(changed);
                oracle::plain_backward(changed);
              }};
}

TEST(ReferenceCache, changes_no_verdict) {
  ReferenceCache cache(std::size_t{1} << 30);
  std::vector<Case> cases = cases_that_differ();
  for (const double budget : {kBudget, 2000.0})
    for (const Case& c : cases) {
      const std::string alone = run_case(c, plain_of(), {.budget = budget}).to_string();
      for (int time = 0; time < 2; ++time)
        EXPECT_EQ(run_case(c, plain_of(), {.budget = budget, .references = &cache}).to_string(), alone)
            << c.to_command();
    }
}

// What would pass if the references of two cases were mixed up: an engine that takes one for the other.
TEST(ReferenceCache, lets_no_engine_pass_that_computes_a_case_it_knows_instead) {
  for (const Case& c : {plain_case(), plain_backward_case()}) {
    ReferenceCache cache(std::size_t{1} << 30);
    Case other = c;
    other.mask = Mask::causal();
    for (const Case& known : {c, other})
      EXPECT_TRUE(run_case(known, plain_of(), {.references = &cache}).valid()) << known.to_command();
    const Target forgets_the_mask = plain_of([](BackwardArgs& args) { args.forward.mask = Mask::none(); });
    EXPECT_TRUE(run_case(c, forgets_the_mask, {.references = &cache}).valid());
    EXPECT_FALSE(run_case(other, forgets_the_mask, {.references = &cache}).valid());

    const Buffers as_before(c);
    const Target takes_old_data = plain_of([&](BackwardArgs& args) { args.forward.v = as_before.args().v; });
    EXPECT_TRUE(run_case(c, takes_old_data, {.references = &cache}).valid());
    other = c;
    other.seed = c.seed + 1;
    EXPECT_FALSE(run_case(other, takes_old_data, {.references = &cache}).valid());
    EXPECT_TRUE(run_case(other, plain_of(), {.references = &cache}).valid());
  }
}

}  // namespace
}  // namespace heed::verify
