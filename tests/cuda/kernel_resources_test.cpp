/// Every kernel of the tables compiles, without a spill, without local memory, without a serialised wgmma. No GPU
/// needed. Not under the sanitizers: what would run there is NVRTC, and it has nothing to say about heed.

#include "cuda/hopper_backward.hpp"
#include "cuda/hopper_lines.hpp"
#include "cuda/kernel_list.hpp"
#include "cuda/kernel_text.hpp"
#include "dispatch/backward_family.hpp"
#include "test_scale.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace heed::cuda {
namespace {

using kernels::MaskShape;

/// Compiles them all on the cores that there are; one sentence for each that does not please.
std::vector<std::string> complaints(const std::vector<ListedKernel>& kernels) {
  Jit jit(JitOptions::from_environment());
  std::mutex mutex;
  std::size_t next = 0;
  std::vector<std::string> list;
  const auto work = [&] {
    while (true) {
      std::size_t mine;
      {
        const std::lock_guard lock(mutex);
        if (next == kernels.size()) return;
        mine = next++;
      }
      const auto& [source, arch, shared_bytes, kernel] = kernels[mine];
      std::string complaint;
      try {
        const Resources resources = jit.get(source, arch)->resources;
        if (resources.spill_bytes > 0 || resources.local_bytes > 0)
          complaint = "spills " + std::to_string(resources.spill_bytes) + " bytes";
        if (resources.serialized_wgmma) complaint += " has serialised wgmma: " + resources.remarks;
      } catch (const Error& error) {
        complaint = error.what();
      }
      if (complaint.empty()) continue;
      const std::lock_guard lock(mutex);
      list.push_back(source.name + " for " + arch + ": " + complaint);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return list;
}

class KernelResources : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_scale() == "small") GTEST_SKIP() << "HEED_TEST_SCALE=small compiles no kernels of the tables";
  }
};

/// One of so many kernels is compiled by default; all are under HEED_TEST_SCALE=full.
constexpr std::size_t kForward = 24, kKnobs = 12, kBiasRoutes = 6, kOtherKeys = 3, kBackwardKnobs = 40;
/// There are more than a thousand for each architecture, of which hundreds are the largest.
constexpr std::size_t kBackward = 400, kTogether = 60;

/// `first`: where to begin to count.
std::vector<ListedKernel> thinned(std::vector<ListedKernel> list, std::size_t one_of, std::size_t first = 0) {
  const std::size_t step = test_scale() == "full" ? 1 : one_of;
  std::vector<ListedKernel> some;
  for (std::size_t i = first % step; i < list.size(); i += step) some.push_back(std::move(list[i]));
  return some;
}

/// f16 and bf16 take the same registers, so that one of them will do.
std::vector<ListedKernel> chosen(std::vector<ListedKernel> list, std::size_t one_of, std::size_t first = 0) {
  std::erase_if(list, [](const ListedKernel& kernel) { return kernel.source.name.find("_f16_") != std::string::npos; });
  return thinned(std::move(list), one_of, first);
}

bool is_portable_backward(const ListedKernel& kernel) { return kernel.source.name.starts_with("portable_bwd_"); }

/// Those of the portable family's backward pass, or all others.
std::vector<ListedKernel> listed(std::string_view profile, int sm, bool portable_backward) {
  std::vector<ListedKernel> list = all_kernel_sources(profile, sm);
  std::erase_if(list, [&](const ListedKernel& kernel) { return is_portable_backward(kernel) != portable_backward; });
  return list;
}

TEST(KernelList, has_a_source_of_every_line) {
  std::set<std::string> listed;
  for (const ListedKernel& kernel : one_source_of_each(90)) listed.insert(kernel.kernel);
  for (const HopperLine& line : hopper_lines())
    EXPECT_TRUE(listed.contains("cuda/sm_90/" + std::string(line.spec.stem))) << line.spec.stem;
  for (const HopperBackwardLine& line : hopper_backward_lines())
    EXPECT_TRUE(listed.contains("cuda/sm_90/" + std::string(line.spec.stem))) << line.spec.stem;
}

TEST_F(KernelResources, every_line_of_the_tables_has_a_kernel_with_what_it_needs) {
  for (const int sm : {80, 90}) {
    const std::vector<ListedKernel> list = one_source_of_each(sm);
    EXPECT_GE(list.size(), 8u);
    for (const std::string& complaint : complaints(list)) ADD_FAILURE() << complaint;
  }
}

