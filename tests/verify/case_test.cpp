/// Cases survive the way through their texts, and what is wrong in a text is said precisely.

#include "verify/case_args.hpp"
#include "verify/fuzz.hpp"

#include <heed/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heed::verify {
namespace {

using testing::HasSubstr;

std::map<std::string, std::string> as_map(const Case& c) {
  std::map<std::string, std::string> args;
  for (const auto& [key, text] : args_of(c)) args[key] = text;
  return args;
}

std::string error_of(const std::map<std::string, std::string>& args, ErrorCode code = ErrorCode::invalid_argument) {
  try {
    case_from_args(args);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "there was no error";
  return {};
}

TEST(Case, without_arguments_is_the_default) {
  EXPECT_EQ(case_from_args({}), Case{});
  EXPECT_EQ(Case{}.to_command(), "heed fwd");
}

TEST(Case, comes_back_equal_from_its_arguments_and_its_json) {
  for (std::int64_t number = 0; number < 2000; ++number) {
    const Case c = random_case(7, number, number % 2 == 0 ? Operation::forward : Operation::backward);
    c.check();
    ASSERT_EQ(case_from_args(as_map(c), c.operation), c) << c.to_command();
    ASSERT_EQ(Case::from_json(c.to_json()), c) << c.to_json();
  }
}

TEST(Case, of_one_kind_share_what_kernels_are_compiled_for) {
  constexpr std::int64_t kKinds = 10;
  bool sizes_differ = false;
  for (std::int64_t number = 0; number < 500; ++number) {
    const Case first = random_case(7, number % kKinds, Operation::backward, kKinds);
    const Case c = random_case(7, number, Operation::backward, kKinds);
    c.check();
    EXPECT_EQ(c.type, first.type);
    EXPECT_EQ(c.mode, first.mode);
    EXPECT_EQ(c.alibi, first.alibi);
    EXPECT_EQ(c.soft_cap, first.soft_cap);
    EXPECT_EQ(c.p_drop, first.p_drop);
    EXPECT_EQ(c.bias.has_value(), first.bias.has_value());
    EXPECT_EQ(c.v_column_major, first.v_column_major);
    sizes_differ = sizes_differ || c.s_k != first.s_k;
  }
  EXPECT_TRUE(sizes_differ);
}

TEST(Case, reads_the_texts_of_the_command_line) {
  const Case c = case_from_args({{"b", "1"},
                                 {"h", "6"},
                                 {"h_k", "2"},
                                 {"s", "17"},
                                 {"s_k", "33"},
                                 {"d", "40"},
                                 {"d_v", "24"},
                                 {"prec", "bf16"},
                                 {"mask", "b:4,0,2"},
                                 {"bias", "e:1"},
                                 {"bias_prec", "fp32"},
                                 {"alibi", "bh"},
                                 {"scale", "0.25"},
                                 {"iperm", "0"},
                                 {"vlayout", "c"},
                                 {"init", "tf"}});
  EXPECT_EQ(c.h_k, 2);
  EXPECT_EQ(c.s_k, std::vector<std::int64_t>{33});
  EXPECT_EQ(c.d_v, 24);
  EXPECT_EQ(c.type, bf16);
  EXPECT_EQ(c.mask, Mask::window(4, 0, 2));
  EXPECT_EQ(c.bias, (BiasSpec{f32, {.head = true, .query = true}}));
  EXPECT_EQ(c.alibi, Alibi::per_batch_and_head);
  EXPECT_EQ(c.scale, 0.25);
  EXPECT_EQ(c.q_layout, Layout::bshd);
  EXPECT_EQ(c.o_layout, Layout::bhsd);
  EXPECT_TRUE(c.v_column_major);
  EXPECT_EQ(c.distribution, Distribution::trig);
}

TEST(Case, takes_zero_and_minus_one_as_the_same_as_another) {
  for (const char* same : {"0", "-1"}) {
    const Case c = case_from_args({{"h", "4"}, {"h_k", same}, {"d", "40"}, {"d_v", same}});
    EXPECT_EQ(c.h_k, 4);
    EXPECT_EQ(c.d_v, 40);
  }
}

TEST(Case, takes_one_length_in_group_mode_as_the_average) {
  const Case c = case_from_args({{"mode", "1"}, {"b", "4"}, {"s", "100"}, {"s_k", "50"}});
  EXPECT_EQ(c.s_q.size(), 4U);
  EXPECT_EQ(c.total_q(), 400);
  EXPECT_EQ(c.total_k(), 200);
  EXPECT_EQ(case_from_args({{"mode", "1"}, {"b", "4"}, {"s", "100"}}).s_k, c.s_q);
}

TEST(Case, repeats_the_last_effective_length) {
  const Case c = case_from_args({{"b", "3"}, {"s", "9"}, {"kv_eff_lens", "4,7"}});
  EXPECT_EQ(c.kv_eff_lens, (std::vector<std::int64_t>{4, 7, 7}));
}

TEST(Case, says_what_was_passed_and_what_would_work) {
  EXPECT_THAT(error_of({{"h", "six"}}), HasSubstr("-h=six : a whole number is needed"));
  EXPECT_THAT(error_of({{"s", "1e3"}}), HasSubstr("-s=1e3 : "));
  EXPECT_THAT(error_of({{"b", "-2"}}), HasSubstr("-b=-2 : must be from 0"));
  EXPECT_THAT(error_of({{"mask", "t:4"}}), HasSubstr("-mask=t:4 : "));
  EXPECT_THAT(error_of({{"mask", "t:4"}}), HasSubstr("two numbers"));
  EXPECT_THAT(error_of({{"bias", "x"}}), HasSubstr("-bias=x : takes n, e"));
  EXPECT_THAT(error_of({{"prec", "fp12"}}), HasSubstr("fp32, fp16, bf16"));
  EXPECT_THAT(error_of({{"s", "4,5"}}), HasSubstr("-mode=1 takes a list"));
  EXPECT_THAT(error_of({{"mode", "1"}, {"b", "3"}, {"s", "4,5"}}), HasSubstr("2 lengths for b = 3"));
  EXPECT_THAT(error_of({{"mode", "1"}, {"s", "4,5"}, {"s_qpad", "3,9"}}), HasSubstr("sequence 0 is 4"));
  EXPECT_THAT(error_of({{"s_kpad", "9"}}), HasSubstr("group mode"));
  EXPECT_THAT(error_of({{"mode", "1"}, {"q_eff_lens", "3"}}), HasSubstr("batch mode"));
  EXPECT_THAT(error_of({{"s", "8"}, {"q_eff_lens", "9"}}), HasSubstr("at most 8"));
  EXPECT_THAT(error_of({{"iperm", "0"}, {"layout", "bhsd"}}), HasSubstr("contradicts -iperm"));
  EXPECT_THAT(error_of({{"layout", "qkvpacked"}, {"h_k", "4"}}), HasSubstr("qkvpacked"));
  EXPECT_THAT(error_of({{"block_mask", "0,4"}}), HasSubstr("for example 64,64"));
  EXPECT_THAT(error_of({{"zero_strides", "k.q"}}), HasSubstr("for example k.b"));
  EXPECT_THAT(error_of({{"dist", "gauss"}}), HasSubstr("sparse_int"));
  EXPECT_THAT(error_of({{"scale", "1"}, {"scale_s", "2"}}), HasSubstr("give one of them"));
  EXPECT_THAT(error_of({{"wings", "2"}}), HasSubstr("no argument 'wings'"));
}

TEST(Case, refuses_what_is_not_built_yet_as_unsupported) {
  for (const auto& [key, text] : std::vector<std::pair<std::string, std::string>>{{"num_splits", "2"},
                                                                                  {"page_block_size", "128"},
                                                                                  {"s_knew", "4"},
                                                                                  {"rotary_dim", "32"},
                                                                                  {"prec", "fp8"},
                                                                                  {"qscale", "pt"},
                                                                                  {"cache_batch_idx", "1"},
                                                                                  {"pack_gqa", "0"}})
    EXPECT_THAT(error_of({{key, text}}, ErrorCode::unsupported),
                HasSubstr("not supported: -" + key + "=" + text + " : "));
  EXPECT_THAT(error_of({{"num_splits", "two"}}), HasSubstr("a whole number"));
}

TEST(Case, tells_a_bound_of_the_longest_sequence_in_group_mode) {
  Case c = case_from_args({{"mode", "1"}, {"b", "2"}, {"s", "5,9"}, {"s_k", "12,3"}});
  EXPECT_EQ(c.told_q(), 9);
  EXPECT_EQ(c.bound_k(Memory::gpu), 12);
  c.max_s_q = 0, c.max_s_k = 13;
  EXPECT_EQ(c.told_q(), 0);
  EXPECT_EQ(c.bound_q(), 9);
  EXPECT_EQ(c.bound_q(Memory::gpu), 14);
  EXPECT_EQ(c.bound_k(), 13);
  c.check();
  // No row counts, but there are some: a bound of 0 would say nothing.
  c = case_from_args({{"mode", "1"}, {"b", "1"}, {"s", "0"}, {"s_qpad", "4"}, {"s_k", "3"}});
  EXPECT_EQ(c.told_q(), 1);

  EXPECT_THAT(error_of({{"max_s_q", "7"}}), HasSubstr("max_s_q = 7: in batch mode"));
  EXPECT_THAT(error_of({{"mode", "1"}, {"b", "2"}, {"s", "5,9"}, {"max_s_q", "8"}}), HasSubstr("has 9 rows"));
  EXPECT_THAT(error_of({{"mode", "1"}, {"b", "2"}, {"s", "5,9"}, {"max_s_q", "15"}}), HasSubstr("all of them 14"));
  EXPECT_THAT(error_of({{"max_s_q", "-2"}}), HasSubstr("must be from -1"));
}

TEST(Case, reads_what_lies_around_the_sequences_and_behind_the_tables) {
  const Case c = case_from_args({{"mode", "1"},
                                 {"b", "2"},
                                 {"s", "5,9"},
                                 {"q_around", "3,5"},
                                 {"k_around", "2"},
                                 {"bias", "e:h-k"},
                                 {"table_more", "4,6"},
                                 {"reversed", "q.h,o.s"},
                                 {"init_sink", "3"}});
  EXPECT_EQ(c.q_around, (Around{3, 5}));
  EXPECT_EQ(c.k_around, (Around{2, 2}));
  EXPECT_EQ(c.total_q(), 22);
  EXPECT_EQ(c.bound_q(), 9);
  EXPECT_EQ(c.table_q(), 13);
  EXPECT_EQ(c.table_k(), 15);
  EXPECT_EQ(c.bias->shape, (Broadcast{.head = true, .key = false}));
  EXPECT_EQ(c.reversed, (std::vector<Reversed>{{Operand::q, 'h'}, {Operand::o, 's'}}));
  EXPECT_EQ(c.sink, SinkInit::holes);
  EXPECT_EQ(case_from_args({{"bias", "e:-k"}}).bias->shape, (Broadcast{.key = false}));

  EXPECT_THAT(error_of({{"q_around", "3"}}), HasSubstr("q_around = 3,3: for group mode"));
  EXPECT_THAT(error_of({{"table_more", "1,2"}}), HasSubstr("table_more = 1,2: for group mode"));
  EXPECT_THAT(error_of({{"mode", "1"}, {"k_around", "1,2,3"}}), HasSubstr("-k_around=1,2,3 : takes two numbers"));
  EXPECT_THAT(error_of({{"reversed", "q.d"}}), HasSubstr("for example q.h"));
  EXPECT_THAT(error_of({{"reversed", "dq.h"}}), HasSubstr("reversed=dq.h: a tensor of the backward pass"));
  EXPECT_THAT(error_of({{"vlayout", "c"}, {"reversed", "v.s"}}), HasSubstr("reversed=v.s"));
  EXPECT_THAT(error_of({{"bias", "e:k-k"}}), HasSubstr("-bias=e:k-k : takes n, e"));
}

TEST(Case, draws_a_new_seed_when_the_seed_is_zero) { EXPECT_NE(case_from_args({{"seed", "0"}}).seed, 0U); }

}  // namespace
}  // namespace heed::verify
