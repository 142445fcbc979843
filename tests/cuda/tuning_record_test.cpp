/// Tuning records: read, written, and what selection makes of them.

#include "cuda/tuning_record.hpp"
#include "cuda/chosen_line.hpp"
#include "cuda/hopper_backward.hpp"
#include "cuda/user_lines.hpp"
#include "dispatch/backward_family.hpp"

#include <heed/error.hpp>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace heed::cuda {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kRecord = R"({"heed_tuning": 1, "forward": [
  {"arch": "sm_90", "d": 128, "d_v": 128, "mask": "causal", "keys": [0, 2048], "algo": "warpgroups:2,stages:3"},
  {"arch": "sm_90", "d": 128, "d_v": 128, "mask": "causal", "keys": [2049, null], "algo": "stages:4", "tflops": 700.5}]})";

constexpr std::string_view kBackwardRecord = R"({"heed_tuning": 1, "forward": [], "backward": [
  {"arch": "sm_90", "d": 64, "d_v": 64, "mask": "causal", "keys": [0, 2048], "algo": "tile_q:96,section:264"},
  {"arch": "sm_90", "d": 64, "d_v": 64, "mask": "causal", "keys": [2049, null], "algo": "section:1056"}]})";

std::string error_text(const std::string& text) {
  try {
    const TuningRecord record = tuning_from_json(text, "my.json");
    tuned_lines(record);
    tuned_backward_lines(record);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::string kernel_for(const std::vector<HopperLine>& user, std::int64_t s_k, const Mask& mask, std::int64_t d = 128,
                       std::int64_t heads_k = 8) {
  return line_for(Problem::forward().type(f16).batch(2).heads(8, heads_k).lengths(s_k, s_k).head_dims(d, d).mask(mask),
                  user);
}

std::string backward_kernel_for(const std::vector<HopperBackwardLine>& user, const Problem& problem) {
  dispatch::Registry registry;
  for (const HopperBackwardLine& line : user) registry.add(make_hopper_backward(line, nullptr));
  for (const HopperBackwardLine& line : hopper_backward_lines()) registry.add(make_hopper_backward(line, nullptr));
  return dispatch::kBackwardFamily.select(registry, problem, {})->name();
}
Problem backward_problem(std::int64_t s, const Mask& mask) {
  return Problem::backward().type(f16).batch(2).heads(8).lengths(s, s).head_dims(64, 64).mask(mask).lse(true);
}

/// Environment variables for one test, and a folder.
class Environment : public testing::Test {
 protected:
  Environment() {
    unsetenv("HEED_TUNING");
    setenv("HEED_CACHE_DIR", folder_.c_str(), 1);
    std::filesystem::create_directories(folder_);
  }
  ~Environment() override {
    std::filesystem::remove_all(folder_);
    unsetenv("HEED_TUNING");
    old_.empty() ? unsetenv("HEED_CACHE_DIR") : setenv("HEED_CACHE_DIR", old_.c_str(), 1);
  }
  void write(std::string_view text, const std::string& name = "tuning.json") const {
    std::ofstream(folder_ / name) << text;
  }

  std::string old_ = std::getenv("HEED_CACHE_DIR") != nullptr ? std::getenv("HEED_CACHE_DIR") : "";
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / ("heed_tuning_" + std::to_string(getpid()));
};
using TuningOfTheUser = Environment;

TEST(TuningRecord, is_read_and_written) {
  const TuningRecord record = tuning_from_json(kRecord, "my.json");
  ASSERT_EQ(record.forward.size(), 2u);
  EXPECT_EQ(record.forward[0].to_keys, 2048);
  EXPECT_EQ(record.forward[1].from_keys, 2049);
  EXPECT_FALSE(record.forward[1].to_keys);
  EXPECT_EQ(tuning_from_json(to_json(record), "again").forward, record.forward);
}

TEST(TuningRecord, has_a_list_for_each_pass_of_which_the_second_may_be_missing) {
  EXPECT_TRUE(tuning_from_json(kRecord, "my.json").backward.empty());
  const TuningRecord record = tuning_from_json(kBackwardRecord, "my.json");
  EXPECT_TRUE(record.forward.empty());
  ASSERT_EQ(record.backward.size(), 2u);
  EXPECT_EQ(record.backward[0].algo, "tile_q:96,section:264");
  EXPECT_EQ(tuning_from_json(to_json(record), "again").backward, record.backward);
}

TEST(TuningRecord, that_is_shipped_has_every_point_of_the_grid) {
  for (const int d : {64, 128, 256})
    for (const bool causal : {false, true})
      for (const std::int64_t s : {512, 1024, 2048, 16384}) {
        int found = 0;
        for (const TuningEntry& entry : shipped_tuning().forward)
          found += entry.d == d && entry.d_v == d && entry.causal == causal && entry.from_keys <= s &&
                   s <= entry.to_keys.value_or(s);
        EXPECT_EQ(found, 1) << "d " << d << " causal " << causal << " s " << s;
      }
  EXPECT_EQ(kernel_for({}, 1024, Mask::none()), "cuda/sm_90/hopper_fwd_d128_short");
  EXPECT_EQ(kernel_for({}, 1025, Mask::none()), "cuda/sm_90/hopper_fwd_d128_full");
  EXPECT_EQ(kernel_for({}, 4096, Mask::causal()), "cuda/sm_90/hopper_fwd_d128_causal");
  EXPECT_EQ(kernel_for({}, 4096, Mask::window(64, 0)), "cuda/sm_90/hopper_fwd_d128");
}

/// What was measured is what runs, with as many heads of K and V and with fewer.
TEST(TuningRecord, that_is_shipped_is_what_runs_in_its_range) {
  for (const TuningEntry& entry : shipped_tuning().forward)
    for (const std::int64_t s : {entry.from_keys + 1, entry.to_keys.value_or(16384)})
      for (const std::int64_t heads_k : {8, 2})
        EXPECT_EQ(kernel_for({}, s, entry.causal ? Mask::causal() : Mask::none(), entry.d, heads_k),
                  "cuda/sm_90/hopper_fwd_" + entry.name)
            << "s " << s << ", heads of K and V " << heads_k;
}

TEST(TuningRecord, of_the_user_goes_before_the_shipped_one_in_its_range) {
  const auto user = tuned_lines(tuning_from_json(kRecord, "my.json"), TunedBy::user);
  EXPECT_EQ(kernel_for(user, 2048, Mask::causal()), "cuda/sm_90/hopper_fwd_tuned_d128_128_causal_from_0_to_2048");
  EXPECT_EQ(kernel_for(user, 2049, Mask::causal()), "cuda/sm_90/hopper_fwd_tuned_d128_128_causal_from_2049");
  EXPECT_EQ(kernel_for(user, 2048, Mask::none()), "cuda/sm_90/hopper_fwd_d128_full");
}

/// In the range that was measured, for what was measured: a mask of this kind, one length for all, dQ in any order.
TEST(TuningRecord, of_the_user_chooses_backward_kernels_and_their_sections) {
  const auto user = tuned_backward_lines(tuning_from_json(kBackwardRecord, "my.json"), TunedBy::user);
  ASSERT_EQ(user.size(), 2u);
  EXPECT_EQ(user[0].choice.section, 264);
  EXPECT_EQ(std::get<kernels::HopperBackwardConfig>(user[0].choice.config).tile_q, 96);
  EXPECT_EQ(user[1].choice.section, 1056);
  const auto kernel = [&](const Problem& problem) { return backward_kernel_for(user, problem); };
  EXPECT_EQ(kernel(backward_problem(2048, Mask::causal())), "cuda/sm_90/hopper_bwd_tuned_d64_64_causal_from_0_to_2048");
  EXPECT_EQ(kernel(backward_problem(2049, Mask::causal())), "cuda/sm_90/hopper_bwd_tuned_d64_64_causal_from_2049");
  for (const Problem& other :
       {backward_problem(2048, Mask::none()), backward_problem(2048, Mask::window(64, 0)),
        backward_problem(2048, Mask::causal()).deterministic(true), backward_problem(2048, Mask::causal()).soft_cap(30),
        backward_problem(2048, Mask::causal()).head_dims(128, 128)})
    EXPECT_EQ(kernel(other), backward_kernel_for({}, other)) << other.to_string();
}

TEST(TuningRecord, that_cannot_be_is_refused_with_the_place) {
  EXPECT_THAT(error_text("{"), HasSubstr("my.json: not JSON"));
  EXPECT_THAT(error_text(R"({"forward": []})"), HasSubstr("'heed_tuning'"));
  EXPECT_THAT(error_text(R"({"heed_tuning": 2, "forward": []})"), HasSubstr("it must be 1"));
  const auto entry = [](const std::string& more) {
    return R"({"heed_tuning": 1, "forward": [{"arch": "sm_90", "d": 128, "d_v": 128, "mask": "none", )" + more + "}]}";
  };
  EXPECT_THAT(error_text(entry(R"("keys": [0, null], "algo": "stages:8")")), HasSubstr("shared memory"));
  EXPECT_THAT(error_text(entry(R"("keys": [0, null], "algo": "stags:2")")), HasSubstr("no such knob"));
  EXPECT_THAT(error_text(entry(R"("keys": [0], "algo": "stages:2")")), HasSubstr("two numbers of keys"));
  EXPECT_THAT(error_text(entry(R"("keys": [0, null], "also": 1, "algo": "stages:2")")), HasSubstr("no key 'also'"));
  EXPECT_EQ(error_text(entry(R"("keys": [0, null], "algo": "stages:2")")), "accepted");

  const auto backward = [](int d, int d_v, const std::string& algo) {
    return fmt::format(R"({{"heed_tuning": 1, "forward": [], "backward": [
      {{"arch": "sm_90", "d": {}, "d_v": {}, "mask": "none", "keys": [0, null], "algo": "{}"}}]}})",
                       d, d_v, algo);
  };
  EXPECT_EQ(error_text(backward(128, 128, "tile_q:48")), "accepted");
  EXPECT_THAT(error_text(backward(128, 128, "tile_q:96")),
              HasSubstr("tuning record, backward entry tuned_d128_128_full_from_0: shared memory"));
  EXPECT_THAT(error_text(backward(128, 128, "stages:2")), HasSubstr("no such knob; there are tile_q"));
  EXPECT_THAT(error_text(backward(256, 256, "tile_q:64")), HasSubstr("no knob of the backward kernels for d = 256"));
  EXPECT_THAT(error_text(backward(192, 128, "")),
              HasSubstr("no Hopper tile of the backward pass for d = 192, d_v = 128"));
}