TEST_F(KernelResources, hopper_kernels_have_what_they_need) {
  const std::vector<ListedKernel> list = listed("all", 90, false);
  EXPECT_GT(list.size(), 200u);
  for (const std::string& complaint : complaints(chosen(list, kForward))) ADD_FAILURE() << complaint;
}

/// Each knob away from what the tables have, without a mask and causal, at every head dim where it can be.
TEST_F(KernelResources, kernels_with_other_knobs_have_what_they_need) {
  std::vector<ListedKernel> each_knob, others;
  for (const char* algo :
       {"specialised:0,warpgroups:2,stages:2", "specialised:0,warpgroups:3,tile_k:32,stages:4,persistence:static",
        "cluster:2,persistence:static,warpgroups:2,stages:2", "cluster:2,persistence:off,warpgroups:3,stages:4",
        "p_in_shared:1,warpgroups:2,stages:2", "scores_in:f16,warpgroups:2,stages:2",
        "sums_in:f16,lazy_maximum:0,rescale_threshold:0,warpgroups:2,stages:2", "persistence:off", "persistence:static",
        "turns:softmax", "lazy_maximum:0,rescale_threshold:0", "q_in_registers:1,warpgroups:1,stages:2",
        "own_o_memory:1,q_buffers:1,stages:2,warpgroups:2", "warpgroups:1,tile_k:176,stages:2"}) {
    bool is_first = true;
    for (const int d : {128, 64, 256}) {
      for (const MaskShape mask : {MaskShape::right, MaskShape::none}) {
        kernels::HopperConfig config = forced_line(d, d, HopperAlgo::parse(algo)).config;
        config.features.mask = mask;
        if (config.impossible() != nullptr) continue;
        (is_first ? each_knob : others).push_back({kernel_source(config), "sm_90a"});
        is_first = false;
      }
    }
  }
  EXPECT_GE(each_knob.size(), 14u);
  EXPECT_GT(others.size(), 40u);
  std::vector<ListedKernel> list = thinned(others, kKnobs);
  list.insert(list.end(), each_knob.begin(), each_knob.end());
  for (const std::string& complaint : complaints(list)) ADD_FAILURE() << complaint;
}

/// A bias that is copied leaves room in registers, even beside windows and lengths.
TEST_F(KernelResources, kernels_whose_bias_is_copied_have_what_they_need) {
  struct Route {
    int d;
    const char* algo;
    bool windows, lengths;
  };
  std::vector<ListedKernel> list;
  for (const Route& route :
       {Route{128, "bias_route:copied,stages:3,bias_stages:1", true, true},
        Route{128, "bias_route:copied,k_stages:2,v_stages:3", true, true},
        Route{96, "bias_route:copied,k_stages:2,v_stages:3", true, true},
        Route{128, "bias_route:copied,warpgroups:2", true, true},
        Route{128, "bias_route:copied,warpgroups:2,tile_k:96,stages:2", true, true},
        Route{128, "bias_route:copied,warpgroups:2,tile_k:128,stages:2,bias_stages:1", false, false},
        Route{64, "bias_route:copied", true, true}, Route{64, "bias_route:copied,tile_k:96", true, true},
        Route{64, "bias_route:copied,tile_k:96,turns:products", true, true},
        Route{64, "bias_route:copied,warpgroups:2,tile_k:128", true, true},
        Route{64, "bias_route:copied,warpgroups:4,turns:products", false, true}})
    for (const MaskShape mask : {MaskShape::none, MaskShape::right, MaskShape::window})
      for (const bool own_lengths : {false, true}) {
        if ((own_lengths && !route.lengths) || (mask == MaskShape::window && !route.windows)) continue;
        kernels::HopperConfig config = forced_line(route.d, route.d, HopperAlgo::parse(route.algo)).config;
        config.features = {.mask = mask, .own_lengths = own_lengths, .bias = kernels::BiasType::as_input};
        ASSERT_EQ(broken_limit(config), "") << route.algo;
        list.push_back({kernel_source(config), "sm_90a"});
      }
  EXPECT_GT(list.size(), 50u);
  for (const std::string& complaint : complaints(thinned(list, kBiasRoutes))) ADD_FAILURE() << complaint;
}

