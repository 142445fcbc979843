// How a forward kernel of the portable family computes: shared by the host and by NVRTC.
#pragma once

#include "forward_features.h"

namespace heed::kernels {

/// One CTA computes tile_q() rows of one head. Each warp owns warp_rows of them: their scores, their softmax, their O.
struct PortableConfig {
  Element type = Element::f16;    ///< of q, k, v
  Element output = Element::f16;  ///< of o
  int d = 128, d_v = 128;         ///< tiles that cover the head dims: one of kHeadTiles each
  int tile_k = 64;                ///< keys per block
  int warps = 4;
  int warp_rows = 32;           ///< 16 or 32; 32 reads K and V from shared memory half as often
  int stages = 1;               ///< 1: K and V take turns in arriving; more: a ring of so many blocks of both
  bool q_in_registers = false;  ///< 16-bit types: Q is read from shared memory once
  bool aligned = true;          ///< rows of q, k, v begin at multiples of 16 bytes and their elements are neighbours
  ForwardFeatures features = {};

  constexpr int element_bytes() const { return type == Element::f32 ? 4 : 2; }
  /// Launch bounds are (threads(), 1): told less, ptxas spills a few registers to fit one more CTA.
  constexpr int threads() const { return 32 * warps; }
  constexpr int tile_q() const { return warps * warp_rows; }
  /// Where O is wider than the registers it is computed in passes over its columns, each with all the scores.
  constexpr int pass_d_v() const {
    const int most = type == Element::f32 && !aligned ? 128 : 256;
    return d_v < most ? d_v : most;
  }
  constexpr int passes() const { return (d_v + pass_d_v() - 1) / pass_d_v(); }

  constexpr int q_bytes() const { return tile_q() * d * element_bytes(); }
  constexpr int k_bytes() const { return tile_k * d * element_bytes(); }
  constexpr int v_bytes() const { return tile_k * pass_d_v() * element_bytes(); }
  /// f32 weights change owners through shared memory; 16-bit ones stay where they are.
  constexpr int weight_bytes() const { return type == Element::f32 ? tile_q() * tile_k * 4 : 0; }
  constexpr int shared_bytes() const { return q_bytes() + stages * (k_bytes() + v_bytes()) + weight_bytes(); }

  /// Registers for Q, S and O, of 255. The rest is for operands, addresses and features.
  constexpr int tile_registers() const {
    return warp_rows / 16 * (tile_k / 2 + pass_d_v() / 2 + (q_in_registers ? d / 4 : 0));
  }

  /// The limit this configuration breaks, or null.
  constexpr const char* impossible() const {
    const auto is_head_tile = [](int x) {
      return x == 32 || x == 64 || x == 96 || x == 128 || x == 192 || x == 256 || x == 512;
    };
    if (!is_head_tile(d) || !is_head_tile(d_v)) return "head-dim tiles are 32, 64, 96, 128, 192, 256 or 512";
    if (tile_k < 16 || tile_k > 128 || tile_k % 16 != 0) return "a block has 16 to 128 keys, in steps of 16";
    if (warp_rows != 16 && warp_rows != 32) return "a warp has 16 or 32 rows";
    if (warps < 1 || warps > 16) return "1 to 16 warps";
    if (stages < 1 || stages > 4) return "1 to 4 stages";
    if (q_in_registers && type == Element::f32) return "Q stays in registers for 16-bit types only";
    if (tile_registers() > 208) return "Q, S and O of a warp do not fit its registers";
    if (warps > 8 && tile_registers() > 96) return "more than 8 warps leave 128 registers each";
    if (shared_bytes() > 227 * 1024) return "more than 227 KiB of shared memory";
    return nullptr;
  }

  friend constexpr bool operator==(const PortableConfig&, const PortableConfig&) = default;
};

inline constexpr int kHeadTiles[] = {32, 64, 96, 128, 192, 256, 512};

/// The smallest tile that covers a head dim of 1 to 512.
constexpr int head_tile(int d) {
  for (int tile : kHeadTiles)
    if (d <= tile) return tile;
  return 0;
}

/// The configuration that is shipped for a problem, on a GPU that gives a CTA max_shared_bytes. None of them spills.
constexpr PortableConfig portable_config(Element type, Element output, int d, int d_v, bool aligned,
                                         const ForwardFeatures& features, int max_shared_bytes) {
  PortableConfig c{.type = type,
                   .output = output,
                   .d = head_tile(d),
                   .d_v = head_tile(d_v),
                   .aligned = aligned,
                   .features = features};
  // What features need of the registers: masks little, lengths and two-sided windows some, a bias with dropout the
  // most.
  const bool bias = features.bias != BiasType::none;
  const bool heavy = features.changes_scores() || features.bit_masks() || features.dropout;
  const bool heaviest = bias && features.dropout;
  const bool light = !heavy && !features.own_lengths && features.mask != MaskShape::window;
  const int width = c.pass_d_v();
  c.warp_rows = width <= 128 ? 32 : 16;
  c.warps = 4;
  c.stages = 1;
  if (type == Element::f32) {
    if (width <= 64) {
      c.tile_k = heaviest ? 32 : 64;
    } else if (width <= 128) {
      if (heavy || !aligned) c.warp_rows = 16;
      c.tile_k = c.warp_rows == 16 || light ? 32 : 16;
    } else {
      c.tile_k = heavy && c.passes() > 1 ? 16 : 32;
    }
  } else if (width <= 64) {
    c.tile_k = heaviest || (heavy && c.d > 256) ? 32 : 64;
    c.stages = 2;
    c.q_in_registers = c.d <= 64 && light;
  } else if (width <= 128) {
    const bool tight = features.mask != MaskShape::none && max_shared_bytes < 200 * 1024;  // sm_80: one register short
    c.tile_k = light && !tight ? 64 : 32;
    c.stages = light && !tight ? 1 : 2;
    if (bias) c.warps = 8, c.warp_rows = 16;
  } else {
    c.tile_k = !heavy ? 64 : heaviest || c.passes() > 1 ? 16 : 32;
    c.warps = 8;
  }
  while (c.shared_bytes() > max_shared_bytes) {
    if (c.stages > 1) {
      --c.stages;
    } else if (c.tile_k > 32) {
      c.tile_k = 32;
    } else if (c.warps > 4) {
      c.warps /= 2;
    } else if (c.tile_k > 16) {
      c.tile_k = 16;
    } else if (c.warps > 1) {
      c.warps /= 2;
    } else if (c.warp_rows > 16) {
      c.warp_rows = 16;
    } else {
      break;
    }
  }
  return c;
}

}  // namespace heed::kernels