TEST_F(TuningOfTheUser, lies_in_the_cache_folder_and_is_ignored_when_it_is_broken) {
  EXPECT_TRUE(UserTuning::read().record.forward.empty());
  write(kRecord);
  UserTuning user = UserTuning::read();
  EXPECT_EQ(user.path, folder_ / "tuning.json");
  EXPECT_EQ(UserLines::of(user).size(), 2u);
  EXPECT_EQ(user.ignored, "");
  write("{");
  EXPECT_THAT(UserTuning::read().ignored, HasSubstr("not JSON"));
  write(R"({"heed_tuning": 1, "forward": [
    {"arch": "sm_90", "d": 100, "d_v": 100, "mask": "none", "keys": [0, null], "algo": ""}]})");
  user = UserTuning::read();
  EXPECT_TRUE((UserLines::of(user).size() == 0));
  EXPECT_THAT(user.ignored, HasSubstr("no Hopper tile for d = 100"));
}

/// One list that cannot be is reason enough to trust neither.
TEST_F(TuningOfTheUser, is_ignored_as_a_whole) {
  write(R"({"heed_tuning": 1, "forward": [
    {"arch": "sm_90", "d": 64, "d_v": 64, "mask": "none", "keys": [0, null], "algo": "stages:2"}], "backward": [
    {"arch": "sm_90", "d": 64, "d_v": 64, "mask": "none", "keys": [0, null], "algo": "tile_q:32"}]})");
  UserTuning user = UserTuning::read();
  EXPECT_EQ(UserLines::of(user).size(), 0u);
  EXPECT_THAT(user.ignored, HasSubstr("backward entry"));
}

TEST_F(TuningOfTheUser, that_was_named_is_an_error_when_it_is_broken) {
  write("{", "mine.json");
  setenv("HEED_TUNING", (folder_ / "mine.json").c_str(), 1);
  EXPECT_THROW(UserTuning::read(), Error);
  setenv("HEED_TUNING", (folder_ / "absent.json").c_str(), 1);
  EXPECT_THROW(UserTuning::read(), Error);
  write(kRecord, "mine.json");
  setenv("HEED_TUNING", (folder_ / "mine.json").c_str(), 1);
  UserTuning user = UserTuning::read();
  EXPECT_EQ(UserLines::of(user).size(), 2u);
}

}  // namespace
}  // namespace heed::cuda
