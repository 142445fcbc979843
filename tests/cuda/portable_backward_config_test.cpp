#include "kernels/portable_backward_config.h"

#include <gtest/gtest.h>

#include <vector>

namespace heed::kernels {
namespace {

constexpr int kKilobyte = 1024;
constexpr PortableDevice kAda{89, 99 * kKilobyte};  ///< sm_86 has as much memory
constexpr PortableDevice kAmpere{80, 163 * kKilobyte};
constexpr PortableDevice kHopper{90, 227 * kKilobyte};
constexpr PortableDevice kBlackwell{100, 227 * kKilobyte};
constexpr PortableDevice kSmallBlackwell{120, 99 * kKilobyte};
constexpr PortableDevice kDevices[] = {kAda, kAmpere, kHopper, kBlackwell, kSmallBlackwell};

std::vector<ForwardFeatures> some_features() {
  std::vector<ForwardFeatures> list;
  for (const MaskShape mask : {MaskShape::none, MaskShape::right, MaskShape::window})
    for (const bool many : {false, true})
      for (const BiasType bias : {BiasType::none, BiasType::f32, BiasType::as_input})
        for (const bool dropout : {false, true})
          list.push_back({.mask = mask,
                          .own_lengths = many,
                          .keep = many,
                          .blocks = many,
                          .negative_scale = many,
                          .soft_cap = many,
                          .bias = bias,
                          .alibi = many,
                          .sink = many,
                          .dropout = dropout});
  return list;
}

std::vector<BackwardPart> parts_of(const BackwardTypes& types, const ForwardFeatures& features) {
  std::vector<BackwardPart> parts{BackwardPart::rows, BackwardPart::queries, BackwardPart::bias, BackwardPart::sums};
  if (keys_and_values_together(types, features)) {
    parts.push_back(BackwardPart::keys_values);
  } else {
    parts.push_back(BackwardPart::values);
    parts.push_back(BackwardPart::keys);
  }
  return parts;
}

TEST(PortableBackwardConfig, is_possible_for_every_head_dim_type_and_gpu) {
  struct Types {
    Element type, input, output;
  };
  constexpr Types kTypes[] = {{Element::f32, Element::f32, Element::f32},
                              {Element::f32, Element::bf16, Element::bf16},
                              {Element::bf16, Element::bf16, Element::bf16},
                              {Element::f16, Element::f16, Element::f32}};
  const std::vector<ForwardFeatures> features = some_features();
  for (const Types& t : kTypes)
    for (const int d : {1, 40, 64, 80, 128, 192, 256, 257, 512, 1024})
      for (const int d_v : {1, 64, 128, 192, 256, 1024})
        for (const int row_bytes : {t.input == Element::f32 ? 4 : 2, 16})
          for (const ForwardFeatures& f : features)
            for (const PortableDevice& device : kDevices) {
              const BackwardTypes types{t.type, t.input, t.output, d, d_v, row_bytes};
              for (const BackwardPart part : parts_of(types, f)) {
                const PortableBackwardConfig c = portable_backward_config(part, types, f, device);
                ASSERT_STREQ(c.impossible(), nullptr)
                    << "part " << static_cast<int>(part) << ", d " << d << ", d_v " << d_v;
                ASSERT_LE(c.shared_bytes(), device.max_shared_bytes)
                    << "part " << static_cast<int>(part) << ", d " << d << ", d_v " << d_v;
              }
            }
}

PortableBackwardConfig together_config(int d, int d_v, const ForwardFeatures& features, const PortableDevice& device) {
  return portable_backward_config(BackwardPart::together, {Element::f16, Element::f16, Element::f16, d, d_v, 16},
                                  features, device);
}

TEST(PortableBackwardConfig, computes_all_gradients_together_where_memory_allows) {
  const auto together = [](int d, int d_v, const PortableDevice& device) {
    for (const ForwardFeatures& f : some_features()) {
      const bool can = computed_together({Element::f16, Element::f16, Element::f16, d, d_v, 16}, f, device);
      if (can != computed_together({Element::bf16, Element::bf16, Element::bf16, d, d_v, 2}, {}, device))
        ADD_FAILURE() << "features decide at " << d << ", " << d_v;
      const PortableBackwardConfig c = together_config(d, d_v, f, device);
      if (can && c.impossible() != nullptr) ADD_FAILURE() << c.impossible();
    }
    return computed_together({Element::f16, Element::f16, Element::f16, d, d_v, 16}, {}, device);
  };
  for (const int d : {1, 32, 64, 80, 96, 128})
    for (const int d_v : {1, 64, 96, 128})
      for (const PortableDevice& device : {kAmpere, kHopper, kBlackwell})
        EXPECT_TRUE(together(d, d_v, device)) << d << " " << d_v;
  for (const PortableDevice& device : {kAmpere, kHopper, kBlackwell}) {
    EXPECT_TRUE(together(192, 128, device));
    EXPECT_TRUE(together(256, 256, device));
  }
  for (const PortableDevice& device : {kAda, kSmallBlackwell}) {
    EXPECT_TRUE(together(64, 64, device));
    EXPECT_TRUE(together(128, 128, device));
    EXPECT_TRUE(together(192, 192, device));
    EXPECT_FALSE(together(96, 96, device));
    EXPECT_FALSE(together(256, 256, device));
  }
  EXPECT_FALSE(together(256, 96, kHopper));
  EXPECT_FALSE(together(512, 64, kHopper));
  EXPECT_FALSE(computed_together({Element::f32, Element::f16, Element::f16, 64, 64, 16}, {}, kHopper));
  EXPECT_EQ(together_config(64, 64, {}, kAmpere).block, 128);
  EXPECT_EQ(together_config(64, 64, {.mask = MaskShape::window, .own_lengths = true}, kAmpere).block, 128);
  EXPECT_EQ(together_config(64, 64, {.alibi = true}, kAmpere).block, 64);
  EXPECT_EQ(together_config(128, 128, {.alibi = true}, kHopper).stages, 3);
  EXPECT_EQ(together_config(128, 128, {}, kAmpere).stages, 2);
  EXPECT_EQ(together_config(128, 128, {}, kAda).block, 32);
  EXPECT_EQ(together_config(256, 256, {}, kHopper).tile(), 64);
}

TEST(PortableBackwardConfig, has_fewer_products_at_a_time_where_the_compiler_takes_more_registers) {
  const ForwardFeatures capped{.mask = MaskShape::right, .soft_cap = true};
  const auto step = [](int d, const ForwardFeatures& features, const PortableDevice& device) {
    return together_config(d, d, features, device).step;
  };
  EXPECT_EQ(step(128, capped, kHopper), 64);
  EXPECT_EQ(step(128, capped, kBlackwell), 32);
  const auto step_of_owners = [](int d, const ForwardFeatures& features, const PortableDevice& device) {
    const BackwardTypes types{Element::bf16, Element::bf16, Element::bf16, d, d, 16};
    return portable_backward_config(BackwardPart::keys_values, types, features, device).step;
  };
  EXPECT_EQ(step_of_owners(64, {}, kHopper), 32);
  EXPECT_EQ(step_of_owners(64, {}, kBlackwell), 16);
  EXPECT_EQ(step_of_owners(128, capped, kHopper), 32);
  EXPECT_EQ(step_of_owners(128, capped, kBlackwell), 16);
  EXPECT_EQ(step_of_owners(128, {}, kBlackwell), 32);
  // All else is alike where memory is, but for the fullest that warps take turns with.
  for (const int d : {64, 96, 128, 192, 256})
    for (const ForwardFeatures& f : some_features()) {
      PortableBackwardConfig here = together_config(d, d, f, kHopper), there = together_config(d, d, f, kBlackwell);
      EXPECT_FALSE(there.in_turns && !here.in_turns) << d;
      if (here.in_turns && !there.in_turns) continue;
      here.step = there.step;
      EXPECT_EQ(here, there) << d;
    }
}

TEST(PortableBackwardConfig, holds_keys_and_values_of_narrow_heads_where_registers_allow) {
  const auto held = [](int d, const ForwardFeatures& features, const PortableDevice& device, int row_bytes) {
    return portable_backward_config(BackwardPart::together, {Element::f16, Element::f16, Element::f16, d, d, row_bytes},
                                    features, device)
        .held_v;
  };
  const ForwardFeatures causal{.mask = MaskShape::right};
  for (const int d : {32, 64}) {
    for (const PortableDevice& device : kDevices) {
      EXPECT_EQ(held(d, {.own_lengths = true}, device, 16), device.sm == 80 ? 16 : 32);
      EXPECT_EQ(held(d, causal, device, 4), 16);
      EXPECT_EQ(held(d, {.soft_cap = true}, device, 16), 0);
    }
    EXPECT_EQ(held(d, causal, kHopper, 16), 32);
    EXPECT_EQ(held(d, causal, kBlackwell, 16), 32);
    EXPECT_EQ(held(d, causal, kAmpere, 16), 16);
    EXPECT_EQ(held(d, causal, kAda, 16), 16);
  }
  EXPECT_EQ(held(96, {}, kHopper, 16), 0);
  PortableBackwardConfig c = together_config(64, 64, {}, kHopper);
  c.features.dropout = true;
  EXPECT_STREQ(c.impossible(), "where K is held there are no registers for features");
  c = together_config(64, 64, {}, kHopper);
  c.held_v = 80;
  EXPECT_STREQ(c.impossible(), "a warp holds steps of 16 columns of V");
  c.held_v = 32, c.step = 32;
  EXPECT_STREQ(c.impossible(), "two warps take turns with the queries of 32 keys, whose sums they hold");
}

TEST(PortableBackwardConfig, lets_warps_take_turns_where_memory_and_registers_allow) {
  const auto in_turns = [](int d, const PortableDevice& device, const ForwardFeatures& features = {}) {
    return together_config(d, d, features, device).in_turns;
  };
  for (const int d : {96, 128, 192, 256}) {
    EXPECT_TRUE(in_turns(d, kHopper)) << d;
    EXPECT_TRUE(in_turns(d, kHopper, {.mask = MaskShape::window, .own_lengths = true})) << d;
    EXPECT_FALSE(in_turns(d, kHopper, {.dropout = true})) << d;
    EXPECT_EQ(in_turns(d, kBlackwell), d != 128) << d;
    EXPECT_EQ(in_turns(d, kAmpere), d == 96) << d;
    EXPECT_FALSE(in_turns(d, kAda)) << d;
  }
  EXPECT_FALSE(in_turns(64, kHopper));
  PortableBackwardConfig c = together_config(128, 128, {}, kHopper);
  c.stages = 1;
  EXPECT_STREQ(c.impossible(), "warps take turns with two stages, and without features");
}

TEST(PortableBackwardConfig, says_which_limit_it_breaks) {
  PortableBackwardConfig c;
  ASSERT_STREQ(c.impossible(), nullptr);
  c.step = 48;
  EXPECT_STREQ(c.impossible(), "a step is 16 to 64 rows, and a part of a block");
  c = {};
  c.warp_rows = 32;
  EXPECT_STREQ(c.impossible(), "the products and sums of a warp do not fit its registers");
  c = {};
  c.input = Element::f32;
  EXPECT_STREQ(c.impossible(), "16-bit inputs are widened to f32 only");
  c = {};
  c.d = 512;
  EXPECT_STREQ(c.impossible(), "whole rows have tiles of 32, 64, 96, 128, 192 or 256 columns, pieces any number");
}

}  // namespace
}  // namespace heed::kernels