/// Every kernel of the backward pass that knobs can ask for, with the features that it has room for: those by
/// themselves that weigh so much, and lengths of their own, which take registers from the math warpgroups.
TEST_F(KernelResources, backward_kernels_with_other_knobs_have_what_they_need) {
  const auto plain = [](int d, const Mask& mask) {
    return Problem::backward().type(bf16).batch(2).heads(8, 2).lengths(1024, 1024).head_dims(d, d).mask(mask).lse(true);
  };
  const auto problems = [&](int d) {
    std::vector<Problem> list;
    for (const Mask& mask : {Mask::none(), Mask::causal(), Mask::window(64, 0)}) {
      const Problem p = plain(d, mask);
      const Problem group = Problem(p).mode(Mode::group).total_rows(2048, 2048);
      for (const Problem& each :
           {p, Problem(p).deterministic(true), Problem(p).scale(-1), Problem(p).soft_cap(30), Problem(p).dropout(0.1),
            Problem(p).alibi(Alibi::per_head), group, Problem(group).alibi(Alibi::per_head)})
        list.push_back(each);
    }
    return list;
  };
  std::vector<ListedKernel> list;
  std::set<std::string> known;
  const auto add = [&](int d, const std::string& algo) {
    dispatch::Registry registry;
    registry.add(make_hopper_backward(forced_backward_line(d, d, HopperBackwardAlgo::parse(algo)), nullptr));
    const auto& kernel = static_cast<const dispatch::AttentionKernel&>(*registry.entries().front().kernel);
    int computed = 0;
    for (const Problem& problem : problems(d)) {
      if (!dispatch::kBackwardFamily.judge(registry, problem, {}).front().can()) continue;
      ++computed;
      for (ListedKernel& one : sources_of(kernel, problem, Device{}))
        if (known.insert(one.source.text).second) list.push_back(std::move(one));
    }
    EXPECT_TRUE(computed == 0 || computed >= 4) << d << " " << algo << " computes " << computed;
  };
  for (const int d : {64, 128})
    for (const char* tile_q : {"32", "48", "64", "96", "128"})
      for (const char* pipeline : {"in_step", "ahead"})
        add(d, std::string("tile_q:") + tile_q + ",pipeline:" + pipeline);
  for (const int d : {64, 128, 192, 256}) add(d, "parts:2");
  for (const int d : {192, 256})
    for (const char* algo : {"q_stages:1,o_stages:1", "q_stages:1,o_stages:2", "q_stages:2,o_stages:1", "o_stages:2",
                             "dq:owned", "dq:owned,o_stages:2", "dq:owned,parts:2"})
      add(d, algo);
  EXPECT_GT(list.size(), 150u);
  for (const std::string& complaint : complaints(thinned(list, kBackwardKnobs))) ADD_FAILURE() << complaint;
}

/// A bias of the backward pass that is copied, beside what its tile has room for.
TEST_F(KernelResources, backward_kernels_whose_bias_is_copied_have_what_they_need) {
  struct Route {
    int d;
    const char* algo;
  };
  std::vector<ListedKernel> list;
  for (const Route& route :
       {Route{128, "bias_route:copied"}, Route{64, "bias_route:copied,tile_q:64"},
        Route{64, "bias_route:copied,tile_q:64,pipeline:in_step"}, Route{64, "bias_route:copied,tile_q:96"},
        Route{64, "bias_route:copied,tile_q:96,pipeline:in_step"}}) {
    const HopperBackwardLine line = forced_backward_line(route.d, route.d, HopperBackwardAlgo::parse(route.algo));
    auto config = std::get<kernels::HopperBackwardConfig>(line.choice.config);
    // A dBias that leaves with its block takes nothing from those who compute it.
    for (const MaskShape mask : {MaskShape::none, MaskShape::right, MaskShape::window})
      for (const bool in_parts : {false, true}) {
        kernels::HopperBackwardConfig storing = config;
        storing.stores_dbias = storing.ordered = true, storing.in_parts = in_parts;
        storing.features = {.mask = mask, .negative_scale = in_parts, .bias = kernels::BiasType::as_input};
        ASSERT_EQ(storing.impossible(), nullptr) << route.algo;
        list.push_back({kernel_source(storing, HopperBackwardPart::main), "sm_90a"});
        list.push_back({kernel_source(storing, HopperBackwardPart::before), "sm_90a"});
      }
    // Masks by coordinates and lengths always fit beside it.
    const auto add = [&](kernels::ForwardFeatures features) {
      const bool changes_scores = features.changes_scores() || features.dropout;
      features.bias = kernels::BiasType::as_input;
      if (changes_scores && features.weight() > line.room) return;
      config.features = features;
      ASSERT_EQ(config.impossible(), nullptr) << route.algo;
      list.push_back({kernel_source(config, HopperBackwardPart::main), "sm_90a"});
    };
    for (const MaskShape mask : {MaskShape::none, MaskShape::right, MaskShape::window}) {
      for (const bool own_lengths : {false, true}) add({.mask = mask, .own_lengths = own_lengths});
      add({.mask = mask, .soft_cap = true});
      add({.mask = mask, .dropout = true});
      add({.mask = mask, .alibi = true});
      add({.mask = mask, .own_lengths = true, .soft_cap = true, .dropout = true});
    }
  }
  EXPECT_GT(list.size(), 100u);
  for (const std::string& complaint : complaints(thinned(list, kBiasRoutes))) ADD_FAILURE() << complaint;
}

