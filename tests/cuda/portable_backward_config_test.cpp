#include "kernels/portable_backward_config.h"

#include <gtest/gtest.h>

#include <vector>

namespace heed::kernels {
namespace {

constexpr int kKilobyte = 1024;
/// Of a block on sm_86 (also 89 and 120), sm_80, and sm_90 (also 100).
constexpr int kSharedBytes[] = {99 * kKilobyte, 163 * kKilobyte, 227 * kKilobyte};

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
            for (const int shared_bytes : kSharedBytes) {
              const BackwardTypes types{t.type, t.input, t.output, d, d_v, row_bytes};
              for (const BackwardPart part : parts_of(types, f)) {
                const PortableBackwardConfig c = portable_backward_config(part, types, f, shared_bytes);
                ASSERT_STREQ(c.impossible(), nullptr)
                    << "part " << static_cast<int>(part) << ", d " << d << ", d_v " << d_v;
                ASSERT_LE(c.shared_bytes(), shared_bytes)
                    << "part " << static_cast<int>(part) << ", d " << d << ", d_v " << d_v;
              }
            }
}

TEST(PortableBackwardConfig, computes_all_gradients_together_where_memory_allows) {
  constexpr int kLeast = kSharedBytes[0], kAmpere = kSharedBytes[1], kHopper = kSharedBytes[2];
  const auto config = [](int d, int d_v, const ForwardFeatures& features, int shared_bytes) {
    return portable_backward_config(BackwardPart::together, {Element::f16, Element::f16, Element::f16, d, d_v, 16},
                                    features, shared_bytes);
  };
  const auto together = [&](int d, int d_v, int shared_bytes) {
    for (const ForwardFeatures& f : some_features()) {
      const bool can = computed_together({Element::f16, Element::f16, Element::f16, d, d_v, 16}, f, shared_bytes);
      if (can != computed_together({Element::bf16, Element::bf16, Element::bf16, d, d_v, 2}, {}, shared_bytes))
        ADD_FAILURE() << "features decide at " << d << ", " << d_v;
      const PortableBackwardConfig c = config(d, d_v, f, shared_bytes);
      if (can && c.impossible() != nullptr) ADD_FAILURE() << c.impossible();
    }
    return computed_together({Element::f16, Element::f16, Element::f16, d, d_v, 16}, {}, shared_bytes);
  };
  for (const int d : {1, 32, 64, 80, 96, 128})
    for (const int d_v : {1, 64, 96, 128})
      for (const int shared_bytes : {kAmpere, kHopper}) EXPECT_TRUE(together(d, d_v, shared_bytes)) << d << " " << d_v;
  for (const int shared_bytes : {kAmpere, kHopper}) {
    EXPECT_TRUE(together(192, 128, shared_bytes));
    EXPECT_TRUE(together(256, 256, shared_bytes));
  }
  EXPECT_TRUE(together(64, 64, kLeast));
  EXPECT_TRUE(together(128, 128, kLeast));
  EXPECT_TRUE(together(192, 192, kLeast));
  EXPECT_FALSE(together(96, 96, kLeast));
  EXPECT_FALSE(together(256, 256, kLeast));
  EXPECT_FALSE(together(256, 96, kHopper));
  EXPECT_FALSE(together(512, 64, kHopper));
  EXPECT_FALSE(computed_together({Element::f32, Element::f16, Element::f16, 64, 64, 16}, {}, kHopper));
  EXPECT_EQ(config(64, 64, {}, kAmpere).block, 128);
  EXPECT_EQ(config(64, 64, {.mask = MaskShape::window}, kAmpere).block, 64);
  EXPECT_EQ(config(128, 128, {}, kHopper).stages, 3);
  EXPECT_EQ(config(128, 128, {}, kAmpere).stages, 2);
  EXPECT_EQ(config(128, 128, {}, kLeast).block, 32);
  EXPECT_EQ(config(256, 256, {}, kHopper).tile(), 64);
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