/// V by columns, and block masks whose hidden blocks are left out, in the lines that take them.
TEST_F(KernelResources, kernels_that_read_other_keys_have_what_they_need) {
  std::vector<ListedKernel> list;
  for (const int d : {64, 96, 128, 192, 256}) {
    for (const MaskShape mask : {MaskShape::none, MaskShape::right}) {
      kernels::HopperConfig config = forced_line(d, d, {}).config;
      config.features.mask = mask;
      config.v_by_columns = true;
      if (config.impossible() == nullptr) list.push_back({kernel_source(config), "sm_90a"});
      config.v_by_columns = false;
      config.features.blocks = true;
      list.push_back({kernel_source(config), "sm_90a"});
    }
  }
  EXPECT_GE(list.size(), 18u);
  for (const std::string& complaint : complaints(thinned(list, kOtherKeys))) ADD_FAILURE() << complaint;
}

TEST_F(KernelResources, portable_kernels_compile_for_every_architecture) {
  for (const int sm : {80, 86, 89, 100, 120}) {
    for (const std::string& complaint : complaints(chosen(listed("flash", sm, false), kForward)))
      ADD_FAILURE() << complaint;
  }
}

TEST_F(KernelResources, portable_backward_kernels_have_what_they_need_on_every_architecture) {
  for (const int sm : {80, 86, 89, 90, 100, 120}) {
    const std::vector<ListedKernel> list = listed("all", sm, true);
    EXPECT_GT(list.size(), 500u) << "sm_" << sm;
    for (const std::string& complaint : complaints(chosen(list, kBackward, static_cast<std::size_t>(sm))))
      ADD_FAILURE() << complaint;
  }
}

/// Those with the most sums in registers.
TEST_F(KernelResources, portable_kernels_of_all_gradients_have_what_they_need_on_every_architecture) {
  for (const int sm : {80, 86, 89, 90, 100, 120}) {
    std::vector<ListedKernel> list = listed("all", sm, true);
    std::erase_if(list, [](const ListedKernel& one) { return !one.source.name.starts_with("portable_bwd_together_"); });
    EXPECT_GT(list.size(), sm == 90 ? 20u : 100u) << "sm_" << sm;
    for (const std::string& complaint : complaints(chosen(list, kTogether, static_cast<std::size_t>(sm))))
      ADD_FAILURE() << complaint;
  }
}

/// Those that come first to spill when a compiler takes more registers, which a sample may miss.
TEST_F(KernelResources, the_fullest_portable_kernels_have_what_they_need) {
  const std::set<std::string_view> fullest{"portable_bwd_together_bf16_d64_64_128x128",
                                           "portable_bwd_together_bf16_d128_128_128x64_right_lengths_softcap",
                                           "portable_bwd_together_bf16_d128_128_128x64_right_lengths_dropout",
                                           "portable_bwd_keys_values_bf16_d64_64_128x64_right",
                                           "portable_bwd_keys_values_bf16_d128_128_128x64_bias32",
                                           "portable_bwd_keys_values_bf16_d128_128_128x64_right_lengths_softcap",
                                           "portable_fwd_bf16_bf16_d128_128_128x64",
                                           "portable_fwd_bf16_f32_d96_96_128x64_right",
                                           "portable_fwd_bf16_f32_d256_256_128x64_right",
                                           "portable_fwd_bf16_bf16_d256_256_128x32_right_dropout",   // of sm_80
                                           "portable_fwd_bf16_bf16_d256_256_128x16_right_dropout"};  // of sm_100
  for (const int sm : {80, 100}) {
    std::vector<ListedKernel> list = all_kernel_sources("all", sm);
    std::erase_if(list, [&](const ListedKernel& one) { return !fullest.contains(one.source.name); });
    EXPECT_EQ(list.size(), fullest.size() - 1) << "sm_" << sm;
    for (const std::string& complaint : complaints(list)) ADD_FAILURE() << complaint;
  }
}

}  // namespace
}  // namespace heed::cuda
